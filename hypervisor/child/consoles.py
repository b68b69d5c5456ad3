"""Exchange data with a guest over its serial console. Runs in the child process only.

libvirt gives a console as a stream of what the guest writes and what is typed. A stream has no
history (`HostConnection.console_tail` reads the log), and a console has one holder.
"""

from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import libvirt

from hypervisor.errors import HostUnreachableError, OperationFailedError

_LOOK_EVERY_S: Final = 0.005
_PIECE_BYTES: Final = 1 << 14
#: Maximum bytes of one exchange; the rest comes with the next.
_MAX_BYTES: Final = 1 << 16
_NOT_NOW: Final = -2  #: the answer of a stream that would block


@dataclass(slots=True)
class _HeldConsole:
    """The stream of a held console, and the connection that it belongs to."""

    conn: libvirt.virConnect
    stream: libvirt.virStream


class Consoles:
    """The console held on one host; at most one."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._current: _HeldConsole | None = None

    def open(self, conn: libvirt.virConnect, *, vm_id: str, force: bool) -> None:
        """Hold the serial console of a running guest; with ``force``, take it from its holder."""
        self.close()
        domain = conn.lookupByUUIDString(vm_id)
        stream = conn.newStream(libvirt.VIR_STREAM_NONBLOCK)
        domain.openConsole(None, stream, libvirt.VIR_DOMAIN_CONSOLE_FORCE if force else 0)
        self._current = _HeldConsole(conn, stream)

    def exchange(self, conn: libvirt.virConnect, *, typed: str, wait_s: float) -> Mapping[str, Any]:
        """Type into the held console; return the guest's output, waiting up to ``wait_s``."""
        stream = self._held_console(conn).stream
        left = memoryview(base64.b64decode(typed))
        taken, pieces, size = 0, list[bytes](), 0
        deadline = time.monotonic() + wait_s
        while True:
            if taken < len(left):
                sent = stream.send(bytes(left[taken : taken + _PIECE_BYTES]))
                taken += max(0, sent)
            piece = stream.recv(_PIECE_BYTES)
            if piece == _NOT_NOW:
                if pieces or time.monotonic() >= deadline:
                    return _exchange_answer(taken, pieces, ended=False)
                time.sleep(_LOOK_EVERY_S)
            elif not piece:
                self.close()
                return _exchange_answer(taken, pieces, ended=True)
            else:
                pieces.append(piece)
                size += len(piece)
                if size >= _MAX_BYTES:
                    return _exchange_answer(taken, pieces, ended=False)

    def release(self, _: libvirt.virConnect) -> None:
        """Release the held console, if any, at the parent's request."""
        self.close()

    def close(self) -> None:
        """Release the held console, if any."""
        console, self._current = self._current, None
        if console is not None:
            with contextlib.suppress(libvirt.libvirtError):
                console.stream.abort()

    def _held_console(self, conn: libvirt.virConnect) -> _HeldConsole:
        """Return the held console, or raise an error if none is held or its connection broke."""
        if self._current is None:
            raise OperationFailedError("console", "none is held here")
        if self._current.conn is not conn:
            self.close()
            raise HostUnreachableError(self._uri, "the connection broke while a console was held")
        return self._current


def _exchange_answer(taken: int, pieces: list[bytes], *, ended: bool) -> Mapping[str, Any]:
    """Return the answer to a console exchange: bytes typed, output, and whether it ended."""
    content = base64.b64encode(b"".join(pieces)).decode()
    return {"taken": taken, "content": content, "ended": ended}
