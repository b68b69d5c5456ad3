"""Checks spare capacity at an interval: a host may fail while no round runs."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from controller.queries.failure_survival import Survival, survival
from registry import Registry, RegistryError
from registry.rounds import Lease

log = structlog.get_logger()


class SpareWatch:
    """Computes at an interval, while this control centre leads, which failure domains may fail."""

    def __init__(
        self,
        registry: Registry,
        lease: Callable[[], Lease | None],
        domain: str,
        *,
        interval_s: float,
        report: Callable[[Survival | None], None],
    ) -> None:
        self._registry = registry
        self._lease = lease
        self._domain = domain
        self._interval_s = interval_s
        self._report = report

    def run(self, stop: threading.Event) -> None:
        """Check spare capacity at an interval until stopped."""
        while True:
            try:
                self.check()
            except RegistryError as error:
                log.error("spare_not_read", error=str(error))
            except Exception:  # the loop outlives a database that is away for a moment
                log.exception("spare_not_read")
            if stop.wait(self._interval_s):
                return

    def check(self) -> None:
        """Report the spare capacity once; None if another control centre leads."""
        if self._lease() is None:
            self._report(None)
            return
        found = survival(self._registry, self._domain, max_domains=0)
        self._report(found)
        if found.hold < found.domains:
            log.warning(
                "spare_missing",
                domain=found.domain,
                domains=found.domains,
                hold=found.hold,
                not_known=found.not_known,
                first=[each.name for each in found.lacking[:5]],
            )
