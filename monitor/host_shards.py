"""How monitors share the hosts: by their leases and a common rule."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection
from hashlib import blake2b
from typing import Final
from uuid import UUID

from registry import Registry
from registry.db import uuid7

#: A monitor that was not heard for this long is gone; as long as the interval within these.
_MIN_LEASE_S: Final = 3.0
_MAX_LEASE_S: Final = 15.0
#: Of a lease, how long after a beat the next one is due.
_BEAT_FRACTION: Final = 0.25


class Peers:
    """Keeps this monitor's lease, and knows the other monitors' leases.

    A monitor that could not reach the register center for as long as a lease does not
    take the others for gone when it can again: their leases ran out for the same reason.
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
        """Renew the lease when due, and return the monitors that share the hosts."""
        now = self._monotonic()
        if now - self._heard_at > self.lease_s:
            self._steady_since = now
        if self._beat_at is None or now - self._beat_at >= self.lease_s * _BEAT_FRACTION:
            self._registry.monitors.beat(
                self.key, self._name, lease_s=self.lease_s, watched=watched, late=late
            )
            self._beat_at = now
        seen = self._registry.monitors.all()
        live = {each.id for each in seen if each.is_live} | {self.key}
        if now - self._steady_since < self.lease_s:
            live |= self._known & {each.id for each in seen}
        self._known, self._heard_at = frozenset(live), now
        return self._known

    def leave(self) -> None:
        """Release the lease, so that the others take the hosts at once."""
        self._registry.monitors.leave(self.key)


def rank(host: UUID, monitor: UUID, monitors: Collection[UUID]) -> int:
    """Return a monitor's rank for a host; the first one polls it.

    Each draws a number for the host, and the highest wins. So when one comes or goes, only
    hosts that it gets or had change their monitor, and those go to all others alike.
    """
    mine = _hash_weight(host, monitor)
    return sum(_hash_weight(host, other) > mine for other in monitors)


def _hash_weight(host: UUID, monitor: UUID) -> bytes:
    return blake2b(host.bytes + monitor.bytes, digest_size=16).digest()
