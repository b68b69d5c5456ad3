"""Leadership: one control centre holds the lease, the others follow and try to take it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from registry import LeaseLostError, Registry, RegistryError
from registry.rounds import CONTROL_LEASE, Lease
from service import Check

log = structlog.get_logger()


class Leadership:
    """Holds the control centre's lease and renews it in the background.

    The register center decides by its own clock, when a round commits, whether the lease is
    still valid; this object's copy is only a hint.
    """

    def __init__(
        self,
        registry: Registry,
        holder: str,
        lease_s: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._holder = holder
        self._lease_s = lease_s
        self._now = now
        self._lock = threading.Lock()
        self._lease: Lease | None = None
        self._requested_at: float | None = None

    @property
    def lease(self) -> Lease | None:
        """The lease as last renewed; None while another process leads."""
        return self._lease

    def take(self) -> Lease | None:
        """Take the control centre's lease if it is free, or keep it; None: another one leads."""
        with self._lock:
            if self._lease is None:
                self._lease = self._registry.leases.acquire(
                    CONTROL_LEASE, self._holder, self._lease_s
                )
                self._requested_at = self._now()
                if self._lease is not None:
                    log.info("lease_taken", holder=self._holder, epoch=self._lease.epoch)
            return self._lease

    def forget(self, lease: Lease) -> None:
        """Forget a lease that the register center no longer knows."""
        with self._lock:
            if self._lease is None or self._lease.epoch != lease.epoch:
                return
            log.warning("lease_lost", holder=self._holder, epoch=lease.epoch)
            self._lease = None

    def renew_until_stopped(self, stop: threading.Event) -> None:
        """Renew the lease, or try to take it, every third of its length until stopped."""
        while not stop.is_set():
            try:
                self._renew_or_take()
            except RegistryError as error:
                log.warning("lease_not_renewed", error=str(error))
            except Exception:  # a database that is away for a moment
                log.exception("lease_not_renewed")
            stop.wait(self._lease_s / 3)

    def check(self) -> Check:
        """Return the health check of the lease: that it was requested within its length."""
        requested_at = self._requested_at
        if requested_at is None:
            return Check("lease", False, "not requested yet")
        age_s = self._now() - requested_at
        if age_s > self._lease_s:
            return Check("lease", False, f"last requested {age_s:.0f} s ago")
        return Check("lease", True, "held" if self._lease is not None else "another process leads")

    def release(self) -> None:
        """Release the lease so that another control centre can lead at once."""
        with self._lock:
            lease, self._lease = self._lease, None
        if lease is None:
            return
        try:
            self._registry.leases.release(lease)
        except RegistryError as error:  # then the others wait until it has run out
            log.warning("lease_not_released", error=str(error))

    def _renew_or_take(self) -> None:
        """Renew the lease if this process holds it, else try to take it."""
        lease = self._lease
        if lease is None:
            self.take()
            return
        try:
            renewed = self._registry.leases.renew(lease, self._lease_s)
        except LeaseLostError:
            self.forget(lease)
            return
        with self._lock:
            if self._lease is lease:
                self._lease = renewed
            self._requested_at = self._now()
