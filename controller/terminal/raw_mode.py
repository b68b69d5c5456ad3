"""The terminal of somebody who types to a VM: every key is the guest's, and it is given back."""

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
    """Let every key through as it is, Ctrl-C too; at the end it is as it was, however it ends.

    A signal that would end the process raises `SystemExit` inside the block.
    """
    before = termios.tcgetattr(fileno)
    handlers = {number: signal.signal(number, _end) for number in _ENDING}
    try:
        tty.setraw(fileno)
        yield
    finally:
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)  # not between here and the last line
        termios.tcsetattr(fileno, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _end(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)
