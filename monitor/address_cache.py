"""A DNS cache of the host names in hosts' URIs."""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import urlsplit

#: Lifetime of an entry, also of an empty one.
_LIFETIME_S: Final = 600.0
#: Maximum addresses of one name.
_MAX_ADDRESSES: Final = 8
#: Maximum threads for look-ups: a hung resolver blocks these, and no poll.
_MAX_LOOKUPS: Final = 4


def resolve(name: str) -> tuple[str, ...]:
    """Return the IP addresses of a host name; empty if it has none or the resolver fails."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return ()
    return tuple(dict.fromkeys(str(each[4][0]) for each in found))[:_MAX_ADDRESSES]


class AddressCache:
    """Caches the addresses of host names; look-ups run in the background."""

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
        """Return the cached IP addresses of the host in a URI.

        Empty for a local URI or a name not resolved yet. Starts a look-up if the entry is too old.
        """
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
        self._pool.submit(self._refresh_entry, name)
        return found

    def close(self) -> None:
        """Cancel the look-ups of host names that have not begun, and start no more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _refresh_entry(self, name: str) -> None:
        """Look up a host name again; its last addresses stay if it has none now."""
        found = self._look_up(name)
        with self._lock:
            before, until = self._known[name]
            # A failed look-up keeps the old addresses.
            self._known[name] = (found or before, until)
