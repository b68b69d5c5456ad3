"""Standard output for ourselves alone.

Libraries in C print where they like: HiGHS writes a line of its own to standard
output now and then, with all its output switched off. Where a program reads our
standard output, such a line would spoil an answer.
"""

from __future__ import annotations

import io
import os
import sys
from typing import BinaryIO


def take_stdout() -> BinaryIO:
    """Return the standard output of this process; what others print goes to standard error."""
    own = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return own


def keep_stdout_clean() -> None:
    """Let nobody but Python code write to standard output, if it is the process's own."""
    printed = sys.stdout
    try:
        is_process_wide = isinstance(printed, io.TextIOWrapper) and printed.fileno() == 1
    except (OSError, ValueError):
        return
    if is_process_wide:
        printed.flush()
        sys.stdout = io.TextIOWrapper(
            take_stdout(),
            encoding=printed.encoding,
            errors=printed.errors,
            line_buffering=bool(printed.line_buffering),
        )
