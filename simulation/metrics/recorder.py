"""Record the time series of a simulation, slot by slot.

Everything is kept in flat arrays and written at the end, so that a simulation
that stops halfway can be kept with all that it has seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from placement import (
    FloatArray,
    IntArray,
    Reason,
    SolverError,
    allocation_bound,
    dominant_shares,
    fair_distance,
    target_shares,
)
from simulation.checkpoint import CheckpointData, ValueRange, read_array, read_integer
from simulation.metrics.moves import MovesRecorder
from simulation.metrics.series import Series, Stacks
from simulation.slots.engine import Engine, Round, SlotResult
from simulation.slots.interning import GrowingRows
from simulation.slots.running_vms import VmRows
from simulation.slots.waiting_rows import WaitingRows

#: Tenants of largest share whose shares are kept of each slot.
SHARES_KEPT = 50
#: Pictures of all hosts: from this number to twice as many are kept.
PICTURES_KEPT = 120
#: How many of the most requested kinds of VM fragmentation is measured with.
_KINDS_FOR_FRAGMENTS = 16


class SeriesRecorder:
    """Keeps the time series of one simulation.

    Parameters
    ----------
    resources : sequence of str
    host_class : sequence of str
        The class of each host, as reports name them.
    ideal_every : int
        Slots from one comparison with what is fair and what could be placed at
        most to the next; these take longer than all else.
    moving : bool
        Whether what moves do is recorded.
    """

    def __init__(
        self,
        resources: Sequence[str],
        host_class: Sequence[str],
        *,
        ideal_every: int,
        moving: bool = False,
    ) -> None:
        self.moving = MovesRecorder() if moving else None
        self.resources = tuple(resources)
        self.classes = tuple(dict.fromkeys(host_class))
        place = {name: index for index, name in enumerate(self.classes)}
        self._class_of = np.array([place[name] for name in host_class], dtype=np.int64)
        self._ideal_every = ideal_every
        self.slots = Series("slot", "start_s")
        self.shares = Stacks("slot", "tenant", "share")
        self.placements = Stacks(
            "request", "tenant", "host", "count", "arrival_s", "start_s", "end_s"
        )
        self.pictures = Stacks("slot", "host", "part")
        self._picture_every = 1
        self._pictured = 0
        #: per tenant: VMs requested, placed, completed, lost, given up
        self.tenants = GrowingRows(5)
        self._waited_s: FloatArray = np.zeros(0)
        #: per kind of VM: requested, placed, lost
        self.kinds = GrowingRows(3)
        self._waited_s_of_kind: FloatArray = np.zeros(0)
        self.reasons: dict[str, int] = {}
        self.fallbacks: list[tuple[int, str]] = []
        self.stood = 0  #: VMs that ran at the beginning of the trace

    def state(self) -> CheckpointData:
        """Return the records for a checkpoint."""
        return {
            "slots": self.slots.state(),
            "shares": self.shares.state(),
            "placements": self.placements.state(),
            "pictures": self.pictures.state(),
            "picture_every": self._picture_every,
            "pictured": self._pictured,
            "tenants": self.tenants.rows,
            "waited_s": self._waited_s,
            "kinds": self.kinds.rows,
            "waited_s_of_kind": self._waited_s_of_kind,
            "reasons": self.reasons,
            "fallbacks": self.fallbacks,
            "stood": self.stood,
            "moving": None if self.moving is None else self.moving.state(),
        }

    def restore(self, kept: CheckpointData) -> None:
        """Restore saved records."""
        for name in ("slots", "shares", "placements", "pictures"):
            getattr(self, name).restore(kept[name])
        self._picture_every = read_integer(kept, "picture_every", ValueRange(1, 2**62))
        self._pictured = read_integer(kept, "pictured")
        self.tenants = GrowingRows.of(read_array(kept, "tenants", "int", (None, 5)))
        self._waited_s = read_array(kept, "waited_s", "float", (None,))
        self.kinds = GrowingRows.of(read_array(kept, "kinds", "int", (None, 3)))
        self._waited_s_of_kind = read_array(kept, "waited_s_of_kind", "float", (None,))
        self.reasons = {str(reason): int(count) for reason, count in kept["reasons"].items()}
        self.fallbacks = [(int(slot), str(reason)) for slot, reason in kept["fallbacks"]]
        self.stood = read_integer(kept, "stood")
        if self.moving is not None:
            self.moving.restore(kept["moving"])

    def record(self, passed: SlotResult, engine: Engine) -> None:
        """Record the events up to a slot, and the state of the cluster after its round."""
        row: dict[str, float | None] = {"slot": passed.slot, "start_s": passed.start_s}
        row |= self._count_columns(passed, engine)
        row |= self._use_columns(passed.slot, engine)
        row["round"] = float(passed.round is not None)
        row["skipped"] = float(passed.skipped)
        if passed.round is not None:
            row |= self._round_columns(passed, passed.round, engine)
        if self.moving is not None:
            ideal = passed.slot % self._ideal_every == 0
            row |= self.moving.record(passed, engine, ideal=ideal)
        self.slots.add_row(row)

    def _count_columns(self, passed: SlotResult, engine: Engine) -> dict[str, float | None]:
        self.tenants.grow(len(engine.names.tenants))
        self._grow_kinds(len(engine.names.demand))
        tenants, kinds = self.tenants.rows, self.kinds.rows
        for arrived in passed.arrived:
            np.add.at(tenants[:, 0], arrived.tenant, arrived.count)
            np.add.at(kinds[:, 0], arrived.kind, arrived.count)
        for vms in passed.ended:
            _count_requested(tenants[:, 2], vms.tenant, vms)
        for vms in passed.lost:
            _count_requested(tenants[:, 3], vms.tenant, vms)
            _count_requested(kinds[:, 2], vms.kind, vms)
        gone = passed.given_up
        _count_requested(tenants[:, 4], gone.tenant, gone)
        self._add_waits(gone, passed.start_s - gone.since_s)
        placed = passed.round.placed if passed.round is not None else None
        if placed is not None:
            _count_requested(tenants[:, 1], placed.tenant, placed)
            _count_requested(kinds[:, 1], placed.kind, placed)
        if passed.stood is not None:
            self.stood += int(passed.stood.count.sum())
        waiting = engine.waiting
        return {
            "requests_arrived": float(sum(len(each) for each in passed.arrived)),
            "vms_arrived": _sum_vms(passed.arrived),
            "vms_placed": 0.0 if placed is None else float(placed.count.sum()),
            "vms_ended": _sum_vms(passed.ended),
            "vms_lost": _sum_vms(passed.lost),
            "vms_given_up": float(passed.given_up.count.sum()),
            "vms_running": float(engine.names.vms.sum()),
            "requests_waiting": float(len(waiting)),
            "vms_waiting": float(waiting.count.sum()),
            "oldest_wait_s": float(passed.start_s - waiting.since_s.min()) if len(waiting) else 0.0,
        }

    def _grow_kinds(self, kinds: int) -> None:
        self.kinds.grow(kinds)
        more = kinds - len(self._waited_s_of_kind)
        if more > 0:
            self._waited_s_of_kind = np.concatenate([self._waited_s_of_kind, np.zeros(more)])

    def _add_waits(self, rows: VmRows | WaitingRows, wait_s: FloatArray) -> None:
        """Add VM-seconds of waiting, (rows,), to the kinds of VMs that waited."""
        np.add.at(self._waited_s_of_kind, rows.kind, wait_s * rows.count)

    def waited_s_of_kind(self, engine: Engine, until_s: float) -> FloatArray:
        """Return the VM-seconds that VMs of each kind waited, (K,), also those never placed."""
        waited = self._waited_s_of_kind.copy()
        waiting = engine.waiting
        np.add.at(waited, waiting.kind, (until_s - waiting.since_s) * waiting.count)
        return waited

    def _use_columns(self, slot: int, engine: Engine) -> dict[str, float | None]:
        """Return the used fraction of each resource, on all hosts and on each class of hosts."""
        cluster = engine.cluster
        there = cluster.present
        capacity = np.where(there[:, None], cluster.capacity, 0)
        committed = cluster.committed
        row: dict[str, float | None] = {}
        free = capacity - np.minimum(committed, capacity)
        for r, name in enumerate(self.resources):
            offered = np.bincount(self._class_of, capacity[:, r], minlength=len(self.classes))
            used = np.bincount(self._class_of, committed[:, r], minlength=len(self.classes))
            row[f"used:{name}"] = _fraction(used.sum(), offered.sum())
            for place, host_class in enumerate(self.classes):
                row[f"used:{name}:{host_class}"] = _fraction(used[place], offered[place])
        row["fragmentation"] = self._fragmentation(free, engine)
        if slot % self._picture_every == 0:
            self._record_host_use(slot, capacity[:, 0], committed[:, 0])
        return row

    def _fragmentation(self, free: IntArray, engine: Engine) -> float:
        """Return the fraction of the free first resource on hosts that are too full for a VM.

        The mean over the VMs requested so far, of the most requested kinds.
        """
        total = float(free[:, 0].sum())
        requested = self.kinds.rows[:, 0]
        if total == 0 or not requested.any():
            return 0.0
        kinds = np.argsort(-requested, kind="stable")[:_KINDS_FOR_FRAGMENTS]
        weight = requested[kinds].astype(np.float64)
        too_full = np.zeros(len(kinds))
        for place, kind in enumerate(kinds.tolist()):
            full = (free < engine.names.demand[kind]).any(axis=1)
            too_full[place] = float(free[full, 0].sum())
        return float((too_full * weight).sum() / (weight.sum() * total))

    def _record_host_use(self, slot: int, capacity: IntArray, committed: IntArray) -> None:
        hosts = np.flatnonzero(capacity)
        part = committed[hosts] / capacity[hosts]
        self.pictures.add(slot=np.full(len(hosts), slot), host=hosts, part=part)
        self._pictured += 1
        if self._pictured >= 2 * PICTURES_KEPT:
            self._picture_every *= 2
            keep = self.pictures.column("slot") % self._picture_every == 0
            fewer = Stacks(*self.pictures.names)
            fewer.add(**{name: self.pictures.column(name)[keep] for name in fewer.names})
            self._pictured = len(np.unique(fewer.column("slot")))
            self.pictures = fewer

    def _round_columns(
        self, passed: SlotResult, round_: Round, engine: Engine
    ) -> dict[str, float | None]:
        snapshot, placed = round_.snapshot, round_.placed
        self._record_placements(passed.start_s, placed, round_.wait_s)
        if round_.fallback_reason is not None:
            self.fallbacks.append((passed.slot, round_.fallback_reason))
        row: dict[str, float | None] = {
            "fallback": float(round_.fallback_reason is not None),
            "cut": float(round_.allocation.cut),
        }
        waits: Counter[Reason] = Counter()
        for left in round_.allocation.left_out:  # thousands, where hosts are too few
            waits[left.reason] += left.count
        for reason, count in waits.items():
            row[f"left_out:{reason.value}"] = float(count)
            self.reasons[reason.value] = self.reasons.get(reason.value, 0) + count
        held = engine.names.held[round_.tenants]
        shares = dominant_shares(held, snapshot.pool)
        top = np.argsort(-shares, kind="stable")[:SHARES_KEPT]
        top = top[shares[top] > 0]
        self.shares.add(
            slot=np.full(len(top), passed.slot), tenant=round_.tenants[top], share=shares[top]
        )
        row["tenants"] = float(len(round_.tenants))
        row["largest_share"] = float(shares.max(initial=0.0))
        if passed.slot % self._ideal_every == 0:
            row["fair_distance"] = fair_distance(shares, target_shares(snapshot))
            row |= self._bound_columns(round_)
        return row

    def _bound_columns(self, round_: Round) -> dict[str, float | None]:
        """Return the placed amount of the first resource, and the upper bound on it."""
        snapshot = round_.snapshot
        try:
            bound = allocation_bound(snapshot, 0)
        except SolverError:  # amounts too far apart for a bound: nothing is decided by it
            return {}
        rows, _, counts = round_.allocation.placed.T
        placed = float((counts * snapshot.demand[rows, 0]).sum())
        pool = float(snapshot.pool[0])
        return {"placed_part": _fraction(placed, pool), "bound_part": _fraction(bound, pool)}

    def _record_placements(self, start_s: float, placed: VmRows, wait_s: FloatArray) -> None:
        requested = placed.request >= 0
        if not requested.all():
            placed, wait_s = placed.where(requested), wait_s[requested]
        self.placements.add(
            request=placed.request,
            tenant=placed.tenant,
            host=placed.host,
            count=placed.count,
            arrival_s=start_s - wait_s,
            start_s=np.full(len(placed), start_s),
            end_s=placed.end_s,
        )
        if len(self._waited_s) < len(self.tenants):
            more = len(self.tenants) - len(self._waited_s)
            self._waited_s = np.concatenate([self._waited_s, np.zeros(more)])
        np.add.at(self._waited_s, placed.tenant, wait_s * placed.count)
        self._add_waits(placed, wait_s)

    @property
    def waited_s(self) -> FloatArray:
        """VM-seconds that each tenant's VMs waited before they were placed, (N,)."""
        missing = len(self.tenants) - len(self._waited_s)
        return np.concatenate([self._waited_s, np.zeros(max(missing, 0))])


def _count_requested(counts: IntArray, of: IntArray, rows: VmRows | WaitingRows) -> None:
    """Add VMs to the counts of their tenants or kinds, except those that ran at the beginning."""
    requested = rows.request >= 0
    np.add.at(counts, of[requested], rows.count[requested])


def _sum_vms(parts: Sequence[WaitingRows | VmRows]) -> float:
    return float(sum(int(part.count.sum()) for part in parts))


def _fraction(used: float, offered: float) -> float | None:
    return float(used / offered) if offered > 0 else None
