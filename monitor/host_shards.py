"""Division of the hosts among monitors, by leases and rendezvous hashing."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection
from hashlib import blake2b
from typing import Final
from uuid import UUID

from registry import Registry
from registry.db import uuid7

#: Bounds of a monitor's lease, which is as long as the poll interval. A monitor whose lease ran out
#: is gone.
_MIN_LEASE_S: Final = 3.0
_MAX_LEASE_S: Final = 15.0
#: Fraction of a lease after which the next heartbeat is due.
_BEAT_FRACTION: Final = 0.25


class Peers:
    """Renews this monitor's lease, and reads the leases of the other monitors.

    If this monitor could not reach the register center for as long as a lease, it does not count
    the others as gone at once: their leases may have run out for the same reason.
    """

    def __init__(
        self,
        registry: Registry,
        process_id: int,
        interval_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.key = uuid7()
        self.lease_s = min(_MAX_LEASE_S, max(_MIN_LEASE_S, interval_s))
        self._name = f"{socket.gethostname()}:{process_id}"
        self._registry = registry
        self._monotonic = monotonic
        self._known: frozenset[UUID] = frozenset()
        self._beat_at: float | None = None
        self._heard_at = self._steady_since = monotonic()

    def renew_lease(self, *, watched: int, late: int) -> frozenset[UUID]:
        """Renew this monitor's lease if due; return the monitors that share the hosts."""
        now = self._monotonic()
        if now - self._heard_at > self.lease_s:
            self._steady_since = now
        if self._beat_at is None or now - self._beat_at >= self.lease_s * _BEAT_FRACTION:
            self._registry.monitors.record_heartbeat(
                self.key, self._name, lease_s=self.lease_s, watched=watched, late=late
            )
            self._beat_at = now
        seen = self._registry.monitors.all()
        live = {each.id for each in seen if each.is_live} | {self.key}
        if now - self._steady_since < self.lease_s:
            live |= self._known & {each.id for each in seen}
        self._known, self._heard_at = frozenset(live), now
        return self._known

    def release_lease(self) -> None:
        """Release this monitor's lease, so that the others take its hosts at once."""
        self._registry.monitors.unregister(self.key)


def rendezvous_rank(host: UUID, monitor: UUID, monitors: Collection[UUID]) -> int:
    """Return a monitor's rank for a host, by rendezvous hashing.

    Rank 0 polls the host. When a monitor joins or leaves, only its own hosts change monitor.
    """
    mine = _hash_weight(host, monitor)
    return sum(_hash_weight(host, other) > mine for other in monitors)


def _hash_weight(host: UUID, monitor: UUID) -> bytes:
    """Return the weight of a monitor for a host in rendezvous hashing; the highest polls it."""
    return blake2b(host.bytes + monitor.bytes, digest_size=16).digest()
