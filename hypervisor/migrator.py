"""The parent's side of a move: one child process, which has both hosts open."""

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
    in_words,
)
from hypervisor.move_model import (
    HostEndpoint,
    MigrationObstacle,
    MigrationProgress,
    MoveDone,
    MoveSpec,
)
from plain_text import shortened

# -P: not a module of that name in the current folder.
_CHILD: Final = (sys.executable, "-P", "-m", "hypervisor.child.move")
#: For a move that is called off to end: a copy of a disk is cancelled first.
_ABORT_S: Final = 15.0
#: To end the destination's QEMU, which libvirt kills after 10 s if it does not end by itself.
_WITHDRAW_S: Final = 40.0
_ATTEMPTS: Final = 3  #: of a move of which nothing was sent, each at other ports
_PATIENCE_S: Final = 0.5  #: of one wait for the child's words, between two looks at the clock
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
    """Moves between two hosts, one after the other, led by a process of their own.

    Parameters
    ----------
    source, destination : HostEnd
        Two hosts. They need not reach each other's libvirt; the destination's QEMU listens for
        the source's, at an address that its libvirt names, or that the move says.
    deadline_s : float
        Of `check`.

    Notes
    -----
    Ending this process, or `close`, cancels a move under way. An error of `live` says nothing
    about where the guest is: check both hosts once no process of this move lives.

    - It runs at the source: it is there. Remove what arrived, which may be whole, and never ran.
    - It runs at the destination: it is there. Remove what the source has of it.
    - The source has no domain, and the destination has it paused, but not by the move
      (`DomainSeen.paused_by_move`): it is whole there. `HostConnection.resume` it.
    - The source has it paused: remove what arrived, and resume it at the source.
    - Off at the source: its host or its QEMU failed.

    A guest is let run at the destination once the source has forgotten it, by a call of its own:
    libvirt lets it run on at the source where the destination's last answer is lost, whether it
    runs there or not. Post-copy cannot wait so; with it, that case leaves two guests that run.
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
        """Return if nothing is known that would prevent a move.

        Its volumes at the destination are made before; of one that is off, the disk need not be
        there. Whether the hosts' QEMUs reach each other, only a move finds out.

        Raises
        ------
        MigrationRefusedError
            With the obstacle. Nothing was begun.
        """
        until = time.monotonic() + self._deadline_s
        self._ask("check", {"spec": spec}, lambda: until, lambda _: None, grace_s=0.0)

    def live(
        self, spec: MoveSpec, *, deadline_s: float, tell: Callable[[MigrationProgress], None]
    ) -> MoveDone:
        """Move a guest that runs.

        Parameters
        ----------
        deadline_s : float
            Of the whole move; then it is aborted.
        tell : callable
            Called about twice a second. What it raises aborts the move, and is raised once the
            move has ended.

        Raises
        ------
        OperationFailedError
            A host refused, or the move was aborted.
        MoveHangsError
            Nothing flowed for so long as the move's ``hang_s``, in several attempts if nothing was
            sent, or the guest stood still. As far as the hosts answer, it runs at the source.
        MigrationRefusedError
            Of a disk that is not copied: its pool is not shared. Nothing was begun.
        HostUnreachableError
            A host did not answer any more.
        HostSilentError
            Aborting took too long: the process that led the move was killed.
        """
        until = time.monotonic() + deadline_s
        attempts = 1
        while True:
            try:
                done = self._move("live", spec, until - time.monotonic(), tell)
            except MoveHangsError as error:
                runs_here = self._withdraw(spec)
                late = time.monotonic() >= until
                if error.begun or not runs_here or late or attempts == _ATTEMPTS:
                    raise
                # Reported, so that the worker renews its lease.
                tell(_NOTHING_SENT)
                attempts += 1
                spec = replace(spec, address=spec.address or self._known_address())
            else:
                return replace(done, attempts=done.attempts + attempts - 1)

    def cold(
        self, spec: MoveSpec, *, deadline_s: float, tell: Callable[[MigrationProgress], None]
    ) -> MoveDone:
        """Copy the disk of a VM that is off, and define its domain at the destination, off.

        The source stays as it is: the caller removes one of the two before it starts the other. It
        may be repeated, after an error, too, until the destination has the domain.

        Parameters
        ----------
        deadline_s, tell
            As of `live`. Of a disk that is copied, its file's bytes are reported.

        Raises
        ------
        OperationFailedError, HostUnreachableError, HostSilentError
            As of `live`; the VM is still at the source.
        """
        return self._move("cold", spec, deadline_s, tell)

    def close(self) -> None:
        """End the process. A move that is under way is cancelled."""
        child, self._child = self._child, None
        if child is not None:
            child.end()

    def _withdraw(self, spec: MoveSpec) -> bool:
        """Return whether the guest runs at the source alone, after what hung was ended."""
        until = time.monotonic() + _WITHDRAW_S
        try:
            return bool(
                self._ask("withdraw", {"spec": spec}, lambda: until, lambda _: None, grace_s=0.0)
            )
        except (OperationFailedError, HostUnreachableError):
            return False

    def _known_address(self) -> str | None:
        """Return the address at which the destination's libvirt is reached, if others reach it."""
        found = urlsplit(self.destination.uri).hostname
        if found is None or found == "localhost":
            return None
        with contextlib.suppress(ValueError):
            if ipaddress.ip_address(found).is_loopback:
                return None
        return found

    def _move(
        self, op: str, spec: MoveSpec, deadline_s: float, tell: Callable[[MigrationProgress], None]
    ) -> MoveDone:
        until = time.monotonic() + deadline_s
        raised: BaseException | None = None

        def on_progress(progress: Mapping[str, Any]) -> None:
            nonlocal raised, until
            if raised is not None:
                return
            try:
                tell(MigrationProgress(**progress))
            except BaseException as error:  # whatever it is, the move ends first
                raised = error
                until = min(until, time.monotonic())

        try:
            found = MoveDone(**self._ask(op, {"spec": spec}, lambda: until, on_progress))
        except (OperationFailedError, HostUnreachableError):
            if raised is not None:
                raise raised from None
            raise
        if raised is not None:
            raise raised
        return found

    def _ask(
        self,
        op: str,
        args: Mapping[str, Any],
        until: Callable[[], float],
        on_progress: Callable[[Mapping[str, Any]], None],
        *,
        grace_s: float = _ABORT_S,
    ) -> Any:
        """Return an answer. Past ``until`` it is called off, and a while later the child killed."""
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
            self._discard()
            reason = self._mask_credentials(f"{in_words(op)} move: {error}")
            raise HostSilentError(self.source.uri, reason) from error
        except BaseException:
            # Interrupted: the next answer would not be ours.
            self._discard()
            raise
        if called_off_at is not None or answer.get("error") == "hangs":
            self._discard()  # it may hear of that only now, and end the next
        return self._result_or_raise(op, answer)

    def _result_or_raise(self, op: str, answer: Mapping[str, Any]) -> Any:
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
        """Return what the child said, a line of it; None: nothing for a while."""
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
        if self._child is None or self._child.has_ended():
            self._discard()
            credential = self.destination.credential
            given = {} if credential is None else {DESTINATION_VARIABLE: credential.to_json()}
            ends = (self.source, self.destination)
            command = (*_CHILD, *(word for end in ends for word in (end.uri, end.machine or "")))
            self._child = ChildProcess(command, self.source.credential, given)
        return self._child

    def _discard(self) -> None:
        self._received = b""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def _mask_credentials(self, reason: str) -> str:
        for end in (self.source, self.destination):
            if end.credential is not None:
                reason = end.credential.mask(reason)
        return shortened(reason, MAX_REASON_LENGTH)
