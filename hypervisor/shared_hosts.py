"""Polls many hosts with few child processes; no host waits for another.

Hosts that answer share processes, many per process. A poll without an answer in time leaves a hung
thread in the process, and delays no other poll. From then on that host is polled in a separate
process for silent hosts, which is killed after the deadline of its first poll. With its first
answer the host returns to a shared process. If a process dies or stalls, no host counts as late:
each host that it was polling is polled once more, alone, and stays alone as long as its processes
die.
"""

from __future__ import annotations

import itertools
import threading
import time
from enum import Enum, auto
from typing import Any, Final

from hypervisor import wire
from hypervisor.connection import MAX_REASON_LENGTH, POOL_PATIENCE, HostConnection
from hypervisor.credential import Credential
from hypervisor.errors import HostSilentError, HostUnreachableError, OperationFailedError
from hypervisor.model import HostPoll
from hypervisor.shared_child import (
    COMMAND,
    ChildLostError,
    NotBegunError,
    SharedChild,
    TooLateError,
)
from plain_text import shorten_text

_HOSTS_PER_CHILD: Final = 250
#: Hung threads after which a process is replaced.
_MAX_ABANDONED: Final = 10
#: Fraction of a poll's deadline during which a process for silent hosts begins polls. It ends when
#: the first poll's deadline has passed.
_OPEN_APART: Final = 0.9
#: Maximum processes for a single host at a time. After a lost process, its other hosts wait for
#: one.
_MAX_ALONE: Final = 8


class _HostPlace(Enum):
    """Where a host is polled: in a shared child, in that for silent hosts, or in its own."""

    SHARED = auto()
    APART = auto()  #: it did not answer in time
    ALONE = auto()  #: it may have crashed a process


class SharedHosts:
    """The child processes, and the assignment of hosts to them.

    Parameters
    ----------
    deadline_s : float
        The deadline of a poll.
    hosts_per_child : int
        Maximum hosts that share a process.
    command : sequence of str
        The command that starts a child process.
    """

    def __init__(
        self,
        *,
        deadline_s: float,
        hosts_per_child: int = _HOSTS_PER_CHILD,
        command: tuple[str, ...] = COMMAND,
    ) -> None:
        self.deadline_s = deadline_s
        self.alone = threading.BoundedSemaphore(_MAX_ALONE)
        self._hosts_per_child = hosts_per_child
        self._command = command
        self._keys = itertools.count(1)
        self._changing = threading.Lock()
        self._started: list[SharedChild] = []  #: including retired ones
        self._children: list[SharedChild] = []
        self._apart: SharedChild | None = None
        self._closed = False

    def host(self, uri: str, credential: Credential | None = None) -> SharedHost:
        """Return the poller of a host in a shared child; the caller must have checked the URI."""
        return SharedHost(self, next(self._keys), uri, credential)

    def close(self) -> None:
        """End all child processes that poll hosts; running polls fail."""
        with self._changing:
            self._closed = True
            ending, self._started = self._started, []
            self._children, self._apart = [], None
        enders = [threading.Thread(target=child.end) for child in ending]
        for ender in enders:
            ender.start()
        for ender in enders:
            ender.join()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called, so that no host is polled any more."""
        return self._closed

    def child_for(self, key: int, before: SharedChild | None) -> SharedChild:
        """Assign a host to a shared process: the previous one, if it still begins polls."""
        self._retire_child_for_silent_hosts()
        if before is not None and before.is_open:
            return before
        with self._changing:
            self._check_open()
            self._children = [child for child in self._children if child.is_open]
            roomy = [each for each in self._children if len(each.hosts) < self._hosts_per_child]
            if roomy:
                child = max(roomy, key=lambda each: len(each.hosts))
            else:
                child = self._start_child()
                self._children.append(child)
            child.hosts.add(key)
        return child

    def child_for_silent_hosts(self, key: int) -> SharedChild:
        """Assign a host to the process for silent hosts, which is replaced after each deadline."""
        self._retire_child_for_silent_hosts()
        with self._changing:
            self._check_open()
            if self._apart is None:
                closes_at = time.monotonic() + self.deadline_s * _OPEN_APART
                self._apart = self._start_child(closes_at)
            self._apart.hosts.add(key)
            return self._apart

    def _retire_child_for_silent_hosts(self) -> None:
        """Retire the process for silent hosts if it is old or full."""
        apart = self._apart
        if apart is None or (apart.is_open and len(apart.hosts) < self._hosts_per_child):
            return
        with self._changing:
            if self._apart is apart:
                self._apart = None
        apart.retire()

    def release_host(self, key: int, child: SharedChild) -> None:
        """Remove a host from a process; end the process after its last host."""
        with self._changing:
            child.hosts.discard(key)
            is_over = not child.hosts or child.abandoned_polls >= _MAX_ABANDONED
        child.forget(key)
        if is_over:
            child.retire()

    def _start_child(self, closes_at: float | None = None) -> SharedChild:
        """Start a child process that polls hosts."""
        child = SharedChild(self._command, closes_at=closes_at)
        self._started = [each for each in self._started if not each.is_gone]
        self._started.append(child)
        return child

    def _check_open(self) -> None:
        """Raise `ChildLostError` if `close` was called."""
        if self._closed:
            raise ChildLostError("it was closed")


class SharedHost:
    """Polls one host, one poll at a time."""

    def __init__(
        self, hosts: SharedHosts, key: int, uri: str, credential: Credential | None
    ) -> None:
        self.uri = uri
        self.credential = credential
        self._hosts = hosts
        self._key = key
        self._place = _HostPlace.SHARED
        self._child: SharedChild | None = None
        self._poll_lock = threading.Lock()
        self._closed = False

    def report(self, pool: str) -> HostPoll:
        """Poll the host; see `HostConnection.report`."""
        with self._poll_lock:
            try:
                return self._poll_once(pool)
            finally:
                if self._closed:
                    self._release_child()

    def _poll_once(self, pool: str) -> HostPoll:
        """Poll the host in the child where it belongs; move it elsewhere if it is late."""
        if self._closed:
            raise HostUnreachableError(self.uri, "it is not polled any more")
        deadline = time.monotonic() + self._hosts.deadline_s
        if self._place is not _HostPlace.ALONE:
            try:
                return self._poll_in_shared_child(pool, deadline)
            except TooLateError:
                self._release_child()
                self._place = _HostPlace.APART
                raise self._timeout_error() from None
            except ChildLostError as error:
                self._release_child()
                if self._hosts.is_closed:
                    raise HostUnreachableError(self.uri, f"report: {error}") from None
                self._place = _HostPlace.ALONE
        return self._poll_in_own_child(pool)

    def close(self) -> None:
        """Stop polling the host. A poll under way continues until its answer or deadline."""
        self._closed = True
        self._release_child()

    def _poll_in_shared_child(self, pool: str, deadline: float) -> HostPoll:
        """Poll the host in a child process that polls others too."""
        patience_s = self._hosts.deadline_s * POOL_PATIENCE
        request = {
            "host": self._key,
            "uri": self.uri,
            "credential": self.credential.to_json() if self.credential else None,
            "args": {"pool": pool, "patience_s": patience_s},
        }
        while True:
            if self._place is _HostPlace.APART:
                child = self._hosts.child_for_silent_hosts(self._key)
            else:
                child = self._child = self._hosts.child_for(self._key, self._child)
            try:
                answer = child.ask(request, deadline)
            except NotBegunError:
                continue  # it was retired just now; take another one
            self._place = _HostPlace.SHARED
            return self._decode_answer(answer)

    def _poll_in_own_child(self, pool: str) -> HostPoll:
        """Poll the host in a child process of its own, as it was silent before."""
        if not self._hosts.alone.acquire(timeout=self._hosts.deadline_s):
            raise HostUnreachableError(self.uri, "too many hosts have a child process of their own")
        try:
            deadline = time.monotonic() + self._hosts.deadline_s
            with HostConnection(self.uri, credential=self.credential) as connection:
                found = connection.report(pool, deadline_s=self._hosts.deadline_s)
        except HostSilentError:
            if time.monotonic() >= deadline:
                self._place = _HostPlace.APART
            raise
        except (HostUnreachableError, OperationFailedError):
            self._place = _HostPlace.SHARED
            raise
        finally:
            self._hosts.alone.release()
        self._place = _HostPlace.SHARED
        return found

    def _decode_answer(self, answer: dict[str, Any]) -> HostPoll:
        """Return the poll in a child's answer, or raise the host's error."""
        if answer.get("error") == "unreachable":
            raise HostUnreachableError(self.uri, self._mask_credentials(answer["reason"]))
        if "error" in answer:
            raise OperationFailedError(
                "report", self._mask_credentials(answer["reason"]), answer.get("code")
            )
        return wire.decode_poll(answer["ok"])

    def _timeout_error(self) -> HostSilentError:
        """Return the error that the host did not answer a poll in time."""
        return HostSilentError(self.uri, f"report: no answer within {self._hosts.deadline_s:.1f} s")

    def _mask_credentials(self, reason: str) -> str:
        """Return an error's reason shortened, without the folder of the credential."""
        known = reason if self.credential is None else self.credential.mask(reason)
        return shorten_text(known, MAX_REASON_LENGTH)

    def _release_child(self) -> None:
        """Remove the host from the child process that polls it, if any."""
        child, self._child = self._child, None
        if child is not None:
            self._hosts.release_host(self._key, child)
