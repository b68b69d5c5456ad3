"""An operator's command, run here for several hosts at once, each for a limited time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO, Final

#: Environment variables that a command sees in addition to the plain names: the way to the SSH
#: agent, by which commands reach hosts. No token.
_HANDED_ON: Final = ("SSH_AUTH_SOCK",)
#: What a command that is to end is given before it is killed.
GRACE_S: Final = 10.0
#: maximum of bytes in which a line of output is shown; longer lines are split
_LINE_BYTES: Final = 4096
#: The last output is waited for so long: something that the command left running may hold it open.
_OUTPUT_S: Final = 1.0


@dataclass(slots=True)
class _HostCommand:
    """The operator's command that runs for one host."""

    process: subprocess.Popen[bytes]
    reader: threading.Thread
    until: float
    last: list[str] = field(default_factory=list)  #: the last line that it printed, if any
    killed_at: float | None = None
    why: str | None = None  #: why it was ended


class CommandsOnHosts:
    """Runs ``argv HOST`` on hosts and reports their ends.

    Each runs with an empty standard input, and in a session of its own: a Ctrl-C at the terminal
    reaches only the driver of the roll.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        within_s: float,
        report: Callable[[str, str], None],
        grace_s: float = GRACE_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._argv = list(argv)
        self._within_s = within_s
        self._report = report
        self._grace_s = grace_s
        self._now = now
        self._running: dict[str, _HostCommand] = {}
        self._not_begun: dict[str, str] = {}

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts whose command runs, or whose result was not read yet."""
        return (*self._running, *self._not_begun)

    def begin(self, host: str) -> None:
        """Start the command for a host."""
        from registry.db.child_environ import child_environ  # noqa: PLC0415 - slow to import

        try:
            process = subprocess.Popen(
                [*self._argv, host],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=child_environ(_HANDED_ON),
                start_new_session=True,
            )
        except OSError as error:
            self._not_begun[host] = f"the command did not start: {error}"
            return
        last: list[str] = []
        reader = threading.Thread(
            target=self._read_output,
            args=(host, process.stdout, last),
            daemon=True,
            name=f"of-{host}",
        )
        reader.start()
        self._running[host] = _HostCommand(process, reader, self._now() + self._within_s, last)

    def take_results(self) -> dict[str, str | None]:
        """Return the hosts whose command ended since the last call, each with its error or None."""
        ended: dict[str, str | None] = {**self._not_begun}
        self._not_begun.clear()
        for host, each in list(self._running.items()):
            if each.process.poll() is None:
                self._terminate_then_kill(each)
                continue
            del self._running[host]
            each.reader.join(_OUTPUT_S)
            ended[host] = _error_text(each)
        return ended

    def end(self, why: str) -> None:
        """Send SIGTERM to all running commands; ``why`` becomes the error of each."""
        for each in self._running.values():
            self._terminate_command(each, why)

    def _terminate_then_kill(self, command: _HostCommand) -> None:
        """Terminate a command after its time limit, and kill it after the grace period."""
        now = self._now()
        if command.killed_at is None:
            if now > command.until:
                self._terminate_command(command, f"it took longer than {self._within_s:g} s")
        elif now > command.killed_at + self._grace_s:
            _signal_process_group(command.process, signal.SIGKILL)

    def _terminate_command(self, command: _HostCommand, why: str) -> None:
        if command.killed_at is None:
            command.killed_at, command.why = self._now(), why
            _signal_process_group(command.process, signal.SIGTERM)

    def _read_output(self, host: str, stream: IO[bytes], last: list[str]) -> None:
        """Report each line of a command's output; keep the last one for its error."""
        while piece := stream.readline(_LINE_BYTES):
            line = piece.decode(errors="replace").rstrip()
            if line:
                last[:] = [line]
                self._report(host, line)


def _signal_process_group(process: subprocess.Popen[bytes], signum: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended
        os.killpg(process.pid, signum)


def _error_text(command: _HostCommand) -> str | None:
    """Return why a command failed, with its last line of output; None if it succeeded."""
    status = command.process.returncode
    if status == 0 and command.why is None:
        return None
    if command.why is None:
        command.why = f"exit status {status}" if status > 0 else signal.Signals(-status).name
    return ": ".join([command.why, *command.last])
