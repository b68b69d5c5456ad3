"""The parent's side of a host: one child process that handles one request at a time.

Every libvirt call can block for ever and none can be cancelled, so the calls happen in
a process that can be killed.
"""

from __future__ import annotations

import base64
import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from hypervisor import wire
from hypervisor.child_process import ChildProcess, SilentError
from hypervisor.credential import Credential
from hypervisor.errors import (
    HostSilentError,
    HostUnreachableError,
    HypervisorError,
    OperationFailedError,
    in_words,
)
from hypervisor.model import (
    ConsoleExchange,
    ConsoleTail,
    DomainSpec,
    Guard,
    HostDomain,
    HostInspection,
    HostPoll,
    Mark,
    PoolInspection,
    ProcessorComparison,
)
from plain_text import shortened

# -P: not a module of that name in the current folder.
_CHILD: Final = (sys.executable, "-P", "-m", "hypervisor.child.single_host_child")
_PIECE_BYTES: Final = 1 << 20  #: of an upload, between two looks at the clock
POOL_PATIENCE: Final = 0.75  #: of a look's deadline; what comes after it takes a moment
MAX_REASON_LENGTH: Final = 1000  #: characters of what a host says went wrong


class HostConnection:
    """Calls to one libvirt host, each bounded by a deadline.

    Thread safe: calls of several threads follow one another, and waiting counts against
    the deadline. A process that forks may go on using it: the fork starts a child of its own.

    Parameters
    ----------
    uri : str
        A libvirt URI that was judged safe: some of libvirt's parameters run programs.
    credential : Credential, optional
        What opens the host, by default what libvirt finds by itself. The URI has no
        parameters then.
    machine : str, optional
        The UUID of the machine. Another one that answers at its address counts as unreachable.
    deadline_s : float
        How long a call may take that does not say itself.
    """

    def __init__(
        self,
        uri: str,
        *,
        credential: Credential | None = None,
        machine: str | None = None,
        deadline_s: float = 10.0,
    ) -> None:
        self.uri = uri
        self.credential = credential
        self.machine = machine
        self._deadline_s = deadline_s
        self._lock = threading.Lock()
        self._child: ChildProcess | None = None
        _connections.add(self)

    def __enter__(self) -> HostConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def report(self, pool: str, *, deadline_s: float | None = None) -> HostPoll:
        """Capacity, consumption, domains and the pool's volumes. Waits for no guest.

        Of a pool that does not answer within three quarters of the deadline it says so, and the
        rest. Its question stays open, and is no other's in the way, until this connection is
        closed.
        """
        args = {"pool": pool, "patience_s": self._patience(deadline_s)}
        return wire.report_from(self._call("report", args, deadline_s))

    def inspect(
        self, *, domain_type: str, network: str, deadline_s: float | None = None
    ) -> HostInspection:
        """Read what the host offers guests of this type, without its pool."""
        args = {"domain_type": domain_type, "network": network}
        fields = self._call("inspect", args, deadline_s)
        return HostInspection(**{**fields, "domain_types": tuple(fields["domain_types"])})

    def inspect_pool(self, pool: str, *, deadline_s: float | None = None) -> PoolInspection:
        """Read a pool's state. Makes and deletes an empty volume, which shows the host's clock."""
        return PoolInspection(**self._call("inspect_pool", {"pool": pool}, deadline_s))

    def compare_processors(
        self,
        *,
        domain_type: str,
        own: str,
        others: Mapping[str, str],
        deadline_s: float | None = None,
    ) -> ProcessorComparison:
        """Return whether guests with the processors of other hosts, by name, could run here."""
        args = {"domain_type": domain_type, "own": own, "others": dict(others)}
        return ProcessorComparison(**self._call("compare_processors", args, deadline_s))

    def find(self, vm_id: str, *, deadline_s: float | None = None) -> HostDomain | None:
        """Look for the domain of a VM, no matter which software defined it.

        One that arrives by a move is there from the beginning, paused, with the arriving mark;
        once it runs it is in a run of this host, another than it was in at the source.
        """
        return wire.domain_from(self._call("find", {"vm_id": vm_id}, deadline_s))

    def create_overlay(
        self,
        *,
        pool: str,
        name: str,
        base_volume: str | None,
        base_format: str | None = None,
        capacity_gib: int,
        deadline_s: float | None = None,
    ) -> None:
        """Make a sparse disk on a base image. One of that name is there: nothing.

        ``base_format`` is the base's; None: whatever the host finds in it.
        """
        args = {
            "pool": pool,
            "name": name,
            "base_volume": base_volume,
            "base_format": base_format,
            "capacity_gib": capacity_gib,
        }
        self._call("create_overlay", args, deadline_s)

    def put_volume(
        self, pool: str, name: str, content: bytes, *, deadline_s: float | None = None
    ) -> None:
        """Make a small raw volume of this content, in place of one of that name."""
        args = {"pool": pool, "name": name, "content": base64.b64encode(content).decode()}
        self._call("put_volume", args, deadline_s)

    def define(self, spec: DomainSpec, *, deadline_s: float | None = None) -> None:
        """Define a domain. One with the same mark is there: nothing; another's: refused."""
        self._call("define", {"spec": spec}, deadline_s)

    def start_paused(
        self, vm_id: str, *, guard: Guard | None = None, deadline_s: float | None = None
    ) -> None:
        """Start a domain without letting its guest run. Started already: nothing."""
        self._call("start_paused", {"vm_id": vm_id, "guard": guard}, deadline_s)

    def resume(self, vm_id: str, *, deadline_s: float | None = None) -> None:
        """Let the guest run. Running already: nothing; refused while it is moved.

        A guest that a move left paused, at the source, goes on.
        """
        self._call("resume", {"vm_id": vm_id}, deadline_s)

    def shut_down(self, vm_id: str, *, run: int, deadline_s: float | None = None) -> None:
        """Press the power button of a guest. It is off, or in another run: nothing.

        Refused while it is moved.
        """
        self._call("shut_down", {"vm_id": vm_id, "run": run}, deadline_s)

    def power_off(self, vm_id: str, *, run: int, deadline_s: float | None = None) -> None:
        """Cut a guest's power. It is off, or in another run: nothing."""
        self._call("power_off", {"vm_id": vm_id, "run": run}, deadline_s)

    def reset(self, vm_id: str, *, run: int, deadline_s: float | None = None) -> None:
        """Press the reset button of a guest; refused when it is off, in another run, or moved."""
        self._call("reset", {"vm_id": vm_id, "run": run}, deadline_s)

    def destroy(
        self, vm_id: str, *, mark: Mark | None = None, deadline_s: float | None = None
    ) -> None:
        """End a domain. Absent, off, or (when ``mark`` is given) another attempt's: nothing."""
        self._call("destroy", {"vm_id": vm_id, "mark": mark}, deadline_s)

    def undefine(
        self, vm_id: str, *, mark: Mark | None = None, deadline_s: float | None = None
    ) -> None:
        """Forget a domain that is off. Absent, or another attempt's: nothing."""
        self._call("undefine", {"vm_id": vm_id, "mark": mark}, deadline_s)

    def abort_move(self, vm_id: str, *, deadline_s: float | None = None) -> None:
        """End a move of a domain away from this host, and return when it has ended.

        Absent, or not moving: nothing. Who called for the move learns that it failed.
        """
        self._call("abort_move", {"vm_id": vm_id}, deadline_s)

    def has_volume(self, pool: str, name: str, *, deadline_s: float | None = None) -> bool:
        """Return whether a pool has a volume; of a shared pool another host may have made it."""
        return bool(self._call("has_volume", {"pool": pool, "name": name}, deadline_s))

    def overlays_of(self, pool: str, name: str, *, deadline_s: float | None = None) -> list[str]:
        """Return the names of files of a pool that rest on a VM's disk, as snapshots make them."""
        found = self._call("layers_on", {"pool": pool, "name": name}, deadline_s)
        return [str(each) for each in found]

    def domains_using(
        self, pool: str, volumes: Sequence[str], *, deadline_s: float | None = None
    ) -> list[str]:
        """Return the names of domains whose disks are, or rest on, volumes of a pool."""
        args = {"pool": pool, "volumes": list(volumes), "patience_s": self._patience(deadline_s)}
        found = self._call("users_of", args, deadline_s)
        return [str(each) for each in found]

    def delete_volume(self, pool: str, name: str, *, deadline_s: float | None = None) -> None:
        """Delete a volume. Absent: nothing; refused while a domain uses it."""
        args = {"pool": pool, "name": name, "patience_s": self._patience(deadline_s)}
        self._call("delete_volume", args, deadline_s)

    def upload(
        self,
        *,
        pool: str,
        name: str,
        path: str,
        size_bytes: int,
        sha256: str,
        tell: Callable[[int], None],
        head: bytes = b"",
        margin_bytes: int = 0,
        deadline_s: float | None = None,
    ) -> None:
        """Bring a file of this machine into a volume that is not there yet.

        Parameters
        ----------
        path : str
            Of the file; it has ``size_bytes`` bytes with that hash, or it is refused.
        tell : callable
            Called with the bytes sent so far after every piece, and again while they are
            read back to be compared. What it raises ends the upload.
        head : bytes, optional
            How the file began when it was looked at: sent in place of how it begins now.
            libvirt looks into what it has of a file, before all of it is there to be compared.
        margin_bytes : int, optional
            What has to stay free in the pool.
        deadline_s : float, optional
            Of each piece.

        Notes
        -----
        An upload that ends early deletes its volume. One that a deadline ended could not:
        what the host has of it stays under that name.
        """
        begin = {
            "pool": pool,
            "name": name,
            "path": path,
            "size_bytes": size_bytes,
            "head": base64.b64encode(head).decode(),
            "margin_bytes": margin_bytes,
        }
        try:
            self._call("upload_begin", begin, deadline_s)
            sent = 0
            while sent < size_bytes:
                sent = self._call("upload_send", {"max_bytes": _PIECE_BYTES}, deadline_s)
                tell(sent)
            self._call("upload_end", {"sha256": sha256}, deadline_s)
            came_back = 0
            while came_back < size_bytes:
                came_back = self._call("upload_read_back", {"max_bytes": _PIECE_BYTES}, deadline_s)
                tell(size_bytes)
        except HostUnreachableError:
            raise  # the upload has ended with its process or its connection
        except BaseException:
            with contextlib.suppress(HypervisorError):
                self._call("upload_drop", {}, deadline_s)
            raise

    def remove(
        self,
        vm_id: str,
        *,
        assignment_id: str,
        generation: int | None,
        pool: str,
        volumes: Sequence[str],
        deadline_s: float | None = None,
    ) -> bool:
        """Remove what an assignment made on this host, then look again.

        Returns
        -------
        bool
            True: looked, and neither its domain nor its volumes are there. False: a domain of
            this VM is there that must not be touched (another generation's, or unmarked).
        """
        args = {
            "vm_id": vm_id,
            "assignment_id": assignment_id,
            "generation": generation,
            "pool": pool,
            "volumes": list(volumes),
            "patience_s": self._patience(deadline_s),
        }
        return bool(self._call("remove", args, deadline_s))

    def console_tail(
        self, vm_id: str, max_bytes: int = 65536, *, after: int = 0, deadline_s: float | None = None
    ) -> ConsoleTail:
        """Return the last bytes of the serial console's log, of those after ``after``.

        Empty if there is no log. A log that is shorter than ``after`` is another
        one, of a VM that was built again: then all of it counts.
        """
        args = {"vm_id": vm_id, "max_bytes": max_bytes, "after": after}
        found = self._call("console_tail", args, deadline_s)
        return ConsoleTail(content=base64.b64decode(found["content"]), end=found["end"])

    def open_console(self, vm_id: str, *, force: bool, deadline_s: float | None = None) -> None:
        """Hold the serial console of a guest that runs, one at a time on a connection.

        Refused while another client holds it, unless ``force``: then it is taken from them.
        """
        self._call("console_open", {"vm_id": vm_id, "force": force}, deadline_s)

    def exchange_console(
        self, typed: bytes, *, wait_s: float, deadline_s: float | None = None
    ) -> ConsoleExchange:
        """Type into the console that is held, and return what the guest wrote.

        Returns as soon as it wrote something, else after ``wait_s``.
        """
        args = {"typed": base64.b64encode(typed).decode(), "wait_s": wait_s}
        found = self._call("console_exchange", args, deadline_s)
        return ConsoleExchange(
            taken=found["taken"], content=base64.b64decode(found["content"]), ended=found["ended"]
        )

    def release_console(self, *, deadline_s: float | None = None) -> None:
        """Let go of the console that is held; none: nothing."""
        self._call("console_release", {}, deadline_s)

    def close(self) -> None:
        """End the child. A later call starts another."""
        with self._lock:
            if self._child is not None:
                self._child.end()
                self._child = None

    def _patience(self, deadline_s: float | None) -> float:
        """Return how long a call may wait for pools."""
        return (self._deadline_s if deadline_s is None else deadline_s) * POOL_PATIENCE

    def _call(self, op: str, args: Mapping[str, Any], deadline_s: float | None) -> Any:
        allowed = self._deadline_s if deadline_s is None else deadline_s
        deadline = time.monotonic() + allowed
        if not self._lock.acquire(timeout=max(0.0, allowed)):
            raise HostUnreachableError(self.uri, f"busy with another call for {allowed:g} s")
        try:
            if self._child is None or self._child.has_ended():
                self._discard()
                self._child = ChildProcess(self._command(), self.credential)
            answer = wire.decode(self._child.ask(wire.encode({"op": op, "args": args}), deadline))
        except (SilentError, ValueError, OSError) as error:
            self._discard()
            reason = self._mask_credentials(f"{in_words(op)}: {error}")
            raise HostSilentError(self.uri, reason, getattr(error, "signal", None)) from error
        except BaseException:
            # Interrupted between question and answer: the next answer would not be ours.
            self._discard()
            raise
        finally:
            self._lock.release()
        if answer.get("error") == "unreachable":
            raise HostUnreachableError(self.uri, self._mask_credentials(answer["reason"]))
        if "error" in answer:
            raise OperationFailedError(
                op, self._mask_credentials(answer["reason"]), answer.get("code")
            )
        return answer["ok"]

    def _mask_credentials(self, reason: str) -> str:
        known = reason if self.credential is None else self.credential.mask(reason)
        return shortened(known, MAX_REASON_LENGTH)

    def _command(self) -> tuple[str, ...]:
        return (*_CHILD, self.uri, *(() if self.machine is None else (self.machine,)))

    def _discard(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None

    def _after_fork(self) -> None:
        """In a forked process: the lock may be held by a thread that is not here."""
        self._lock = threading.Lock()
        if self._child is not None:
            self._child.release_pipes()
            self._child = None


_connections: weakref.WeakSet[HostConnection] = weakref.WeakSet()


def _after_fork() -> None:
    for connection in list(_connections):
        connection._after_fork()


os.register_at_fork(after_in_child=_after_fork)
