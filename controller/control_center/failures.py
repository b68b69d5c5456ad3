"""Requests the fencing of hosts that are down, if their VMs are to start elsewhere.

Only the leader requests it; the transaction checks the leader's epoch. A worker runs the
fencing command, and VMs are placed elsewhere only after it succeeded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from registry import Registry, RegistryError, StaleEpochError
from registry.hosts import FailurePolicy
from registry.rounds import Lease

log = structlog.get_logger()


class FailedHosts:
    """Requests, at an interval, fencing of down hosts whose VMs are to start elsewhere."""

    def __init__(
        self,
        registry: Registry,
        lease: Callable[[], Lease | None],
        *,
        by_default: FailurePolicy,
        interval_s: float,
    ) -> None:
        self._registry = registry
        self._lease = lease
        self._by_default = by_default
        self._interval_s = interval_s

    def request_fencing(self) -> tuple[str, ...]:
        """Request the fencing of all failed hosts and return their names, if this process leads."""
        lease = self._lease()
        if lease is None:
            return ()
        try:
            fenced = self._registry.fencing.request_for_failed_hosts(
                lease, by_default=self._by_default
            )
        except StaleEpochError:
            return ()  # another one leads by now
        for host in fenced:
            log.warning("fencing_requested", alert=True, host=host, epoch=lease.epoch)
        return fenced

    def run(self, stop: threading.Event) -> None:
        """Request the fencing of failed hosts at an interval until stopped."""
        while not stop.wait(self._interval_s):
            try:
                self.request_fencing()
            except RegistryError as error:
                log.error("failed_hosts_not_read", error=str(error))
            except Exception:  # the loop outlives a database that is away for a moment
                log.exception("failed_hosts_not_read")
