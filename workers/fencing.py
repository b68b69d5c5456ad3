"""Fencing: the operator's command is the only proof that a silent host is off.

The command is a program with arguments, never a shell. Exit status 0 means that the host is off and
stays off until an operator switches it on. Another status, or a program that had to be killed,
proves nothing. If a worker dies before the end, the next one runs the command again.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Final, Self
from uuid import UUID

import structlog

from plain_text import plain, plain_lines
from registry import ClaimLostError
from registry.db.child_environ import child_environ
from registry.hosts import FenceOrder
from workers.context import TaskOutcome, WorkerContext

log: Final = structlog.get_logger(__name__)

_MAX_OUTPUT_BYTES: Final = 1000
_CHUNK_BYTES: Final = 65_536
_PIPE_BYTES: Final = 1 << 20  #: at least what a pipe holds


def fence_host(host_id: UUID, context: WorkerContext) -> TaskOutcome:
    """Fence one host, while this worker holds the claim."""
    if context.stopping.is_set():
        return TaskOutcome.NOT_OURS
    fencing = context.registry.fencing
    lease_s = context.fence_timeout_s + context.lease_s
    order = fencing.claim(host_id, context.owner, lease_s)
    if order is None:
        return TaskOutcome.NOT_OURS
    bound = log.bind(host=order.host)
    try:
        context.checkpoint("fence.before_command")
        fencing.extend_claim(order, lease_s)
        trouble = _run_fence_command(order, context)
        context.checkpoint("fence.after_command")
        if trouble is not None:
            fencing.record_failure(order, trouble)
            bound.error("fencing_failed", alert=True, error=trouble)
            return TaskOutcome.FAILED
        freed = fencing.record_success(order)
    except ClaimLostError as error:
        bound.warning("fencing_lost", error=str(error))
        return TaskOutcome.CLAIM_LOST
    bound.warning("host_fenced", vms=freed)
    return TaskOutcome.DONE


def _run_fence_command(order: FenceOrder, context: WorkerContext) -> str | None:
    """Run the operator's fencing command; return the error, or None if the host is off."""
    if not context.fence_command:
        return "no command is set: FUGA_FENCE_COMMAND"
    command = fence_command_line(context.fence_command, order)
    try:
        return run_program(command, env=child_environ(), timeout_s=context.fence_timeout_s)
    except (OSError, ValueError) as error:  # ValueError: what no program can be given, as NUL
        return plain(f"{command[0]} cannot be run: {getattr(error, 'strerror', error)}")


def fence_command_line(command: Sequence[str], order: FenceOrder) -> list[str]:
    """Substitute target and host in a fence command's arguments, but not in its program."""
    program, *arguments = command
    return [
        program,
        *(
            argument.replace("{host}", order.host).replace("{target}", order.target)
            for argument in arguments
        ),
    ]


def run_program(command: Sequence[str], *, env: Mapping[str, str], timeout_s: float) -> str | None:
    """Run a fencing program; return why it failed, with its last output; None on success.

    Control characters of the output are escaped: no database and no terminal takes them all.
    """
    with _LastOutput() as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output.writer,
            stderr=subprocess.STDOUT,
            env=dict(env),
            start_new_session=True,
        )
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"{command[0]} took longer than {timeout_s:g} s and was killed"
    if status == 0:
        return None
    said = plain_lines(output.kept.decode(errors="replace").strip())
    how = f"ended with status {status}" if status > 0 else f"was ended by signal {-status}"
    return f"{command[0]} {how}: {said or 'it wrote nothing'}"


class _LastOutput:
    """A pipe whose last output is kept, and no more, however much a program writes.

    At the end the pipe closes, although processes that the program left behind may hold it open.
    """

    def __init__(self) -> None:
        self.kept = b""
        self._reader, self.writer = os.pipe()
        self._stop_reader, self._stop_writer = os.pipe()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.writer)
        os.close(self._stop_writer)
        self._thread.join()
        os.close(self._reader)
        os.close(self._stop_reader)

    def _read(self) -> None:
        """Read until nobody holds the pipe, or once the program has ended, until it is empty."""
        left = _PIPE_BYTES  # after the end: as much as the program can have left in the pipe
        while left > 0:
            ready, _, _ = select.select([self._reader, self._stop_reader], [], [])
            if self._reader not in ready:
                return
            chunk = os.read(self._reader, _CHUNK_BYTES)
            if not chunk:
                return
            self.kept = (self.kept + chunk)[-_MAX_OUTPUT_BYTES:]
            if self._stop_reader in ready:
                left -= len(chunk)
