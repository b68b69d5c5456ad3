"""Pages that are equal for all callers: built once, compressed, with an ETag."""

from __future__ import annotations

import gzip
import hashlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

#: Shorter pages are not compressed: they fit a packet.
_PACKED_FROM_BYTES: Final = 1_400
#: Part of a long page that is copied into a connection's buffer at a time.
_PIECE_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class _PackedPage:
    """The content of a page, plain and compressed."""

    plain: bytes
    packed: bytes | None
    tag: str


class _ChunkedResponse(Response):
    """Sends shared content in pieces, without a full copy for each slow reader."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        body = memoryview(self.body)
        for start in range(0, len(body) or 1, _PIECE_BYTES):
            piece = bytes(body[start : start + _PIECE_BYTES])
            more = start + _PIECE_BYTES < len(body)
            await send({"type": "http.response.body", "body": piece, "more_body": more})


class StaticPage:
    """One page with its ETag; a caller that has this version gets 304 without a body.

    Parameters
    ----------
    make : callable
        Returns the content; called once, in a thread, at the first request.
    media_type : str
        The type of the content.
    headers : Mapping[str, str]
        Further headers of the answer.
    """

    def __init__(
        self, make: Callable[[], str], media_type: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self._make = make
        self._media_type = media_type
        self._headers = headers or {}
        self._making = threading.Lock()
        self._page: _PackedPage | None = None

    async def answer(self, request: HttpRequest) -> Response:
        """Answer a call with the page, compressed if accepted, or 304 if its caller has it."""
        made = self._page
        if made is None:
            made = await run_in_threadpool(self._packed_page)
        headers = Headers(scope=request.scope)
        response_headers = {
            "Cache-Control": "no-cache",  # cache it, but revalidate it
            **self._headers,
            "ETag": made.tag,
            "Vary": "Accept-Encoding",
        }
        if made.tag in headers.get("if-none-match", ""):
            return Response(status_code=304, headers=response_headers)
        if made.packed is not None and "gzip" in headers.get("accept-encoding", ""):
            response_headers["Content-Encoding"] = "gzip"
            return _ChunkedResponse(
                made.packed, media_type=self._media_type, headers=response_headers
            )
        return _ChunkedResponse(made.plain, media_type=self._media_type, headers=response_headers)

    def _packed_page(self) -> _PackedPage:
        """Return the page; make and compress it at the first call."""
        with self._making:
            if self._page is None:
                self._page = _compress_page(self._make().encode())
            return self._page


def _compress_page(plain: bytes) -> _PackedPage:
    # A weak tag, because it is the same for both forms.
    tag = f'W/"{hashlib.sha256(plain).hexdigest()[:24]}"'
    packed = gzip.compress(plain, mtime=0) if len(plain) >= _PACKED_FROM_BYTES else None
    return _PackedPage(plain, packed, tag)
