"""The IP addresses that the names in hosts' URIs resolve to."""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import urlsplit

#: How long an answer holds; also that there is none.
_LIFETIME_S: Final = 600.0
#: Of one name; a host has a few.
_MAX_ADDRESSES: Final = 8
#: A resolver that hangs holds so many threads, and no poll.
_MAX_LOOKUPS: Final = 4


def resolve(name: str) -> tuple[str, ...]:
    """Return a name's addresses; none if it has none or the resolver fails."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return ()
    return tuple(dict.fromkeys(str(each[4][0]) for each in found))[:_MAX_ADDRESSES]


class AddressCache:
    """Known addresses by name, looked up anew in the background: a poll never waits for them."""

    def __init__(
        self,
        look_up: Callable[[str], tuple[str, ...]] = resolve,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look_up = look_up
        self._now = now
        self._lock = threading.Lock()
        self._known: dict[str, tuple[tuple[str, ...], float]] = {}
        self._pool = ThreadPoolExecutor(_MAX_LOOKUPS, "resolve")

    def addresses_of(self, uri: str) -> tuple[str, ...]:
        """Return what is known of the host in a URI; none of a local one."""
        name = urlsplit(uri).hostname
        if not name:
            return ()
        try:
            return (str(ipaddress.ip_address(name)),)
        except ValueError:
            pass
        with self._lock:
            found, until = self._known.get(name, ((), 0.0))
            now = self._now()
            if now < until:
                return found
            self._known[name] = (found, now + _LIFETIME_S)
        self._pool.submit(self._refresh, name)
        return found

    def close(self) -> None:
        """Begin no other look-up."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _refresh(self, name: str) -> None:
        found = self._look_up(name)
        with self._lock:
            before, until = self._known[name]
            # A resolver that fails for a moment leaves what was known.
            self._known[name] = (found or before, until)
