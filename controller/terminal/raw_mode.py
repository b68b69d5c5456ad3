"""Raw mode of a terminal: every key goes to the guest, and the mode is restored."""

from __future__ import annotations

import signal
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

#: Signals that end a process, and would leave the terminal as it is.
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT)


@contextmanager
def raw_terminal(fileno: int) -> Iterator[None]:
    """Pass every key through, Ctrl-C too, and restore the terminal at the end of the block.

    A signal that would end the process raises `SystemExit` inside the block.
    """
    before = termios.tcgetattr(fileno)
    handlers = {number: signal.signal(number, _exit_on_signal) for number in _ENDING}
    try:
        tty.setraw(fileno)
        yield
    finally:
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)  # not between here and the last line
        termios.tcsetattr(fileno, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _exit_on_signal(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)
