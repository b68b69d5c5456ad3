"""Moves of VMs between two hosts, by a child process with connections to both."""

from __future__ import annotations

import contextlib
import ipaddress
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from hypervisor import wire
from hypervisor.child_process import MAX_ANSWER_BYTES, ChildProcess, SilentError
from hypervisor.connection import MAX_REASON_LENGTH
from hypervisor.credential import DESTINATION_VARIABLE
from hypervisor.errors import (
    HostSilentError,
    HostUnreachableError,
    MigrationRefusedError,
    MoveHangsError,
    OperationFailedError,
    operation_words,
)
from hypervisor.move_model import (
    HostEndpoint,
    MigrationObstacle,
    MigrationProgress,
    MoveResult,
    MoveSpec,
)
from plain_text import shorten_text

# -P: modules in the current folder are ignored.
_CHILD: Final = (sys.executable, "-P", "-m", "hypervisor.child.move")
#: Time for a cancelled move to end; cancelling the copy of a disk takes longest.
_ABORT_S: Final = 15.0
#: Time to destroy the destination's QEMU, which libvirt kills after 10 s if necessary.
_WITHDRAW_S: Final = 40.0
_ATTEMPTS: Final = 3  #: of a move while nothing was sent, each with other ports
_PATIENCE_S: Final = 0.5  #: of one wait for the child's output, between two checks of the deadline
_NOTHING_SENT: Final = MigrationProgress(
    elapsed_ms=0,
    memory_total_bytes=0,
    memory_remaining_bytes=0,
    disk_total_bytes=0,
    disk_remaining_bytes=0,
    rate_bytes_s=0,
    iteration=0,
)


class HostPairMigrator:
    """Moves VMs between two hosts, one after the other, in a child process.

    Parameters
    ----------
    source, destination : HostEndpoint
        The hosts need not reach each other's libvirt. The destination's QEMU listens for the
        source's, at the move's address or else at one that its libvirt names.
    deadline_s : float
        The deadline of `check`.

    Notes
    -----
    Ending this process, or `close`, cancels a running move. After an error of `live` the guest may
    be on either host: check both once no process of this move lives.

    - Running at the source: it stays there. Remove the destination's domain, which never ran.
    - Running at the destination: the move is done. Remove the source's domain.
    - No domain at the source, and paused at the destination, but not by the move
      (`HostDomain.paused_by_move`): it has arrived. Resume it with `HostConnection.resume`.
    - Paused at the source: remove the destination's domain, and resume the source's.
    - Off at the source: its host or its QEMU failed.

    A separate call resumes the guest at the destination once the source has dropped it. Otherwise,
    if the destination's last answer is lost, libvirt would resume the guest at the source while it
    may run at the destination. Post-copy cannot wait like this, so it could leave two running
    guests.
    """

    def __init__(
        self, source: HostEndpoint, destination: HostEndpoint, *, deadline_s: float = 10.0
    ) -> None:
        self.source, self.destination = source, destination
        self._deadline_s = deadline_s
        self._child: ChildProcess | None = None
        self._received = b""

    def __enter__(self) -> HostPairMigrator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check(self, spec: MoveSpec) -> None:
        """Check for obstacles to a move.

        The caller makes the volumes at the destination before; a cold move needs no disk there.
        Whether the QEMUs of the hosts reach each other shows only during the move.

        Raises
        ------
        MigrationRefusedError
            With the first obstacle. Nothing was begun.
        """
        until = time.monotonic() + self._deadline_s
        self._ask_child("check", {"spec": spec}, lambda: until, lambda _: None, grace_s=0.0)

    def move_live(
        self, spec: MoveSpec, *, deadline_s: float, on_progress: Callable[[MigrationProgress], None]
    ) -> MoveResult:
        """Move a running guest.

        Parameters
        ----------
        deadline_s : float
            Time limit of the move, after which it is aborted.
        on_progress : callable
            Called about twice a second. An error that it raises aborts the move, and is raised
            again after the move's end.

        Raises
        ------
        OperationFailedError
            A host refused, or the move was aborted.
        MoveHangsError
            No byte was sent for the move's ``hang_s``, in several attempts if nothing was sent at
            all, or the guest was paused during the move. If the hosts answer, the guest runs at the
            source.
        MigrationRefusedError
            The disk is not to be copied, but its pool is not shared. Nothing was begun.
        HostUnreachableError
            A host stopped answering.
        HostSilentError
            Aborting took too long, and the child process was killed.
        """
        until = time.monotonic() + deadline_s
        attempts = 1
        while True:
            try:
                done = self._run_move("live", spec, until - time.monotonic(), on_progress)
            except MoveHangsError as error:
                runs_here = self._withdraw_move(spec)
                late = time.monotonic() >= until
                if error.begun or not runs_here or late or attempts == _ATTEMPTS:
                    raise
                # Reported, so that the worker renews its lease.
                on_progress(_NOTHING_SENT)
                attempts += 1
                spec = replace(spec, address=spec.address or self._destination_address())
            else:
                return replace(done, attempts=done.attempts + attempts - 1)

    def move_cold(
        self, spec: MoveSpec, *, deadline_s: float, on_progress: Callable[[MigrationProgress], None]
    ) -> MoveResult:
        """Copy the disk of a stopped VM, and define its domain at the destination, stopped.

        The source stays unchanged: the caller removes one of the two before it starts the other.
        The caller may repeat the move, even after an error, until the destination has the domain.

        Parameters
        ----------
        deadline_s, on_progress
            As for `move_live`. Progress counts the bytes of the disk's file.

        Raises
        ------
        OperationFailedError, HostUnreachableError, HostSilentError
            As for `move_live`; the VM is still at the source.
        """
        return self._run_move("cold", spec, deadline_s, on_progress)

    def close(self) -> None:
        """End the child process of the migrator. A running move is cancelled."""
        child, self._child = self._child, None
        if child is not None:
            child.end()

    def _withdraw_move(self, spec: MoveSpec) -> bool:
        """Undo a hung move; return whether the guest then runs only at the source."""
        until = time.monotonic() + _WITHDRAW_S
        try:
            return bool(
                self._ask_child(
                    "withdraw", {"spec": spec}, lambda: until, lambda _: None, grace_s=0.0
                )
            )
        except (OperationFailedError, HostUnreachableError):
            return False

    def _destination_address(self) -> str | None:
        """Return the destination's address in its URI; None if other hosts cannot reach it."""
        found = urlsplit(self.destination.uri).hostname
        if found is None or found == "localhost":
            return None
        with contextlib.suppress(ValueError):
            if ipaddress.ip_address(found).is_loopback:
                return None
        return found

    def _run_move(
        self,
        op: str,
        spec: MoveSpec,
        deadline_s: float,
        on_progress: Callable[[MigrationProgress], None],
    ) -> MoveResult:
        """Have the child move a VM, pass on its progress, and return the result."""
        until = time.monotonic() + deadline_s
        raised: BaseException | None = None

        def pass_progress(progress: Mapping[str, Any]) -> None:
            nonlocal raised, until
            if raised is not None:
                return
            try:
                on_progress(MigrationProgress(**progress))
            except BaseException as error:  # any error: the move ends first
                raised = error
                until = min(until, time.monotonic())

        try:
            found = MoveResult(**self._ask_child(op, {"spec": spec}, lambda: until, pass_progress))
        except (OperationFailedError, HostUnreachableError):
            if raised is not None:
                raise raised from None
            raise
        if raised is not None:
            raise raised
        return found

    def _ask_child(
        self,
        op: str,
        args: Mapping[str, Any],
        until: Callable[[], float],
        on_progress: Callable[[Mapping[str, Any]], None],
        *,
        grace_s: float = _ABORT_S,
    ) -> Any:
        """Send the child a request about a move, and return its result.

        After ``until`` the request is cancelled; if that takes too long, the child is killed.
        """
        called_off_at: float | None = None
        started = time.monotonic()
        try:
            child = self._open_child()
            child.send(wire.encode({"op": op, "args": args}))
            while True:
                now = time.monotonic()
                if called_off_at is None and now >= until():
                    called_off_at = now
                    child.send(wire.encode({"op": "abort"}))
                if called_off_at is not None and now >= called_off_at + grace_s:
                    raise SilentError(f"no answer within {now - started:.1f} s")  # noqa: TRY301
                line = self._read_line(child)
                if line is None:
                    continue
                answer = wire.decode(line)
                if "progress" not in answer:
                    break
                on_progress(answer["progress"])
        except (SilentError, ValueError, OSError) as error:
            self._discard_child()
            reason = self._mask_credentials(f"{operation_words(op)} move: {error}")
            raise HostSilentError(self.source.uri, reason) from error
        except BaseException:
            # Interrupted: the next answer would be a wrong one.
            self._discard_child()
            raise
        if called_off_at is not None or answer.get("error") == "hangs":
            self._discard_child()  # its late abort could end the next move
        return self._result_or_raise(op, answer)

    def _result_or_raise(self, op: str, answer: Mapping[str, Any]) -> Any:
        """Return the result in the child's answer, or raise the error of the move."""
        if "error" not in answer:
            return answer["ok"]
        reason = self._mask_credentials(answer["reason"])
        if answer["error"] == "refused":
            raise MigrationRefusedError(MigrationObstacle(answer["obstacle"]), reason)
        if answer["error"] == "hangs":
            raise MoveHangsError(f"{op}_move", reason, begun=answer["begun"])
        if answer["error"] == "unreachable":
            raise HostUnreachableError(answer["uri"], reason)
        raise OperationFailedError(f"{op}_move", reason, answer["code"])

    def _read_line(self, child: ChildProcess) -> bytes | None:
        """Return the next line of the child's output; None if none is complete yet."""
        while b"\n" not in self._received:
            part = child.read(_PATIENCE_S)
            if part is None:
                return None
            self._received += part
            if len(self._received) > MAX_ANSWER_BYTES:
                raise SilentError(f"an answer of more than {MAX_ANSWER_BYTES >> 20} MiB")
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _open_child(self) -> ChildProcess:
        """Return the child process with connections to both hosts; start it if necessary."""
        if self._child is None or self._child.has_ended():
            self._discard_child()
            credential = self.destination.credential
            given = {} if credential is None else {DESTINATION_VARIABLE: credential.to_json()}
            ends = (self.source, self.destination)
            command = (*_CHILD, *(word for end in ends for word in (end.uri, end.machine or "")))
            self._child = ChildProcess(command, self.source.credential, given)
        return self._child

    def _discard_child(self) -> None:
        """Kill the child process, so that the next move starts another."""
        self._received = b""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def _mask_credentials(self, reason: str) -> str:
        """Return an error's reason shortened, without the folders of credentials."""
        for end in (self.source, self.destination):
            if end.credential is not None:
                reason = end.credential.mask(reason)
        return shorten_text(reason, MAX_REASON_LENGTH)
