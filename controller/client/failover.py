"""Several addresses of one API: where connecting to one fails, the next is tried."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

import httpx

#: With others left to try, so that an address that hangs costs little.
_CONNECT_S: Final = 3.0


class FailoverTransport(httpx.BaseTransport):
    """Sends each call to the address that answered last; if it does not connect, to the next one.

    A call goes to another address by itself only while none of it was sent. One that was sent
    and lost is for the caller to judge; a repetition begins at the next address.

    Parameters
    ----------
    urls : sequence of str
        Of APIs with one register center, the preferred one first.
    transport : httpx.BaseTransport
        Carries the calls.
    """

    def __init__(self, urls: Sequence[str], transport: httpx.BaseTransport) -> None:
        self._urls = [httpx.URL(url) for url in urls]
        self._transport = transport
        self._at = 0
        self._moving_on = threading.Lock()
        self._faults: dict[int, str] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a call. Raises the last address's error if none can be connected to."""
        first = self._at
        for left in range(len(self._urls) - 1, -1, -1):
            at = (first - 1 - left) % len(self._urls)
            self._redirect_to_address(request, at, left)
            try:
                response = self._transport.handle_request(request)
            except httpx.TransportError as error:
                self._faults[at] = str(error) or type(error).__name__
                with self._moving_on:
                    if self._at == at:  # or another thread has moved on
                        self._at = (at + 1) % len(self._urls)
                if left == 0 or not is_surely_unsent(error):
                    raise
            else:
                self._faults.pop(at, None)
                return response
        raise AssertionError  # pragma: no cover - the last address returns or raises

    def errors_text(self, otherwise: str) -> str:
        """Return the connection error of each address as text; for a single one, ``otherwise``."""
        if len(self._urls) == 1:
            return otherwise
        return "; ".join(
            f"{url}: {self._faults.get(number, 'not tried')}"
            for number, url in enumerate(self._urls)
        )

    def close(self) -> None:
        """Close the connections to all addresses of the API."""
        self._transport.close()

    def _redirect_to_address(self, request: httpx.Request, at: int, left: int) -> None:
        """Change a request for the first address into one for another address."""
        if len(self._urls) == 1:
            return
        first, to = self._urls[0], self._urls[at]
        path = request.extensions.setdefault("path_below", _path_below(first, request.url))
        request.url = to.copy_with(raw_path=to.raw_path.rstrip(b"/") + path)
        request.headers["Host"] = to.netloc.decode("ascii")
        given = request.extensions.setdefault(
            "timeout_given", request.extensions.get("timeout") or {}
        )
        shortest = min(_CONNECT_S, given.get("connect") or _CONNECT_S)
        timeout = given | {"connect": shortest} if left else given
        request.extensions = {**request.extensions, "timeout": timeout}


def is_surely_unsent(error: httpx.TransportError) -> bool:
    """Return whether an error proves that no part of a call was received."""
    return isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)


def _path_below(base: httpx.URL, url: httpx.URL) -> bytes:
    """Return the path and query of a URL below a base URL."""
    return url.raw_path.removeprefix(base.raw_path.rstrip(b"/"))
