"""The command's own streams: a reader that leaves, a full disk, a terminal of few characters."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO, cast

from controller.terminal.errors import CliError

READER_LEFT = 128 + 13  #: what a shell says of a program that SIGPIPE ended


def guard_streams() -> None:
    """Let stdout and stderr of this process say what they cannot do, in place of a traceback.

    Characters that the terminal's encoding lacks are written as escapes.  Output that nobody
    reads any more ends the command with the status `READER_LEFT`; output that cannot be written
    raises `CliError`; messages that cannot be written are dropped.
    """
    for name, kind in (("stdout", _Output), ("stderr", _Messages)):
        stream = cast("TextIO | None", getattr(sys, name))
        if stream is None:  # closed by the shell: no file of ours may get its number
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
        elif isinstance(stream, io.TextIOWrapper):
            setattr(sys, name, _guarded(stream, kind))


def _guarded(stream: io.TextIOWrapper, kind: type[_Output]) -> io.TextIOWrapper:
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(kind(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


class _Output(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self._drop_the_rest()
            return self._lost(error, len(data))

    def _drop_the_rest(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)

    def _lost(self, error: OSError, _size: int) -> int:
        if isinstance(error, BrokenPipeError):
            sys.exit(READER_LEFT)
        raise CliError(f"cannot write the output: {error.strerror}") from error


class _Messages(_Output):
    def _lost(self, _error: OSError, size: int) -> int:
        return size
