"""A command run at a terminal, for suites that type."""

from __future__ import annotations

import os
import select
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.servers.running import FUGA

_PATIENCE_S = 120.0


class Terminal:
    """A pseudo-terminal with `fuga` at it."""

    def __init__(self, words: tuple[str, ...], env: Mapping[str, str]) -> None:
        self._master, self._slave = os.openpty()
        self.before = self.settings()
        self.shown = b""
        # As at a terminal, though the tests run in the background of a script.
        hearing_ctrl_c = ["env", "--default-signal=INT"]
        self._process = subprocess.Popen(
            [*hearing_ctrl_c, FUGA, *words],
            env=dict(env),
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: int) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)

    def settings(self) -> list[Any]:
        return termios.tcgetattr(self._slave)

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def until(self, wanted: bytes, *, within_s: float = _PATIENCE_S) -> None:
        """Read until that is shown."""
        deadline = time.monotonic() + within_s
        while wanted not in self.shown:
            assert time.monotonic() < deadline, self.shown
            self._read(0.2)
            assert wanted in self.shown or self._process.poll() is None or self._more(), self.shown

    def ended(self) -> int:
        """Return its exit status, once it has ended; all that it showed has been read."""
        deadline = time.monotonic() + _PATIENCE_S
        while self._process.poll() is None:
            assert time.monotonic() < deadline, self.shown
            self._read(0.05)
        while self._more():
            self._read(0)
        return self._process.returncode

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._master)
        os.close(self._slave)

    def _more(self) -> bool:
        return bool(select.select([self._master], [], [], 0)[0])

    def _read(self, wait_s: float) -> None:
        if select.select([self._master], [], [], wait_s)[0]:
            self.shown += os.read(self._master, 1 << 16)


@contextmanager
def at_a_terminal(*words: str, env: Mapping[str, str]) -> Iterator[Terminal]:
    terminal = Terminal(words, env)
    try:
        yield terminal
    finally:
        terminal.close()
