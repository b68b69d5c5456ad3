"""The hosts that this monitor knows, updated by changes, and which of them it polls."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final
from uuid import UUID

from monitor.host_shards import rank
from registry import Registry
from registry.hosts import WatchedHost

#: What nothing tells of (a register center that was put back) is learned this soon.
_READ_ANEW_S: Final = 300.0


class HostTable:
    """Every host that is not retired.

    A host is looked at by one monitor. While it is in trouble a second one looks as well:
    it may be the first one that is cut off, and a host is down only if neither reaches it.
    """

    def __init__(
        self, registry: Registry, key: UUID, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.hosts: dict[UUID, WatchedHost] = {}
        self._registry = registry
        self._key = key
        self._monotonic = monotonic
        self._peers: frozenset[UUID] = frozenset()
        self._ranks: dict[UUID, int] = {}
        self._in_trouble: frozenset[UUID] = frozenset()
        self._cursor = 0
        self._read_at: float | None = None

    def follow(self, peers: frozenset[UUID]) -> set[UUID]:
        """Read changes, and return the changed hosts."""
        in_trouble = self._registry.watched_hosts.in_trouble()
        changed = self._read() | (in_trouble ^ self._in_trouble)
        self._in_trouble = in_trouble
        if peers != self._peers:
            self._peers, self._ranks = peers, {}
            changed |= self.hosts.keys()
        return changed

    def is_ours(self, key: UUID) -> bool:
        """Return whether this monitor polls a host."""
        if key not in self.hosts:
            return False
        if key not in self._ranks:
            self._ranks[key] = rank(key, self._key, self._peers)
        return self._ranks[key] <= (1 if key in self._in_trouble else 0)

    def _read(self) -> set[UUID]:
        now = self._monotonic()
        if self._read_at is None or now - self._read_at > _READ_ANEW_S:
            read = self._registry.watched_hosts.all()
            before, self.hosts = self.hosts, {host.id: host for host in read.hosts}
            self._read_at = now
            changed = {host.id for host in read.hosts if before.get(host.id) != host}
            changed |= before.keys() - self.hosts.keys()
        else:
            read = self._registry.watched_hosts.since(self._cursor)
            for key in read.gone:
                self.hosts.pop(key, None)
            self.hosts |= {host.id: host for host in read.hosts}
            changed = {host.id for host in read.hosts} | read.gone
        self._cursor = read.cursor
        return changed
