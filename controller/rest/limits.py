"""How often one caller may call: a bucket for each token, and one for each address that fails.

Buckets are in the memory of one process. Where several serve, each gives out its part
of the rate, so that together they give out no more than was set.
"""

from __future__ import annotations

import hashlib
import ipaddress
import math
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from starlette.types import Scope

from controller.rest.auth import Caller
from controller.rest.errors import RateLimitedError

MAX_KEYS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """So many a second for good, and so many at once after a silence."""

    per_s: float
    burst: int

    def divided(self, processes: int) -> Rate:
        """Return the part of one of several processes."""
        return Rate(per_s=self.per_s / processes, burst=max(1, self.burst // processes))


class Buckets:
    """A token bucket for each key; not for several threads."""

    def __init__(self, rate: Rate, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self._clock = clock
        self._levels: dict[Hashable, tuple[float, float]] = {}  #: what was left, and when

    def wait_s(self, key: Hashable) -> float:
        """Return how long it takes until there is one to take; 0.0: there is."""
        missing = 1.0 - self._level(key, self._clock())
        return max(0.0, missing / self.rate.per_s)

    def take(self, key: Hashable) -> float:
        """Take one and return 0.0; or return how long it takes until there is one."""
        now = self._clock()
        level = self._level(key, now)
        if level < 1.0:
            return (1.0 - level) / self.rate.per_s
        self._levels.pop(key, None)  # so that the keys stand in the order of their use
        self._levels[key] = (level - 1.0, now)
        if len(self._levels) > MAX_KEYS:
            self._forget(now)
        return 0.0

    def _level(self, key: Hashable, now: float) -> float:
        level, at = self._levels.get(key, (float(self.rate.burst), now))
        return min(float(self.rate.burst), level + (now - at) * self.rate.per_s)

    def _forget(self, now: float) -> None:
        """Forget full buckets, which are as good as new ones, and the longest unused."""
        full = [key for key in self._levels if self._level(key, now) >= self.rate.burst]
        for key in full or list(self._levels)[: MAX_KEYS // 2]:
            del self._levels[key]


class Limits:
    """Judges calls: those of a token, and those from an address that sends no good one."""

    def __init__(
        self,
        tokens: Rate | None = None,
        failures: Rate | None = None,
        *,
        processes: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokens = Buckets(tokens.divided(processes), clock) if tokens else None
        self._failures = Buckets(failures.divided(processes), clock) if failures else None
        self._good: dict[bytes, None] = {}  #: digests of what was a token's lately

    def before_authentication(self, address: str, credentials: str | None) -> None:
        """Refuse an address that failed too often, except to whose token was good lately.

        Whoever shares the address with somebody who guesses goes on working.
        """
        if self._failures is None or (credentials and _digest(credentials) in self._good):
            return
        self._refuse_address(self._failures.wait_s(_network(address)))

    def failed(self, address: str) -> None:
        """Count a call without a good token, or refuse it."""
        if self._failures is not None:
            self._refuse_address(self._failures.take(_network(address)))

    def passed(self, caller: Caller, credentials: str | None) -> None:
        """Count a call with a good token, or refuse it."""
        if self._failures is not None and credentials:
            digest = _digest(credentials)
            self._good.pop(digest, None)
            self._good[digest] = None
            if len(self._good) > MAX_KEYS:
                del self._good[next(iter(self._good))]
        if self._tokens is None:
            return
        wait_s = self._tokens.take(caller.token_id)
        if wait_s:
            per_s = self._tokens.rate.per_s
            raise RateLimitedError(
                f"token {caller.token} is used more often than {per_s:g} times a second here",
                _whole(wait_s),
            )

    def _refuse_address(self, wait_s: float) -> None:
        if wait_s:
            raise RateLimitedError(
                "too many calls without a good token came from this address", _whole(wait_s)
            )


def address_of(scope: Scope) -> str:
    """Return who is at the other end of the connection."""
    client = scope.get("client")
    return str(client[0]) if client else "unknown"


def _network(address: str) -> str:
    """Return what one party has: an IPv4 address, or a whole /64 of IPv6."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4:
        return address
    return str(ipaddress.ip_network((found, 64), strict=False))


def _digest(credentials: str) -> bytes:
    return hashlib.sha256(credentials.encode("utf-8", "surrogatepass")).digest()


def _whole(seconds: float) -> int:
    return max(1, math.ceil(seconds))
