"""Rate limits: a token bucket for each access token, and for each address of unknown callers.

Buckets are in the memory of one process. If several processes serve, each allows its share of the
rate, so that together they allow no more than was set.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from controller.rest.middleware.callers import Caller
from controller.rest.middleware.peer_addresses import network_of
from controller.rest.problems.errors import RateLimitedError

MAX_KEYS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A rate of calls per second, and of how many at once after a pause."""

    per_s: float
    burst: int

    def share_of_process(self, processes: int) -> Rate:
        """Return the rate of one process, if several processes share this rate."""
        return Rate(per_s=self.per_s / processes, burst=max(1, self.burst // processes))


class Buckets:
    """A token bucket for each key; not for several threads."""

    def __init__(self, rate: Rate, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self._clock = clock
        self._levels: dict[Hashable, tuple[float, float]] = {}  #: level and time of the last call

    def wait_s(self, key: Hashable) -> float:
        """Return the seconds until a call is allowed; 0.0: now."""
        missing = 1.0 - self._tokens_left(key, self._clock())
        return max(0.0, missing / self.rate.per_s)

    def take(self, key: Hashable) -> float:
        """Count a call and return 0.0, or return the seconds until one is allowed."""
        now = self._clock()
        level = self._tokens_left(key, now)
        if level < 1.0:
            return (1.0 - level) / self.rate.per_s
        self._levels.pop(key, None)  # keeps the keys in the order of their last use
        self._levels[key] = (level - 1.0, now)
        if len(self._levels) > MAX_KEYS:
            self._drop_full_buckets(now)
        return 0.0

    def _tokens_left(self, key: Hashable, now: float) -> float:
        level, at = self._levels.get(key, (float(self.rate.burst), now))
        return min(float(self.rate.burst), level + (now - at) * self.rate.per_s)

    def _drop_full_buckets(self, now: float) -> None:
        """Drop full buckets, which equal new ones; if there are none, the longest unused half."""
        full = [key for key in self._levels if self._tokens_left(key, now) >= self.rate.burst]
        for key in full or list(self._levels)[: MAX_KEYS // 2]:
            del self._levels[key]


class RateLimits:
    """Limits calls per token, and per address without a valid token."""

    def __init__(
        self,
        tokens: Rate | None = None,
        failures: Rate | None = None,
        strangers: Rate | None = None,
        *,
        refused_after_s: float = 0.0,
        processes: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokens = Buckets(tokens.share_of_process(processes), clock) if tokens else None
        self._failures = Buckets(failures.share_of_process(processes), clock) if failures else None
        self._strangers = (
            Buckets(strangers.share_of_process(processes), clock) if strangers else None
        )
        #: Delay of each refusal, which delays the caller's next call.
        self.refused_after_s = refused_after_s
        self._good: dict[bytes, None] = {}  #: digests of credentials that were valid lately

    def check_address(self, address: str, credentials: str | None) -> None:
        """Refuse calls of an address that failed too often, unless their token was valid lately.

        So a caller can work although another one at its address guesses tokens.
        """
        if self._failures is None or (
            credentials and _credentials_digest(credentials) in self._good
        ):
            return
        self._refuse_address(self._failures.wait_s(network_of(address)))

    def count_tokenless_call(self, address: str) -> float:
        """Count a call without a token; return the seconds to wait, 0.0 if it is allowed."""
        return self._strangers.take(network_of(address)) if self._strangers is not None else 0.0

    def count_failure(self, address: str, credentials: str | None = None) -> None:
        """Count a call without a valid token, or refuse it; forget credentials that were valid."""
        if credentials:
            self._good.pop(_credentials_digest(credentials), None)
        if self._failures is not None:
            self._refuse_address(self._failures.take(network_of(address)))

    def count_success(self, caller: Caller, credentials: str | None) -> None:
        """Count a call with a valid token, or refuse it."""
        if self._failures is not None and credentials:
            digest = _credentials_digest(credentials)
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
                f"token {caller.token} exceeds {per_s:g} calls per second", whole_seconds(wait_s)
            )

    def _refuse_address(self, wait_s: float) -> None:
        if wait_s:
            raise RateLimitedError(
                "too many calls without a valid token from this address", whole_seconds(wait_s)
            )


def _credentials_digest(credentials: str) -> bytes:
    return hashlib.sha256(credentials.encode("utf-8", "surrogatepass")).digest()


def whole_seconds(seconds: float) -> int:
    """Round seconds up for `Retry-After`."""
    return max(1, math.ceil(seconds))
