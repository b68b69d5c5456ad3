"""The metrics of a control centre: slots, rounds and messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from controller.control_center.leadership import Leadership
from controller.queries.failure_survival import Survival
from controller.rounds.interfaces import RoundReport
from service import ProcessMetrics

_CERTIFIED: Final = {True: "yes", False: "no", None: "not_checked"}
_BUCKETS_S: Final = (0.01, 0.03, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class SlotMetrics:
    """Counts slots by outcome, and measures each phase of a round."""

    def __init__(self, metrics: ProcessMetrics) -> None:
        registry = metrics.registry
        self._slots = Counter(
            "fuga_slots", "Slots that began here, by outcome.", ["outcome"], registry=registry
        )
        self._seconds = Histogram(
            "fuga_round_seconds",
            "Duration of a round and of its phases.",
            ["phase"],
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self._decided_by = Counter(
            "fuga_rounds",
            "Rounds committed, by who decided: the policy, or the fallback after it failed.",
            ["decided_by"],
            registry=registry,
        )
        self._games = Counter(
            "fuga_games",
            "Games between hosts in committed rounds, by how they were solved, and whether a second"
            " computation found that no host gains by deviating.",
            ["solved", "certified"],
            registry=registry,
        )
        self._placed = Counter("fuga_vms_placed", "VMs placed.", registry=registry)
        self._dropped = Counter(
            "fuga_vms_dropped",
            "VMs whose host or quota changed during the round; decided again.",
            registry=registry,
        )
        self._leading = Gauge(
            "fuga_leading", "1 while this control centre holds the lease.", registry=registry
        )
        self._sweep_age = Gauge(
            "fuga_sweep_age_seconds",
            "Time since this process last expired requests and sent all due messages.",
            registry=registry,
        )
        self._standing = Counter(
            "fuga_auto_plans",
            "Plans of the standing rule: approved, declined for their gain, or failed.",
            ["outcome"],
            registry=registry,
        )
        self._spare = Gauge(
            "fuga_spare_domains",
            "Failure domains, by whether their VMs would all find room elsewhere; of the leader"
            " alone, and only where FUGA_SPARE is set.",
            ["holds"],
            registry=registry,
        )
        self._sent = Counter(
            "fuga_tasks_sent", "Messages sent to workers, including repeats.", ["task"],
            registry=registry,
        )  # fmt: skip

    def count_slot(self, outcome: str) -> None:
        """Count a slot by its outcome."""
        self._slots.labels(outcome).inc()

    def count_round(self, report: RoundReport) -> None:
        """Count a round that was committed."""
        self.count_slot("decided")
        self._decided_by.labels("policy" if report.fallback_reason is None else "fallback").inc()
        for phase, seconds in report.phases_s.items():
            self._seconds.labels(phase).observe(seconds)
        self._seconds.labels("whole").observe(report.duration_s)
        for game in report.games:
            self._games.labels(str(game["equilibrium"]), _CERTIFIED[game.get("certified")]).inc()
        self._placed.inc(report.placed)
        self._dropped.inc(report.dropped)

    def follow_leadership(self, leadership: Leadership) -> None:
        """Publish from now on whether this control centre leads."""
        self._leading.set_function(lambda: float(leadership.lease is not None))

    def follow_sweep(self, age_s: Callable[[], float]) -> None:
        """Publish from now on how long ago the last sweep was."""
        self._sweep_age.set_function(age_s)

    def count_auto_plan(self, outcome: str) -> None:
        """Count an automatic plan by its outcome."""
        self._standing.labels(outcome).inc()

    def set_spare(self, found: Survival | None) -> None:
        """Publish how many failure domains may fail; None: another control centre leads."""
        self._spare.clear()
        if found is not None:
            missing = found.domains - found.hold - found.not_known
            for holds, number in (
                ("yes", found.hold), ("no", missing), ("not_known", found.not_known),
            ):  # fmt: skip
                self._spare.labels(holds).set(number)

    def count_message(self, task: str) -> None:
        """Count a message sent to the workers."""
        self._sent.labels(task.removeprefix("workers.")).inc()
