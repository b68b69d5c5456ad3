"""A stream for log lines that never raises: it writes a line or loses it."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Lock
from typing import TextIO


class LogStream:
    """Writes whole lines; loses them if the disk is full or a pipe has no reader.

    When writing works again, a ``notice`` with the number of lost lines comes first.
    """

    def __init__(self, stream: TextIO, notice: Callable[[int, str], str]) -> None:
        self._stream = stream
        self._notice = notice
        self._lock = Lock()
        self._lost = 0
        self._reason = ""
        self._cut = False  #: whether the last line was cut off
        try:
            self._descriptor: int | None = stream.fileno()
        except (OSError, ValueError, AttributeError):  # one in memory
            self._descriptor = None

    def write(self, text: str) -> int:
        """Write one or more whole lines of the log, or lose them."""
        with self._lock:
            try:
                if self._lost:
                    self._write_line(self._notice(self._lost, self._reason) + "\n")
                    self._lost = 0
                self._write_line(text)
            except (OSError, ValueError) as error:  # ValueError: it is closed
                self._lost += text.count("\n") or 1
                self._reason = getattr(error, "strerror", None) or str(error)
        return len(text)

    def flush(self) -> None:
        """Do nothing, as log lines are not buffered."""

    def _write_line(self, text: str) -> None:
        """Write a line of the log; note whether the disk or pipe took it only in part."""
        if self._descriptor is None:
            self._stream.write(text)
            self._stream.flush()
            return
        # Past the stream's own buffer, which would keep a line that failed and fail again.
        data = memoryview(f"{chr(10) * self._cut}{text}".encode(errors="backslashreplace"))
        while data:
            written = os.write(self._descriptor, data)
            data = data[written:]
            self._cut = len(data) > 0
