"""h11's parser of HTTP/1.1, with limits on header fields and on chunks.

h11 does work in the event loop for each header line and each chunk. So their numbers are limited,
and chunks are parsed only when the application reads the body.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any, Final

import h11
from h11._readers import ChunkedReader
from h11._receivebuffer import ReceiveBuffer, blank_line_regex

MAX_HEAD_BYTES: Final = 16 * 1024
MAX_HEAD_LINES: Final = 100
#: Number of short chunks allowed in a body. Further chunks need `CHUNK_BYTES` on average.
MAX_SHORT_CHUNKS: Final = 256
CHUNK_BYTES: Final = 1024
#: The API ignores chunk extensions and trailers.
MAX_CHUNK_LINE_BYTES: Final = 256
MAX_TRAILER_BYTES: Final = 1024
#: Chunks parsed before the application reads: a short body is read whole and its connection stays.
_UNREQUESTED: Final = 8
#: Chunks parsed in one turn of the event loop.
_A_TURN: Final = 64
#: A call with both headers is refused: a proxy may see another end of its body (request smuggling).
_ENDS_TWICE: Final = frozenset({b"content-length", b"transfer-encoding"})
_END_OF_HEAD: Final = re.compile(rb"\r?\n\r?\n")


class BoundedConnection(h11.Connection):
    """The server's HTTP parser of one connection."""

    refusal: HTTPStatus = HTTPStatus.BAD_REQUEST
    refusal_detail: str | None = None

    def __init__(self) -> None:
        super().__init__(h11.SERVER, MAX_HEAD_BYTES)
        self._granted = 0

    @property
    def in_chunks(self) -> bool:
        """Whether the rest of a body in chunks is missing."""
        return self.their_state is h11.SEND_BODY and isinstance(self._reader, _Chunks)

    def grant_chunks(self) -> None:
        """Allow as many chunks as one turn of the event loop may parse."""
        self._granted = _A_TURN

    def next_event(self) -> Any:
        """Return the next event, or `NEED_DATA` if no chunk may be parsed now."""
        if self.their_state is h11.IDLE:
            self._check_head(self._receive_buffer)
        elif self.in_chunks:
            if not self._granted:
                return h11.NEED_DATA
            self._granted -= 1
        reader = self._reader  # h11 replaces it on an error
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            if error.error_status_hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
                self.refusal = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            if isinstance(reader, _Chunks):
                self.refusal_detail = reader.excess
            raise
        if isinstance(event, h11.Request):
            if {name for name, _ in event.headers} >= _ENDS_TWICE:
                raise h11.RemoteProtocolError("a length and chunks")
            if isinstance(self._reader, ChunkedReader):
                self._reader = _Chunks()
                self._granted = _UNREQUESTED
        return event

    def send(self, event: Any) -> Any:
        """Return the bytes of an event; an answer before the last chunk closes the connection.

        The header is added here, because h11 would close the connection at once. A reset could then
        overtake the answer, and the caller would lose it.
        """
        sent = super().send(event)
        if not isinstance(event, h11.Response) or not self.in_chunks or sent is None:
            return sent
        if b"\r\nconnection: close\r\n" in sent.lower():
            return sent
        return sent[:-2] + b"connection: close\r\n\r\n"

    def _check_head(self, buffer: ReceiveBuffer) -> None:
        """Refuse a header section that is too long; h11 limits only incomplete ones.

        Slow senders cause many calls, so nothing is copied and no byte is searched twice.
        """
        data = buffer._data
        end = blank_line_regex.search(data, buffer._multiple_lines_search)
        length = len(data) if end is None else end.end()
        if length > MAX_HEAD_BYTES:
            self._refuse_head(f"a header longer than {MAX_HEAD_BYTES} bytes")
        if data.count(b"\n", 0, length) > MAX_HEAD_LINES + 1 + (end is not None):
            self._refuse_head(f"more than {MAX_HEAD_LINES} header fields")

    def _refuse_head(self, reason: str) -> None:
        self.refusal = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        raise h11.RemoteProtocolError(reason, error_status_hint=self.refusal)


class _Chunks(ChunkedReader):
    """Reads the chunks of one body, up to a number that depends on their length."""

    excess: str | None = None  #: why the body was refused

    def __init__(self) -> None:
        super().__init__()
        self._chunks = 0
        self._taken = 0

    def __call__(self, buf: ReceiveBuffer) -> Any:
        if self._reading_trailer:
            start = bytes(buf._data[:MAX_TRAILER_BYTES])
            ends = start.startswith((b"\r\n", b"\n")) or _END_OF_HEAD.search(start)
            if len(start) == MAX_TRAILER_BYTES and not ends:
                self._refuse_body(f"its trailers are longer than {MAX_TRAILER_BYTES} bytes")
        elif self._bytes_in_chunk == 0:
            skipped = len(self._bytes_to_discard)
            start = bytes(buf._data[skipped : skipped + MAX_CHUNK_LINE_BYTES])
            if len(start) == MAX_CHUNK_LINE_BYTES and b"\r\n" not in start:
                self._refuse_body(
                    f"the line before a chunk is longer than {MAX_CHUNK_LINE_BYTES} bytes"
                )
        event = super().__call__(buf)
        if isinstance(event, h11.Data):
            self._chunks += event.chunk_start
            self._taken += len(event.data)
            if self._chunks > MAX_SHORT_CHUNKS + self._taken // CHUNK_BYTES:
                self._refuse_body(
                    f"it has more than {MAX_SHORT_CHUNKS} chunks of fewer than {CHUNK_BYTES} "
                    "bytes; send longer chunks or a Content-Length"
                )
        return event

    def _refuse_body(self, reason: str) -> None:
        self.excess = f"the body was refused: {reason}"
        raise h11.LocalProtocolError(self.excess)
