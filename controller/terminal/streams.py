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
        """Whether nobody reads any more, which is no failure that anybody wants to read about."""
        return isinstance(self.__cause__, BrokenPipeError)


def guard_output() -> None:
    """Let standard output raise `OutputLostError`, and escape what its encoding lacks."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.flush()
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_Guarded(sys.stdout.fileno(), "w", closefd=False)),
            encoding=sys.stdout.encoding,
            errors="backslashreplace",
            line_buffering=sys.stdout.line_buffering,
            write_through=sys.stdout.write_through,
        )
    elif sys.stdout is None:  # closed by the shell: no file of ours may get its number
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - for good


def drop_output() -> None:
    """Let what is still to be written go nowhere, so that the end of the process is silent."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


class _Guarded(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OutputLostError(f"cannot write the output: {error.strerror}") from error
