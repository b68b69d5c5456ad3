"""Limits on connections, per address and in total.

When all are taken, or all but those kept for addresses without one, a newcomer takes the place
of a connection that waits for its caller, of the address that has most.

Connections are counted where they are accepted, before TLS and before a byte of HTTP: what
is half done counts as what is whole. Asyncio accepts by calling `accept` of the listening
socket, so that is where one is refused.
"""

from __future__ import annotations

import asyncio
import errno
import heapq
import ipaddress
import logging
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

from controller.rest.middleware.rate_limits import Buckets, Rate, as_ipv4, network_of, site_of

#: Files that a process opens besides its callers' connections: database, images, logs.
RESERVED_FILES: Final = 256
#: More than any caller needs; where the hard limit is a billion, that is nothing to set.
MAX_FILES: Final = 65_536
HANDSHAKE_S: Final = 10.0
#: To end TLS, including the rest of an answer. `protocol` watches the progress of the answer.
GOODBYE_S: Final = 600.0
LOG_EVERY_S: Final = 60.0
#: Connections accepted in one turn of the event loop. Calls under way need turns, too.
_MAX_ACCEPTED_PER_TURN: Final = 16
#: Refusing takes as long in one turn as all else took since the turn before, within these bounds.
_MIN_REFUSING_S: Final = 0.0005
_MAX_REFUSING_S: Final = 0.003
#: Asyncio accepts again after a second; until then there is nothing to accept.
_RETRY_S: Final = 0.9
_NO_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
#: Close with a reset: neither this process nor the kernel keeps anything of a refused connection.
_LINGER_RESET: Final = struct.pack("ii", 1, 0)

log = structlog.get_logger(__name__)


class LogThrottle:
    """Logs a repeated event once a minute, with its count."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged_at = float("-inf")
        self._times = 0

    def count_event(self) -> int:
        """Count one event. Return the count since the last report, or 0 if no report is due."""
        self._times += 1
        now = self._clock()
        if now - self._logged_at < LOG_EVERY_S:
            return 0
        self._logged_at = now
        times, self._times = self._times, 0
        return times


class ThrottlingFilter(logging.Filter):
    """Passes log lines of other libraries that unknown callers can cause, once a minute."""

    _PROVOKED: Final = ("Invalid HTTP request received.", "socket.accept() out of system resource")

    def __init__(self) -> None:
        super().__init__()
        self._counters = {text: LogThrottle() for text in self._PROVOKED}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a line; add to it how many were not logged."""
        text = next((text for text in self._PROVOKED if str(record.msg).startswith(text)), None)
        if text is None:
            return True
        times = self._counters[text].count_event()
        if times > 1:
            record.msg = f"{text} ({times} times since it was logged last)"
        return times > 0


def throttle_library_logs() -> None:
    """Limit what unknown callers can make asyncio and uvicorn log."""
    for name in ("asyncio", "uvicorn.error"):
        logger = logging.getLogger(name)
        if not any(isinstance(each, ThrottlingFilter) for each in logger.filters):
            logger.addFilter(ThrottlingFilter())


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How many connections one process holds."""

    in_all: int
    per_address: int
    #: Proxies speak for many callers, so only the total limits them.
    unbounded: Collection[ipaddress.IPv4Network | ipaddress.IPv6Network] = ()


#: Share of all connections that one /48 of IPv6 may hold: it contains 65,536 networks.
_OF_ONE_SITE: Final = 0.75
#: Share of all connections that is kept for addresses without one.
_FOR_NEW_ADDRESSES: Final = 0.05
#: Networks with most connections that are searched for one that waits for its caller.
_SEARCHED: Final = 8
UNBOUNDED: Final = Bounds(in_all=sys.maxsize, per_address=sys.maxsize)


class LimitedListener(socket.socket):
    """A listening socket that limits its connections, once limits are set."""

    _clock = staticmethod(time.monotonic)

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._bounds = UNBOUNDED
        self._refused: Callable[[str], None] = lambda _reason: None
        self._open = 0
        self._of_addresses: Counter[str] = Counter()
        self._connections: dict[str, weakref.WeakSet[CountedConnection]] = {}  #: by network
        self._sparing = LogThrottle()
        self._failed_at = float("-inf")
        self._turn = 0  #: connections accepted in this turn of the event loop
        self._turn_ends_at = 0.0  #: when refusing gives way to calls
        self._turn_ended_at = float("-inf")
        self._arrivals = Buckets(Rate(per_s=sys.maxsize, burst=sys.maxsize))

    def set_bounds(self, bounds: Bounds, refused: Callable[[str], None] | None = None) -> None:
        """Hold no more connections than ``bounds``; report why one is refused."""
        self._bounds = bounds
        self._refused = refused or self._refused
        # A caller that connects and closes at once counts as one that stays.
        rate = Rate(per_s=bounds.per_address, burst=2 * bounds.per_address)
        self._arrivals = Buckets(rate)

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection that may stay, as asyncio wants it."""
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
        self._end_turn()
        raise BlockingIOError(errno.EAGAIN, "calls under way get their turn")

    def _end_turn(self) -> None:
        self._turn, self._turn_ended_at = 0, self._clock()

    def _accept_next(self) -> tuple[socket.socket, Any]:
        try:
            connection, address = super().accept()
            return connection, (as_ipv4(str(address[0])), *address[1:])
        except OSError as error:
            self._end_turn()
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
        """Whether half of all connections are taken."""
        return 2 * self._open > self._bounds.in_all

    def _reason_to_refuse(self, address: Any) -> str | None:
        key = network_of(str(address[0]))
        if self._is_unbounded(address):
            return None if self._has_room(0) or self._make_room(()) else "too many in all"
        if self._of_addresses[key] >= self._bounds.per_address:
            return "too many of one address"
        site = site_of(str(address[0]))
        if site is not None and self._of_addresses[site] >= self._bounds.in_all * _OF_ONE_SITE:
            return "too many of one network"
        if self._arrivals.take(key):
            return "too often from one address"
        keys = (key,) if site is None else (key, site)
        if self._has_room(self._of_addresses[key]) or self._make_room(keys):
            return None
        return "too many in all"

    def _has_room(self, held: int) -> bool:
        """Return whether an address that holds so many connections may take a free place."""
        kept = int(self._bounds.in_all * _FOR_NEW_ADDRESSES) if held else 0
        return self._open < self._bounds.in_all - kept

    def _make_room(self, keys: tuple[str, ...]) -> bool:
        """Close the connection that has waited longest for its caller, of the largest holder.

        Return False if no holder has more than the newcomer would have then.
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
            if not self._has_more(victim.keys, keys):
                return False
            victim.give_way()
            self._log_refused("gave way to another address", (network,))
            return True
        return False

    def _connection_counts(self, network: str) -> tuple[int, int]:
        """Return how many connections a network's site has, and how many it has itself."""
        some = next(iter(self._connections[network]), None)
        keys = (network,) if some is None else some.keys
        return self._of_addresses[keys[-1]], self._of_addresses[network]

    def _has_more(self, holder: tuple[str, ...], newcomer: tuple[str, ...]) -> bool:
        if not newcomer:
            return True
        # Networks of one site compare with each other, all others as sites.
        level = 0 if holder[-1] == newcomer[-1] else -1
        has = self._of_addresses[newcomer[level]]
        return self._of_addresses[holder[level]] > has + (has > 0)

    def _is_unbounded(self, address: Any) -> bool:
        found = ipaddress.ip_address(str(address[0]).partition("%")[0])
        return any(found in network for network in self._bounds.unbounded)

    def _count_connection(self, connection: socket.socket, address: Any) -> socket.socket:
        counted = CountedConnection(
            connection.family, connection.type, connection.proto, fileno=connection.detach()
        )
        network, site = network_of(str(address[0])), site_of(str(address[0]))
        counted.keys = (network,) if site is None else (network, site)
        self._open += 1
        self._of_addresses.update(counted.keys)
        if not self._is_unbounded(address):  # else it does not give way
            self._connections.setdefault(network, weakref.WeakSet()).add(counted)
            counted.mark_idle()
            counted.is_crowded = lambda: self.is_crowded
        # Asyncio closes it in any case, or drops it if closing fails.
        counted.forget = weakref.finalize(counted, self._uncount, counted.keys)
        return counted

    def _uncount(self, keys: tuple[str, ...]) -> None:
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
    keys: tuple[str, ...] = ()  #: its network and, of IPv6, its site
    waiting_since: float | None = None  #: when it began to wait for its caller

    def getpeername(self) -> Any:
        """Return the address of the other end, as limits and the audit write it."""
        address = super().getpeername()
        return (as_ipv4(str(address[0])), *address[1:])

    def mark_idle(self) -> None:
        """Note that it waits for its caller: it may give way."""
        if self.waiting_since is None:
            self.waiting_since = time.monotonic()

    def mark_busy(self) -> None:
        """Note that its caller waits for an answer."""
        self.waiting_since = None

    def give_way(self) -> None:
        """End it in both directions, and count it no more; asyncio closes it then."""
        self.mark_busy()
        with suppress(OSError):  # the other end has gone
            self.shutdown(socket.SHUT_RDWR)
        self.forget()

    def close(self) -> None:
        """Close it."""
        super().close()
        self.forget()


class ServingLoop(asyncio.SelectorEventLoop):
    """An event loop whose servers limit the time that TLS takes to begin and to end."""

    async def create_server(self, *given: Any, ssl: Any = None, **more: Any) -> asyncio.Server:
        """Return a server."""
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


def bounds_of(
    in_all: int, per_address: int, trusted_proxies: Collection[str], *, files: int
) -> Bounds:
    """Return the bounds of the settings, or lower ones if the process may open fewer files."""
    room = files - RESERVED_FILES if files > 2 * RESERVED_FILES else files // 2
    if room < in_all:
        log.warning("fewer_connections", wanted=in_all, room=room, files=files)
    networks = [
        ipaddress.ip_network(each, strict=False) for each in trusted_proxies if _is_network(each)
    ]
    if "*" in trusted_proxies:
        networks += [ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0")]
    return Bounds(in_all=min(in_all, room), per_address=per_address, unbounded=tuple(networks))


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True
