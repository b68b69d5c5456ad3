"""Downloads a file from a web server that may be slow, silent or hostile.

A download checks its deadlines, its claim and requests to stop once a second, with or without new
bytes. It passes on bytes as received, in small pieces, and refuses compressed bodies, which could
unpack to a million times their length.

Every redirect is checked against the allowed URLs. No proxy of the environment is used, and no
credentials are sent.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import urljoin

import httpx

from registry.images import check_image_url
from workers.errors import FetchFailedError, RemoteFileMissingError

_MAX_REDIRECTS: Final = 5
_CHECK_EVERY_S: Final = 1.0
PIECE_BYTES: Final = 1 << 20
_GONE: Final = (404, 410)


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadTimeouts:
    """Time limits for a server."""

    piece_s: float  #: for each MiB, and for the first bytes
    whole_s: float
    announce: Callable[[int], None]  #: gets the announced size; raises if it is too large
    check: Callable[
        [int], None
    ]  #: gets the number of bytes received; an error that it raises ends the download


def download(
    url: str, prefixes: Collection[str], take: Callable[[bytes], None], timeouts: DownloadTimeouts
) -> None:
    """Download a file over HTTP, and pass each piece of its content to ``take``.

    Raises
    ------
    FetchFailedError
        If the download fails or is too slow; `RemoteFileMissingError` if the server lacks the file.
    ImageUrlRefusedError
        If the operator does not allow the URL.

    Errors that ``take`` and ``timeouts`` raise end the download.
    """
    asyncio.run(_Download(url, prefixes, take, timeouts).run())


class _Download:
    """One download of a file, with its progress and time limits."""

    def __init__(
        self,
        url: str,
        prefixes: Collection[str],
        take: Callable[[bytes], None],
        timeouts: DownloadTimeouts,
    ) -> None:
        self._url = url
        self._prefixes = prefixes
        self._take = take
        self._timeouts = timeouts
        self._received_bytes = 0
        self._began = self._piece_at = time.monotonic()
        self._piece_from = 0

    async def run(self) -> None:
        """Receive the file; raise the error of the server or of an exceeded limit."""
        receiving = asyncio.create_task(self._receive_body())
        try:
            while not receiving.done():
                await asyncio.wait({receiving}, timeout=_CHECK_EVERY_S)
                if not receiving.done():
                    self._check_limits()
        finally:
            receiving.cancel()
            await asyncio.wait({receiving})
            error = None if receiving.cancelled() else receiving.exception()
        if isinstance(error, httpx.HTTPError):
            raise FetchFailedError(self._url, str(error) or repr(error)) from error
        if error is not None:
            raise error

    async def _receive_body(self) -> None:
        """Pass each piece of the response's body to the receiver, and check the limits."""
        async with self._open_response() as response:
            # Raw bytes: nothing is decompressed.
            async for piece in response.aiter_raw():
                self._received_bytes += len(piece)
                self._take(piece)
                self._check_limits()

    def _check_limits(self) -> None:
        """Check time and size of the download so far; raise the error that ends it."""
        now, timeouts = time.monotonic(), self._timeouts
        self._timeouts.check(self._received_bytes)
        if now - self._began > timeouts.whole_s:
            raise FetchFailedError(
                self._url,
                f"{self._received_bytes} bytes came in {timeouts.whole_s:g} s,"
                " the whole time for it",
            )
        if self._received_bytes - self._piece_from >= PIECE_BYTES:
            self._piece_from, self._piece_at = self._received_bytes, now
        elif now - self._piece_at > timeouts.piece_s:
            raise FetchFailedError(
                self._url,
                f"{self._received_bytes - self._piece_from} bytes came in {timeouts.piece_s:g} s,"
                f" the time for {PIECE_BYTES} of them (FUGA_UPLOAD_PIECE_DEADLINE_S)",
            )

    @asynccontextmanager
    async def _open_response(self) -> AsyncIterator[httpx.Response]:
        """Open the file's URL, following redirects that the operator allows."""
        url = self._url
        # The machine's certificate authorities, which may include a site's own; httpx would use
        # certifi's.
        authorities = ssl.create_default_context()
        patience_s = self._timeouts.piece_s
        async with httpx.AsyncClient(
            trust_env=False, timeout=patience_s, verify=authorities
        ) as client:
            for _ in range(_MAX_REDIRECTS + 1):
                check_image_url(url, self._prefixes)
                headers = {"Accept-Encoding": "identity"}
                async with client.stream("GET", url, headers=headers) as response:
                    if response.is_success:
                        self._check_response(response)
                        yield response
                        return
                    if response.status_code in _GONE:
                        raise RemoteFileMissingError(url, response.status_code)
                    if not response.has_redirect_location:
                        raise FetchFailedError(url, f"it answers {response.status_code}")
                    url = urljoin(url, response.headers["Location"])
            raise FetchFailedError(url, f"more than {_MAX_REDIRECTS} redirects")

    def _check_response(self, response: httpx.Response) -> None:
        """Check that a response is not compressed, and announce its length."""
        packed = response.headers.get("Content-Encoding", "identity").strip()
        if packed.lower() not in ("", "identity"):
            raise FetchFailedError(
                self._url,
                f"it is compressed (Content-Encoding: {packed[:40]!r}), which was not requested",
            )
        announced = response.headers.get("Content-Length", "")
        if announced.isdecimal():
            self._timeouts.announce(int(announced[:20]))
