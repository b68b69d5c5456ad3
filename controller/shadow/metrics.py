"""Metrics of the second policy in a control centre."""

from __future__ import annotations

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from registry.rounds import NewShadowRound
from service import ProcessMetrics

_BUCKETS_S: Final = (0.01, 0.03, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class ShadowMetrics:
    """Counts rounds that the second policy decided, and how far it agreed with the first."""

    def __init__(self, metrics: ProcessMetrics) -> None:
        registry = metrics.registry
        self._rounds = Counter(
            "fuga_shadow_rounds",
            "Rounds for the second policy, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self._placed = Counter(
            "fuga_shadow_vms_placed",
            "VMs that each policy placed in rounds that both decided.",
            ["policy"],
            registry=registry,
        )
        self._agreed = Counter(
            "fuga_shadow_vms_agreed",
            "VMs that both policies placed on the same host.",
            registry=registry,
        )
        self._seconds = Histogram(
            "fuga_shadow_seconds",
            "Duration of the second policy's decisions.",
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self._fair_distance = Gauge(
            "fuga_shadow_fair_distance",
            "Distance from fair shares after the last round that both policies decided.",
            ["policy"],
            registry=registry,
        )

    def count(self, shadow: NewShadowRound) -> None:
        """Count a round that the second policy decided, failed or skipped."""
        self._rounds.labels("skipped").inc(shadow.skipped)
        if shadow.decided is None or shadow.first is None:
            self._rounds.labels("failed").inc()
            return
        self._rounds.labels("decided").inc()
        self._seconds.observe(shadow.seconds or 0.0)
        self._agreed.inc(shadow.agreed or 0)
        for which, decided in (("first", shadow.first), ("second", shadow.decided)):
            self._placed.labels(which).inc(decided.placed)
            if decided.fair_distance is not None:
                self._fair_distance.labels(which).set(decided.fair_distance)
