"""Processes of a site: started, killed, paused and ended by pid, and gone when we are gone."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.servers.running import eventually

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
WAIT_S = 600.0
_RESTART_S = 2.0  #: as in the units of deploy/systemd
_NO_DATABASE = "the register center is not available"
_LINES_LOST = '"log_lines_lost"'


def _end_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def state_of(pid: int) -> str:
    """One letter, as in `ps`; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


class Managed:
    """A process that the site keeps, with its output in a file.

    Start it only from the main thread: it ends when the thread that started it does.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        env: Mapping[str, str],
        ready: str,
        user: str | None = None,
    ) -> None:
        self.name = name
        self._command = list(command)
        self._log = log
        self._env = dict(env)
        self._ready = ready
        self._user = user
        self._began_at = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, **env: str) -> None:
        """Start it, in a session of its own; `wait_until_ready` tells when it serves."""
        assert not self.running, f"{self.name} runs already"
        with self._log.open("ab") as output:
            self._began_at = output.tell()
            self._process = subprocess.Popen(
                self._command,
                env={**self._env, **env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=self._user,
                group=self._user,
                extra_groups=None if self._user is None else [],
                preexec_fn=_end_with_parent,  # noqa: PLW1509 - no threads hold locks it needs
            )

    def said(self) -> str:
        """What it wrote since it was last started."""
        with self._log.open("rb") as output:
            output.seek(self._began_at)
            return output.read().decode(errors="replace")

    @property
    def is_ready(self) -> bool:
        said = self.said()
        # The line may be among those that a full disk took; healing asks /readyz of all.
        return self._ready in said or _LINES_LOST in said

    def wait_until_ready(self) -> None:
        def ready() -> bool:
            assert self.running, f"{self.name} ended: {self.said()[-2000:]}"
            return self.is_ready

        eventually(ready, within_s=WAIT_S)

    def return_to_service(self) -> None:
        """Start it as a service manager would, and wait until it serves."""
        self.start()

        def ready() -> bool:
            self.start_again_without_database()
            return self.is_ready

        eventually(ready, within_s=WAIT_S, every_s=_RESTART_S)

    def start_again_without_database(self, **env: str) -> None:
        """Start it again, as a service manager would, if it ended for want of the database."""
        if not self.running:
            said = self.said()
            assert _NO_DATABASE in said, f"{self.name} ended: {said[-2000:]}"
            self.start(**env)

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.end(signal.SIGKILL)

    def end(self, number: int) -> None:
        """Tell it to end, and wait until it has."""
        self.signal(number)
        assert self._process is not None
        self._process.wait(WAIT_S)

    def pause(self) -> None:
        """SIGSTOP, and wait until it has stopped."""
        self.signal(signal.SIGSTOP)
        self.wait_until_paused()

    def wait_until_paused(self) -> None:
        eventually(lambda: state_of(self.pid) == "T", within_s=WAIT_S, every_s=0.05)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def close(self) -> None:
        """Be gone, whatever state it is in."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                self.signal(signal.SIGKILL)
            assert self._process is not None
            self._process.wait(WAIT_S)


def fuga_command(role: str) -> list[str]:
    return [str(Path(sys.executable).with_name("fuga")), role]


def inherited() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("FUGA_")}
