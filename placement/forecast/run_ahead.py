"""Simulate future rounds on samples of arrivals and lifetimes.

In each sample VMs end after drawn lifetimes, requests arrive as in the recent past, and the
policy decides slot after slot, as the control centre would. The times at which a request is
placed in the samples estimate its wait.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from placement.forecast.current_state import CurrentState
from placement.forecast.lifetimes import Lifetimes
from placement.forecast.narrowed_snapshot import narrow_snapshot
from placement.forecast.request_queues import RequestQueues, merge_into_queues
from placement.model.arrays import FloatArray, IntArray
from placement.model.constraints import Constraints
from placement.model.decision import decide
from placement.model.snapshot import Allocation, Policy, QuotaHeadroom, Snapshot

#: Slots that are decided one by one; later ones are decided together, each step this much longer.
_SLOT_BY_SLOT: Final = 10
_LONGER: Final = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAheadOptions:
    """Options of the simulation of future rounds.

    Parameters
    ----------
    policy : callable
        Returns the policy for some hosts, given their indices of H, shape (H',).
    """

    policy: Callable[[IntArray], Policy]
    slot_length_s: float
    budget_units: int | None
    horizon_s: float = 7 * 86_400.0
    samples: int = 40
    seed: int = 0
    whole: bool = False  #: see `narrow_snapshot`


def decision_times(slot_length_s: float, horizon_s: float) -> FloatArray:
    """Return the times of simulated rounds, (steps,): seconds from now, in whole slots.

    The first steps are single slots. Later steps are longer, as the far future is known less
    exactly.
    """
    last = max(1, math.floor(horizon_s / slot_length_s))
    slots = list(range(1, min(_SLOT_BY_SLOT, last) + 1))
    while slots[-1] < last:
        slots.append(min(last, max(slots[-1] + 1, math.floor(slots[-1] * _LONGER))))
    return np.array(slots, dtype=np.float64) * slot_length_s


def simulate_waits(
    present: CurrentState,
    lifetimes: Lifetimes,
    ahead: RunAheadOptions,
    is_over: Callable[[], bool] = lambda: False,
) -> FloatArray:
    """Simulate future rounds; return the wait of each waiting request in each sample, in seconds.

    Parameters
    ----------
    is_over : callable
        Returns whether time is up. Samples that are not finished by then do not count.

    Returns
    -------
    ndarray of float64, shape (S, Q)
        Seconds; inf for rows not placed by the horizon, nan for rows that do not wait.
    """
    queues = merge_into_queues(present)
    known = _SampleInputs.of(queues.present, lifetimes)
    found = []
    for number in range(ahead.samples):
        waits = _FutureSample(queues, known, lifetimes, ahead, number).run(is_over)
        if waits is None:
            break
        found.append(waits)
    return np.array(found, dtype=np.float64).reshape(len(found), len(present.snapshot.count))


@dataclass(frozen=True, slots=True, eq=False)
class _SampleInputs:
    """The inputs that all samples of the future share."""

    room: IntArray  #: (H, R)
    curve: IntArray  #: (V,) of the VMs that run
    together: IntArray  #: (V,) which of them end together, numbered from 0
    new_curve: IntArray  #: (Q,) of new VMs of each row

    @classmethod
    def of(cls, present: CurrentState, lifetimes: Lifetimes) -> _SampleInputs:
        """Compute the inputs of the samples from the current state."""
        running = present.running
        _, together = np.unique(running.request, return_inverse=True)
        return cls(
            room=present.room(),
            curve=lifetimes.curves_of(running.groups, running.age_s),
            together=together.ravel().astype(np.int64),
            new_curve=lifetimes.curves_of(present.groups, np.zeros(len(present.groups))),
        )


@dataclass(slots=True)
class _EndingVms:
    """VMs that end in one step of a sample: host, tenant, number and demand of each row."""

    host: list[IntArray] = field(default_factory=list)
    tenant: list[IntArray] = field(default_factory=list)
    count: list[IntArray] = field(default_factory=list)
    demand: list[IntArray] = field(default_factory=list)

    def add(self, host: IntArray, tenant: IntArray, count: IntArray, demand: IntArray) -> None:
        """Add rows of VMs that end in this step."""
        self.host.append(host)
        self.tenant.append(tenant)
        self.count.append(count)
        self.demand.append(demand)


class _FutureSample:
    """One sample of the future: arrivals, ends of VMs and rounds, step by step."""

    def __init__(
        self,
        queues: RequestQueues,
        known: _SampleInputs,
        lifetimes: Lifetimes,
        ahead: RunAheadOptions,
        number: int,
    ) -> None:
        steps = decision_times(ahead.slot_length_s, ahead.horizon_s)
        rng = np.random.default_rng([ahead.seed, number])
        lives = lifetimes.draw_curves(rng)
        present = queues.present
        snapshot, running = present.snapshot, present.running
        self._queues, self._present, self._known, self._lives = queues, present, known, lives
        self._waiting = queues.waiting
        self._steps, self._ahead, self._rng = steps, ahead, rng
        self._room, self._held = known.room.copy(), snapshot.held.copy()
        self._count, self._minimum = snapshot.count.copy(), snapshot.min_count.copy()
        self._allowed = np.array(
            [allowance.room for allowance in snapshot.allowances], dtype=np.int64
        )
        self._constraints = snapshot.constraints
        self._ends: dict[int, _EndingVms] = {}
        level = rng.random(int(known.together.max(initial=-1)) + 1)[known.together]
        left_s = running.ends_s(lives.remaining_lives_s(known.curve, running.age_s, level))
        self._schedule_end(left_s, running.host, running.tenant, running.count, running.demand)
        self._began_s = float(rng.random()) * present.arrivals.span_s

    def run(self, is_over: Callable[[], bool]) -> FloatArray | None:
        """Return the second at which each request is placed; None if time was up first."""
        waits = np.where(self._waiting, np.inf, np.nan)
        waiting = np.flatnonzero(self._waiting)
        passed = np.zeros_like(self._count)  # VMs of each queue that were placed
        may_place, before_s = True, 0.0
        for step, at_s in enumerate(self._steps.tolist()):
            changed = self._apply_changes(step, before_s)
            if (changed or may_place) and self._count.any():
                if is_over():
                    return None
                placed, cut = self._decide_step(step, at_s)
                may_place = cut or bool(len(placed))
                np.add.at(passed, placed[:, 0], placed[:, 2])
                done = passed[self._queues.queue[waiting]] >= self._queues.place[waiting]
                waits[waiting[done]] = self._slot_of_step(before_s, at_s)
                waiting = waiting[~done]
                if not len(waiting):
                    break
            before_s = at_s
        return waits

    def _slot_of_step(self, before_s: float, at_s: float) -> float:
        """Return a random slot of a simulated step, as one step stands for several slots."""
        slot_s = self._ahead.slot_length_s
        first, last = round(before_s / slot_s) + 1, round(at_s / slot_s)
        return float(self._rng.integers(first, last + 1)) * slot_s

    def _schedule_end(
        self,
        after_s: FloatArray,
        host: IntArray,
        tenant: IntArray,
        count: IntArray,
        demand: IntArray,
    ) -> None:
        """Schedule the end of VMs, ``after_s`` seconds from now."""
        step = np.searchsorted(self._steps, after_s, side="left")
        order = np.argsort(step, kind="stable")
        order = order[step[order] < len(self._steps)]
        if not len(order):
            return
        numbers, starts = np.unique(step[order], return_index=True)
        for number, rows in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
            ends = self._ends.setdefault(number, _EndingVms())
            ends.add(host[rows], tenant[rows], count[rows], demand[rows])

    def _arrivals_between(self, before_s: float, at_s: float) -> IntArray:
        """Return the VMs of each row that arrive in a step, (Q,), as in the recent past."""
        came, rows = self._present.arrivals, len(self._count)
        if not len(came.at_s) or came.span_s <= 0:
            return np.zeros(rows, dtype=np.int64)

        def arrivals_until(time_s: float) -> IntArray:
            """Return the VMs of each row that have arrived by a time."""
            laps, rest_s = divmod(self._began_s + time_s, came.span_s)
            stop = int(np.searchsorted(came.at_s, rest_s, side="right"))
            all_, some = (
                np.bincount(came.row[:end], weights=came.count[:end], minlength=rows)
                for end in (len(came.row), stop)
            )
            return np.asarray(laps * all_ + some, dtype=np.int64)

        return arrivals_until(at_s) - arrivals_until(before_s)

    def _apply_changes(self, step: int, before_s: float) -> bool:
        """Apply ends and arrivals before a decision; return whether anything changed."""
        ends = self._ends.pop(step, None)
        if ends is not None:
            host, tenant = np.concatenate(ends.host), np.concatenate(ends.tenant)
            count = np.concatenate(ends.count)
            self._take_room(host, tenant, -count, np.concatenate(ends.demand))
        at_s = float(self._steps[step])
        self._count[self._present.ends_in_s <= at_s] = 0
        came = self._arrivals_between(before_s, at_s)
        self._count += came
        return ends is not None or bool(came.any())

    def _take_room(
        self, host: IntArray, tenant: IntArray, count: IntArray, demand: IntArray
    ) -> None:
        """Take room on hosts and in quotas for VMs; a negative count returns it."""
        amounts = count[:, None] * demand
        np.subtract.at(self._room, host, amounts)
        np.add.at(self._held, tenant, amounts)
        for place, allowance in enumerate(self._present.snapshot.allowances):
            rows = np.isin(tenant, allowance.tenants)
            given = count if allowance.resource is None else amounts[:, allowance.resource]
            self._allowed[place] -= int(given[rows].sum())

    def _decide_step(self, step: int, at_s: float) -> tuple[IntArray, bool]:
        """Decide a simulated round; return rows of (row, host, count), and whether it was cut."""
        ahead = self._ahead
        part = narrow_snapshot(self._current_snapshot(at_s), whole=ahead.whole)
        # Below 2**63, and apart from the seeds of other samples and steps.
        seed = int(self._rng.integers(2**62)) + step
        allocation: Allocation = decide(
            part.snapshot, ahead.policy(part.hosts), seed=seed, budget_units=ahead.budget_units
        )
        placed = allocation.placed.copy()
        placed[:, 0], placed[:, 1] = part.rows[placed[:, 0]], part.hosts[placed[:, 1]]
        if len(placed):
            self._place_rows(placed, at_s)
        return placed, allocation.cut

    def _current_snapshot(self, at_s: float) -> Snapshot:
        """Return the snapshot of the simulated cluster at a time."""
        first, slot_s = self._present.snapshot, self._ahead.slot_length_s
        return dataclasses.replace(
            first,
            free=np.maximum(self._room, 0),
            count=self._count.copy(),
            min_count=np.clip(self._minimum, 1, np.maximum(self._count, 1)),
            age=np.where(first.count > 0, first.age + round(at_s / slot_s) - 1, 0),
            held=self._held.copy(),
            constraints=self._constraints,
            allowances=tuple(
                QuotaHeadroom(tenants=each.tenants, resource=each.resource, room=max(0, room))
                for each, room in zip(first.allowances, self._allowed.tolist(), strict=True)
            ),
        )

    def _place_rows(self, placed: IntArray, at_s: float) -> None:
        """Place rows of (row, host, count), and schedule when their VMs end."""
        rows, hosts, counts = placed.T
        first = self._present.snapshot
        self._take_room(hosts, first.tenant[rows], counts, first.demand[rows])
        np.subtract.at(self._count, rows, counts)
        self._minimum[rows] = 1
        # VMs of one row that are placed at once end together, as those of a request do.
        distinct, of_row = np.unique(rows, return_inverse=True)
        level = self._rng.random(len(distinct))[of_row.ravel()]
        left_s = self._lives.remaining_lives_s(
            self._known.new_curve[rows], np.zeros(len(rows), dtype=np.float64), level
        )
        ends_s = np.minimum(at_s + left_s, self._present.ends_in_s[rows])
        self._schedule_end(ends_s, hosts, first.tenant[rows], counts, first.demand[rows])
        if self._constraints is not None:
            self._constraints = _constraints_after(self._constraints, placed)


def _constraints_after(constraints: Constraints, placed: IntArray) -> Constraints:
    """Return the constraints once simulated rows of (request, host, count) are placed."""
    hosts_of: dict[int, set[int]] = {}
    for row, host, _ in placed.tolist():
        hosts_of.setdefault(row, set()).add(host)
    groups = tuple(
        dataclasses.replace(
            group,
            hosts=tuple(
                sorted({*group.hosts}.union(*(hosts_of.get(row, set()) for row in group.requests)))
            ),
        )
        for group in constraints.groups
    )
    spreads = []
    for spread in constraints.spreads:
        counts = list(spread.placed)
        for row, host, count in placed.tolist():
            if row == spread.request and constraints.zones[host] >= 0:
                counts[constraints.zones[host]] += count
        spreads.append(dataclasses.replace(spread, placed=tuple(counts)))
    return dataclasses.replace(constraints, groups=groups, spreads=tuple(spreads))
