"""Standard output: a reader that leaves, a full disk, a terminal of few characters."""

from __future__ import annotations

import io
import os
import sys
from typing import Any

READER_LEFT = 128 + 13  #: the exit status that shells give a program ended by SIGPIPE


class OutputLostError(OSError):
    """Standard output takes no more. Without an ``errno``: Typer keeps a broken pipe to itself."""

    @property
    def reader_left(self) -> bool:
        """Whether the reader closed the pipe, which is not reported as an error."""
        return isinstance(self.__cause__, BrokenPipeError)


def guard_output() -> None:
    """Make standard output raise `OutputLostError`, and escape what its encoding lacks."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        _replace_stdout(sys.stdout.fileno(), sys.stdout)
    elif sys.stdout is None:  # closed by the shell: no file of ours may get its number
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - for good


def keep_output_clean() -> None:
    """Keep output of C libraries out of standard output, if it is the process's own.

    Libraries in C print where they like: HiGHS writes a line of its own now and then, with all
    its output switched off. It would spoil what a program reads.
    """
    try:
        is_process_wide = isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.fileno() == 1
    except (OSError, ValueError):
        return
    if is_process_wide:
        own = os.dup(1)
        _replace_stdout(own, sys.stdout)
        os.dup2(2, 1)


def _replace_stdout(file: int, like: Any) -> None:
    """Replace standard output by a guarded one that writes to a descriptor."""
    like.flush()
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_GuardedOutput(file, "w", closefd=False)),
        encoding=like.encoding,
        errors="backslashreplace",
        line_buffering=like.line_buffering,
        write_through=like.write_through,
    )


def drop_output() -> None:
    """Discard unwritten output, so that the process ends without an error message."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


class _GuardedOutput(io.FileIO):
    """A file that raises `OutputLostError` when it takes no more."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OutputLostError(f"cannot write the output: {error.strerror}") from error
