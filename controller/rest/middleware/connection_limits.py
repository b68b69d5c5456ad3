"""Limits on connections, per address and in total.

Some connections are reserved for addresses that have none. When the others are taken, a new
connection replaces an idle one of the address that holds most.

Connections are counted when they are accepted, before TLS and HTTP, so half-open ones count, too.
Asyncio accepts by calling `accept` of the listening socket, so that method refuses connections.
"""

from __future__ import annotations

import asyncio
import errno
import heapq
import ipaddress
import resource
import socket
import struct
import sys
import time
import weakref
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import structlog

from controller.rest.middleware.log_throttle import LogThrottle
from controller.rest.middleware.peer_addresses import as_ipv4, network_of, site_of
from controller.rest.middleware.rate_limits import MAX_KEYS, Buckets, Rate

#: File descriptors kept for other uses than callers' connections: database, images, logs.
RESERVED_FILES: Final = 256
#: Upper bound of the file limit: some systems have a hard limit of a billion.
MAX_FILES: Final = 65_536
HANDSHAKE_S: Final = 10.0
#: Time for the end of TLS, including the rest of an answer, whose progress `protocol` checks.
GOODBYE_S: Final = 600.0
#: Connections accepted in one turn of the event loop; calls under way need turns, too.
_MAX_ACCEPTED_PER_TURN: Final = 16
#: Time per turn for refusing: as long as all else took since the last turn, within these bounds.
# Each call needs some twenty turns, so a turn must stay short.
_MIN_REFUSING_S: Final = 0.0002
_MAX_REFUSING_S: Final = 0.001
#: Asyncio accepts again after a second; until then there is nothing to accept.
_RETRY_S: Final = 0.9
_NO_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
#: SO_LINGER value for closing with a reset: nothing of a refused connection is kept.
_LINGER_RESET: Final = struct.pack("ii", 1, 0)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits on the connections of one API process."""

    in_all: int
    per_address: int
    #: Proxies speak for many callers, so only the total limits them.
    unlimited: Collection[ipaddress.IPv4Network | ipaddress.IPv6Network] = ()


#: Share of all connections that one /48 of IPv6 may hold: it contains 65,536 networks.
_OF_ONE_SITE: Final = 0.75
#: Share of all connections that is kept for addresses without one.
_FOR_NEW_ADDRESSES: Final = 0.05
#: Number of networks with most connections that are searched for an idle one.
_SEARCHED: Final = 8
UNLIMITED: Final = ConnectionLimits(in_all=sys.maxsize, per_address=sys.maxsize)


class LimitedListener(socket.socket):
    """A listening socket that limits its connections, once limits are set."""

    _clock = staticmethod(time.monotonic)

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._limits = UNLIMITED
        self._refused: Callable[[str], None] = lambda _reason: None
        self._unlimited: dict[str, bool] = {}  #: by address; parsing is slow
        self._open = 0
        self._of_addresses: Counter[str] = Counter()
        self._connections: dict[str, weakref.WeakSet[CountedConnection]] = {}  #: by network
        self._sparing = LogThrottle()
        self._failed_at = float("-inf")
        self._turn = 0  #: number of connections accepted in this turn of the event loop
        self._turn_ends_at = 0.0  #: time at which refusing stops in this turn
        self._turn_ended_at = float("-inf")
        self._arrivals = Buckets(Rate(per_s=sys.maxsize, burst=sys.maxsize))

    def set_limits(
        self, limits: ConnectionLimits, refused: Callable[[str], None] | None = None
    ) -> None:
        """Set the limits, and the function that is called with the reason of each refusal."""
        self._limits = limits
        self._unlimited.clear()
        self._refused = refused or self._refused
        # A caller that connects and closes at once counts as one that stays.
        rate = Rate(per_s=limits.per_address, burst=2 * limits.per_address)
        self._arrivals = Buckets(rate)

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept the next connection that is within the limits; refuse others."""
        if not self._turn:
            now = self._clock()
            others_s = max(_MIN_REFUSING_S, now - self._turn_ended_at)
            self._turn_ends_at = now + min(others_s, _MAX_REFUSING_S)
        self._turn += 1
        while self._turn <= _MAX_ACCEPTED_PER_TURN:
            connection, address = self._accept_next()
            reason = self._reason_to_refuse(address)
            if reason is None:
                return self._count_connection(connection, address), address
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
            connection.close()
            self._log_refused(reason, address)
            if self._clock() >= self._turn_ends_at:
                break
        self._reset_turn()
        raise BlockingIOError(errno.EAGAIN, "calls under way get their turn")

    def _reset_turn(self) -> None:
        """Begin a new turn: the event loop serves its calls before the next `accept`."""
        self._turn, self._turn_ended_at = 0, self._clock()

    def _accept_next(self) -> tuple[socket.socket, Any]:
        """Accept the next connection; without free file descriptors, let asyncio pause once."""
        try:
            connection, address = super().accept()
            return connection, (as_ipv4(str(address[0])), *address[1:])
        except OSError as error:
            self._reset_turn()
            if error.errno not in _NO_FILES:
                raise
            # Asyncio logs this error and waits a second, but continues this loop at once.
            now = time.monotonic()
            if now - self._failed_at < _RETRY_S:
                raise BlockingIOError(errno.EAGAIN, "no files") from error
            self._failed_at = now
            raise

    @property
    def is_crowded(self) -> bool:
        """Whether half of the connections that the process may have are open."""
        return 2 * self._open > self._limits.in_all

    def _reason_to_refuse(self, address: Any) -> str | None:
        """Return why a connection of an address is refused; None if it is within the limits."""
        key = network_of(str(address[0]))
        if self._is_unlimited(address):
            return (
                None if self._has_room(0) or self._close_idle_connection(()) else "too many in all"
            )
        if self._of_addresses[key] >= self._limits.per_address:
            return "too many of one address"
        site = site_of(str(address[0]))
        if site is not None and self._of_addresses[site] >= self._limits.in_all * _OF_ONE_SITE:
            return "too many of one network"
        if self._arrivals.take(key):
            return "too often from one address"
        keys = (key,) if site is None else (key, site)
        if self._has_room(self._of_addresses[key]) or self._close_idle_connection(keys):
            return None
        return "too many in all"

    def _has_room(self, held: int) -> bool:
        """Return whether an address that holds this many connections may have one more."""
        kept = int(self._limits.in_all * _FOR_NEW_ADDRESSES) if held else 0
        return self._open < self._limits.in_all - kept

    def _close_idle_connection(self, keys: tuple[str, ...]) -> bool:
        """Close the longest idle connection of the address that holds most.

        Return False if no address holds more than the new one would then hold.
        """
        for network in heapq.nlargest(_SEARCHED, self._connections, self._connection_counts):
            waiting = [
                (each.waiting_since, id(each), each)
                for each in self._connections[network]
                if each.waiting_since is not None
            ]
            if not waiting:
                continue
            victim = min(waiting)[2]
            if not self._holds_more_connections(victim.keys, keys):
                return False
            victim.shut_down()
            self._log_refused("gave way to another address", (network,))
            return True
        return False

    def _connection_counts(self, network: str) -> tuple[int, int]:
        """Return the number of connections of a network's site, and of the network."""
        some = next(iter(self._connections[network]), None)
        keys = (network,) if some is None else some.keys
        return self._of_addresses[keys[-1]], self._of_addresses[network]

    def _holds_more_connections(self, holder: tuple[str, ...], newcomer: tuple[str, ...]) -> bool:
        """Return whether a holder has more connections than a newcomer would have with one more."""
        if not newcomer:
            return True
        # Networks of one site compare with each other, all others as sites.
        level = 0 if holder[-1] == newcomer[-1] else -1
        has = self._of_addresses[newcomer[level]]
        return self._of_addresses[holder[level]] > has + (has > 0)

    def _is_unlimited(self, address: Any) -> bool:
        """Return whether an address is a trusted proxy's, which has no limit of its own."""
        key = str(address[0])
        known = self._unlimited.get(key)
        if known is None:
            if len(self._unlimited) >= MAX_KEYS:
                self._unlimited.clear()
            found = ipaddress.ip_address(key.partition("%")[0])
            known = any(found in network for network in self._limits.unlimited)
            self._unlimited[key] = known
        return known

    def _count_connection(self, connection: socket.socket, address: Any) -> socket.socket:
        """Return the connection as one that is counted until it is closed."""
        counted = CountedConnection(
            connection.family, connection.type, connection.proto, fileno=connection.detach()
        )
        network, site = network_of(str(address[0])), site_of(str(address[0]))
        counted.keys = (network,) if site is None else (network, site)
        self._open += 1
        self._of_addresses.update(counted.keys)
        if not self._is_unlimited(address):  # those of proxies are never closed for others
            self._connections.setdefault(network, weakref.WeakSet()).add(counted)
            counted.mark_idle()
            counted.is_crowded = lambda: self.is_crowded
        # Called when asyncio drops the socket, even if closing it failed.
        counted.forget = weakref.finalize(counted, self._release_connection, counted.keys)
        return counted

    def _release_connection(self, keys: tuple[str, ...]) -> None:
        """Stop counting a connection that was closed."""
        self._open -= 1
        for key in keys:
            self._of_addresses[key] -= 1
            if not self._of_addresses[key]:
                del self._of_addresses[key]
                self._connections.pop(key, None)

    def _log_refused(self, reason: str, address: Any) -> None:
        self._refused(reason)
        times = self._sparing.count_event()
        if times:
            log.warning(
                "connections_refused",
                reason=reason,
                address=str(address[0]),
                times=times,
                open=self._open,
            )


class CountedConnection(socket.socket):
    """A connection that is counted until it is closed."""

    forget: Callable[[], object] = staticmethod(lambda: None)
    is_crowded: Callable[[], bool] = staticmethod(lambda: False)
    keys: tuple[str, ...] = ()  #: its network, and for IPv6 its site
    waiting_since: float | None = None  #: since when it is idle; None while a call is served

    def getpeername(self) -> Any:
        """Return the peer's address; IPv4-mapped IPv6 addresses as IPv4."""
        address = super().getpeername()
        return (as_ipv4(str(address[0])), *address[1:])

    def mark_idle(self) -> None:
        """Mark the connection as idle: it may be closed for another."""
        if self.waiting_since is None:
            self.waiting_since = time.monotonic()

    def mark_busy(self) -> None:
        """Mark the connection as busy: its caller waits for an answer."""
        self.waiting_since = None

    def shut_down(self) -> None:
        """Shut the connection down and count it no more; asyncio then closes it."""
        self.mark_busy()
        with suppress(OSError):  # the other end has gone
            self.shutdown(socket.SHUT_RDWR)
        self.forget()

    def close(self) -> None:
        """Close the connection and count it no more."""
        super().close()
        self.forget()


class ServingLoop(asyncio.SelectorEventLoop):
    """An event loop whose servers limit the time of TLS handshakes and shutdowns."""

    async def create_server(self, *given: Any, ssl: Any = None, **more: Any) -> asyncio.Server:
        """Create a server with time limits for TLS."""
        if ssl is not None:
            more |= {"ssl_handshake_timeout": HANDSHAKE_S, "ssl_shutdown_timeout": GOODBYE_S}
        return await super().create_server(*given, ssl=ssl, **more)


def raise_file_limit() -> int:
    """Raise the number of files that the process may open to its hard limit; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return MAX_FILES if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def build_limits(
    in_all: int, per_address: int, trusted_proxies: Collection[str], *, files: int
) -> ConnectionLimits:
    """Return the connection limits of the settings, or lower ones if fewer files may be open."""
    room = files - RESERVED_FILES if files > 2 * RESERVED_FILES else files // 2
    if room < in_all:
        log.warning("fewer_connections", wanted=in_all, room=room, files=files)
    networks = [
        ipaddress.ip_network(each, strict=False) for each in trusted_proxies if _is_network(each)
    ]
    if "*" in trusted_proxies:
        networks += [ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0")]
    return ConnectionLimits(
        in_all=min(in_all, room), per_address=per_address, unlimited=tuple(networks)
    )


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True
