"""`--watch`: shows a list again and again."""

import contextlib
import io
import sys
import time
from collections.abc import Callable
from typing import Final

from controller.terminal.output import echo_lines

INTERVAL_S: Final = 2.0


class _OutputBuffer(io.StringIO):
    """A buffer for printed output; tables in it are as wide as the terminal."""

    def isatty(self) -> bool:
        return sys.__stdout__ is not None and sys.__stdout__.isatty()


def watch(show: Callable[[], None], *, interval_s: float = INTERVAL_S) -> None:
    """Show a list repeatedly, in place on a terminal; Ctrl-C ends it without error."""
    with contextlib.suppress(KeyboardInterrupt):
        if not sys.stdout.isatty():
            while True:
                echo_lines(_captured_output(show))
                time.sleep(interval_s)
        from rich.console import Console  # noqa: PLC0415 - `fuga --help` is to be there at once
        from rich.live import Live  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        with Live(console=Console(), auto_refresh=False) as live:
            while True:
                text = newest_lines(_captured_output(show), live.console.height)
                live.update(Text.from_ansi(text), refresh=True)
                time.sleep(interval_s)


def newest_lines(text: str, height: int) -> str:
    """Return the lines of a list that fit the height: the headings and the newest rows."""
    lines = text.splitlines()
    if len(lines) < height:
        return text
    left = max(1, height - 4)
    return "\n".join([*lines[:2], f"… {len(lines) - 2 - left} lines above", *lines[-left:]])


def _captured_output(show: Callable[[], None]) -> str:
    """Run a command and return its output without the last line end."""
    screen = _OutputBuffer()
    with contextlib.redirect_stdout(screen):
        show()
    return screen.getvalue().rstrip("\n")
