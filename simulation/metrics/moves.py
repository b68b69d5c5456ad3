"""Metrics of moves: columns, rows and a summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from placement import Allocation, IntArray, Snapshot
from placement.rebalancing.destination_search import SearchLimits
from placement.rebalancing.measures import MoveMeasures
from placement.rebalancing.model import RunningState
from placement.rebalancing.spare_capacity import spare_capacity
from simulation.checkpoint import CheckpointData
from simulation.metrics.series import Series, Stacks
from simulation.slots.engine import Engine, SlotResult
from simulation.slots.moving.timetable import MoveOutcome
from simulation.topology.failure_domains import failure_domains_of

#: The search that rounds with spare capacity use.
_AS_ROUNDS: Final = SearchLimits(tries=2, pairs=0, partly=False)
_SPARE_UNITS: Final = 1_000_000
_OUTCOMES: Final = tuple(MoveOutcome)


class MovesRecorder:
    """Records the moves of one simulation and their outcomes."""

    def __init__(self) -> None:
        self.moves = Stacks(
            "request", "tenant", "source", "destination", "start_s", "over_s", "mib", "outcome"
        )
        self.why: list[str] = []
        self._outcomes: Counter[str] = Counter()
        self._plans: dict[str, list[float]] = {}  #: plans, moves, GiB, gain, seconds
        self._held_idle = 0.0

    def record(self, passed: SlotResult, engine: Engine, *, ideal: bool) -> dict[str, float | None]:
        """Record a slot, and return columns of its row."""
        for plan in passed.plans:
            values = (1.0, float(plan.moves), plan.gib, plan.gain, plan.takes_s)
            known = self._plans.setdefault(plan.what, [0.0] * len(values))
            self._plans[plan.what] = [a + b for a, b in zip(known, values, strict=True)]
        if passed.moves:
            self._store_moves(passed)
        done = [each.move for each in passed.moves if each.outcome is MoveOutcome.MOVED]
        row: dict[str, float | None] = {
            "moves": float(len(done)),
            "moved_gib": sum(move.transfer_mib for move in done) / 1024,
            "moves_failed": float(len(passed.moves) - len(done)),
        }
        return row | self._state_columns(passed, engine, ideal=ideal)

    def _store_moves(self, passed: SlotResult) -> None:
        moves = [each.move for each in passed.moves]

        def whole(values: list[int]) -> IntArray:
            return np.array(values, dtype=np.int64)

        self.moves.add(
            request=whole([move.vm.request for move in moves]),
            tenant=whole([move.tenant for move in moves]),
            source=whole([move.vm.host for move in moves]),
            destination=whole([move.destination for move in moves]),
            start_s=np.array([move.starts_s for move in moves]),
            over_s=np.array([move.over_s for move in moves]),
            mib=whole([move.transfer_mib for move in moves]),
            outcome=whole([_OUTCOMES.index(each.outcome) for each in passed.moves]),
        )
        self.why += [move.why.value for move in moves]
        self._outcomes.update(each.outcome.value for each in passed.moves)

    def _state_columns(
        self, passed: SlotResult, engine: Engine, *, ideal: bool
    ) -> dict[str, float | None]:
        cluster = engine.cluster
        offered, used = cluster.pool_capacity(), cluster.committed[cluster.rows]
        ranking = [0, 1][: offered.shape[1]]
        parts = np.divide(
            used[:, ranking], offered[:, ranking],
            out=np.zeros((len(used), len(ranking))), where=offered[:, ranking] > 0,
        )  # fmt: skip
        self._held_idle = self._reserved_fraction(passed, engine)
        row: dict[str, float | None] = {
            "hosts_in_use": float(used.any(axis=1).sum()),
            "load_deviation": float(parts.std(axis=0).sum()) if len(parts) else None,
            "held_idle_part": self._held_idle,
        }
        if ideal:
            snapshot, _ = engine.snapshot()
            now = MoveMeasures(_state_without_vms(snapshot, engine)).current_measures()
            row |= {
                "potential": now.potential,
                "skewness": now.mean_skewness,
                "off_fair": now.fairness_distance,
            }
            enabled = engine.choice.moving.spare or engine.choice.moving.measured_spare
            if enabled is not None:
                domain = failure_domains_of(enabled, cluster.hosts)
                fleet = engine.fleet()
                found = spare_capacity(
                    fleet.running, domain, search=_AS_ROUNDS, budget_units=_SPARE_UNITS, max_rows=0
                )
                row["spare_held_part"] = float(found.holds.mean()) if len(found.holds) else None
        return row

    def _reserved_fraction(self, passed: SlotResult, engine: Engine) -> float:
        """Return the fraction of the first resource that is reserved for starving requests."""
        cluster = engine.cluster
        offered = float(cluster.pool_capacity()[:, 0].sum())
        if not offered:
            return 0.0
        if not len(engine.waiting):
            return 0.0
        freed = None if engine.movers is None else engine.movers.freed
        if freed is not None:
            rows = np.unique(np.array(freed.hosts, dtype=np.int64))
        elif passed.round is None:  # nothing has changed, so the same hosts are held
            return self._held_idle
        else:
            rows = cluster.rows[_reserved_hosts(passed.round.allocation)]
        free = np.maximum(cluster.capacity[rows, 0] - cluster.committed[rows, 0], 0)
        return float(free.sum() / offered)

    def state(self) -> CheckpointData:
        """Return the records for a checkpoint."""
        return {
            "moves": self.moves.state(),
            "why": self.why,
            "outcomes": dict(self._outcomes),
            "plans": self._plans,
            "held_idle": self._held_idle,
        }

    def restore(self, kept: CheckpointData) -> None:
        """Restore saved records."""
        self.moves.restore(kept["moves"])
        self.why = [str(each) for each in kept["why"]]
        self._outcomes = Counter({str(n): int(count) for n, count in kept["outcomes"].items()})
        self._plans = {str(n): [float(each) for each in row] for n, row in kept["plans"].items()}
        self._held_idle = float(kept["held_idle"])

    def summary(self, slots: Series, engine: Engine) -> dict[str, Any]:
        """Return the part of the run's summary about moves, in JSON values."""
        movers = engine.movers
        by_why: Counter[str] = Counter()
        outcome = self.moves.column("outcome") if self.why else np.zeros(0)
        moved = outcome == _OUTCOMES.index(MoveOutcome.MOVED)
        for why, did in zip(self.why, moved.tolist(), strict=True):
            by_why[why] += did
        took = (self.moves.column("over_s") - self.moves.column("start_s"))[moved]
        held = slots.column("spare_held_part")
        known = held[np.isfinite(held)]
        reasons = slots.column("left_out:kept_spare")
        return {
            "moved": int(moved.sum()),
            "moved_gib": float(self.moves.column("mib")[moved].sum() / 1024),
            "move_seconds": float(took.sum()),
            "by_reason": dict(sorted(by_why.items())),
            "outcomes": {each.value: self._outcomes[each.value] for each in MoveOutcome},
            "plans": {
                name: dict(zip(("plans", "moves", "gib", "gain", "seconds"), row, strict=True))
                for name, row in sorted(self._plans.items())
            },
            "potential": _mean_of_known(slots.column("potential")),
            "fairness_distance": _mean_of_known(slots.column("off_fair")),
            "mean_skewness": _mean_of_known(slots.column("skewness")),
            "load_deviation": _mean_of_known(slots.column("load_deviation")),
            "hosts_in_use": _mean_of_known(slots.column("hosts_in_use")),
            "held_idle_part": _mean_of_known(slots.column("held_idle_part")),
            "spare": None if not len(known) else {
                "asked": len(known),
                "not_held": int((known < 1).sum()),
                "domains_held_part": float(known.mean()),
                "vm_rounds_waited": int(np.nansum(reasons)),
            },
            "roll": None if movers is None else movers.roll_report(),
        }  # fmt: skip

    def tables(self, names: Any, host_names: Any) -> Mapping[str, Any]:
        """Return the columns of the table of moves; names are arrays of Arrow."""
        import pyarrow as pa  # noqa: PLC0415 - slow to import

        def whole(name: str) -> Any:
            return self.moves.column(name).astype(np.int64)

        outcomes = pa.array([each.value for each in MoveOutcome])
        return {
            "request": whole("request"),
            "tenant": names.take(pa.array(whole("tenant"))),
            "source": host_names.take(pa.array(whole("source"))),
            "destination": host_names.take(pa.array(whole("destination"))),
            "start_s": self.moves.column("start_s"),
            "over_s": self.moves.column("over_s"),
            "transfer_mib": whole("mib"),
            "reason": pa.array(self.why, pa.string()),
            "outcome": outcomes.take(pa.array(whole("outcome"))),
        }


def _state_without_vms(snapshot: Snapshot, engine: Engine) -> RunningState:
    """Return the running state that a gauge reads; VMs matter only when they move."""
    cluster = engine.cluster
    hosts, resources = snapshot.capacity.shape
    nothing = np.zeros(0, dtype=np.int64)
    return RunningState(
        snapshot=snapshot,
        kind=nothing,
        host=nothing,
        tenant=nothing,
        transfer_mib=nothing,
        mobility=nothing,
        obstacle=nothing,
        rests=np.zeros(0, dtype=np.bool_),
        demand=np.zeros((0, resources), dtype=np.int64),
        eligible=np.zeros((0, snapshot.eligible.shape[1]), dtype=np.bool_),
        receives=np.ones(hosts, dtype=np.bool_),
        over=np.maximum(cluster.committed[cluster.rows] - cluster.pool_capacity(), 0),
    )


def _reserved_hosts(allocation: Allocation) -> list[int]:
    return sorted({int(host) for _, host in allocation.details.get("holding", ())})


def _mean_of_known(values: Any) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None
