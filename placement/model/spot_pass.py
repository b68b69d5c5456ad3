"""Spot VMs of a round: preempt them for unplaced requests, and place new ones.

The policy decides as if there were no requests for spot VMs. If it leaves requests out, it decides
what it would place if the spot VMs were not there: spot VMs end for those requests. Only then
requests for spot VMs are placed, on what is left.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from placement.model.arrays import IntArray
from placement.model.budget import Budget
from placement.model.priorities import apply_priorities
from placement.model.snapshot import Allocation, LeftOut, Policy, Reason, Snapshot, Spot

#: Reasons that more room would end.
_FOR_ROOM: Final = frozenset(
    {Reason.NO_ROOM, Reason.GANG_NOT_WHOLE, Reason.ABOVE_OVERLOAD, Reason.NO_SLOTS}
)
#: How many of the youngest spot VMs of each host may end: at first, then, ...; at last all.
_LEVELS: Final = (1, 2, 4, 16)

_Counts = Counter[tuple[int, int]]  #: VMs by request and host


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotPass:
    """Parameters of the spot pass of a round."""

    policy: Policy  #: places spot VMs, and decides for which requests others end
    #: returns what is to stay free on each host, (H, R), once rows (P, 3) are placed
    kept: Callable[[IntArray], IntArray] | None = None


def decide_spot(
    snapshot: Snapshot,
    allocation: Allocation,
    spot_pass: SpotPass,
    *,
    seed: int,
    budget_units: int | None,
) -> Allocation:
    """Decide the spot VMs of a round: place new ones, and end some for unplaced requests.

    Parameters
    ----------
    snapshot : Snapshot
        With ``spot``; what no round could place has a count of 0.
    allocation : Allocation
        An allocation of the same snapshot that places no spot VMs.
    spot_pass : SpotPass
    seed, budget_units
        As for the policy itself, which runs at most seven times more.

    Returns
    -------
    Allocation
        ``details["spot"]`` has ``ends``, rows of spot VM and the request for which it ends, and
        ``lets_in``, rows of request, host and count. Those let in, now or by rounds before, are
        left out as `Reason.SPOT_ENDING`.

    Notes
    -----
    A first run of the policy, on all room that spot VMs hold, decides for which requests they end.
    Further runs decide the hosts: the youngest spot VM of each host may end, then the two
    youngest, and so on, so that few end. Members of hard groups and of spreads stay on the hosts
    of the first run, as their hosts depend on each other. On each host only the VMs end that
    must.
    """
    spot = snapshot.spot
    assert spot is not None  # noqa: S101 - the caller checked
    rest = dataclasses.replace(snapshot.after_placing(allocation.placed), spot=None)
    free = rest.free
    if spot_pass.kept is not None:
        free = np.maximum(free - spot_pass.kept(allocation.placed), 0)
    rest = dataclasses.replace(rest, free=free - _room_freed_for_requests(rest, spot, free))
    policy = _CostedPolicy(spot_pass.policy, seed, budget_units)
    ends, lets_in = _vms_to_end(rest, spot, allocation, policy)
    after = rest.after_placing(_rows_array(lets_in)) if lets_in else rest
    placed = _place_spot_vms(rest, spot, after, _closed_hosts(spot, allocation, lets_in), policy)
    return dataclasses.replace(
        allocation,
        placed=_sort_rows(np.concatenate([allocation.placed, placed.placed])),
        left_out=(*_replace_reasons(allocation.left_out, spot, lets_in), *placed.left_out),
        work=allocation.work + policy.work,
        cut=allocation.cut or policy.cut,
        details={
            **allocation.details,
            "spot": {
                "ends": [list(each) for each in ends],
                "lets_in": [[*where, count] for where, count in sorted(lets_in.items())],
            },
        },
    )


class _CostedPolicy:
    """Runs the policy for the spot pass, and adds up its work."""

    def __init__(self, policy: Policy, seed: int, budget_units: int | None) -> None:
        self._policy, self._seed, self._units = policy, seed, budget_units
        self.work, self.cut = 0, False

    def decide(self, snapshot: Snapshot) -> Allocation:
        """Run the policy, apply priorities, and count the work."""
        plain = dataclasses.replace(snapshot, priority=None)
        rng = np.random.default_rng(self._seed)
        found = self._policy.place(plain, rng, Budget(self._units))
        self.work += found.work
        self.cut = self.cut or found.cut
        if snapshot.priority is None:
            return found
        return apply_priorities(snapshot, snapshot.priority, found)


def _room_freed_for_requests(rest: Snapshot, spot: Spot, free: IntArray) -> IntArray:
    """Return the room on each host, (H, R), that spot VMs freed for requests.

    Room that ending spot VMs still hold is not free yet and is not counted.
    """
    promised = np.zeros_like(free)
    for request, host, count in spot.kept:
        promised[host] += min(count, int(rest.count[request])) * rest.demand[request]
    np.subtract.at(promised, spot.host[~spot.may_end], spot.amounts[~spot.may_end])
    return np.clip(promised, 0, free)


def _vms_to_end(
    rest: Snapshot, spot: Spot, allocation: Allocation, policy: _CostedPolicy
) -> tuple[list[tuple[int, int]], _Counts]:
    """Return the spot VMs that end, and the requests and hosts that get their room."""
    wanted = _vms_without_room(rest, spot, allocation)
    if not spot.may_end.any() or not wanted.any():
        return [], Counter()
    wanted_snapshot = dataclasses.replace(rest, count=wanted)
    first = policy.decide(_snapshot_without_youngest(wanted_snapshot, spot, len(spot.host)))
    ruled = _interdependent_requests(rest)
    whole: _Counts = Counter()
    for request, host, count in first.placed.tolist():
        whole[request, host] += count
    few: _Counts = Counter({row: count for row, count in whole.items() if row[0] in ruled})
    may = np.zeros_like(wanted)
    for (request, _), count in whole.items():
        may[request] += count
    may[list(ruled)] = 0
    maximum = int(np.bincount(spot.host[spot.may_end]).max())
    for level in (*(each for each in _LEVELS if each < maximum), maximum):
        if not may.any():
            break
        # A gang that does not fit whole at one level may at another.
        minimum = np.where(_placed_counts(few, len(may)) > 0, 1, rest.min_count)
        may_be = np.where(may >= minimum, may, 0)
        if not may_be.any():
            continue
        there = dataclasses.replace(rest, count=may_be, min_count=minimum)
        found = policy.decide(
            _snapshot_less_rows(_snapshot_without_youngest(there, spot, level), rest, few)
        ).placed
        for request, host, count in found.tolist():
            few[request, host] += count
            may[request] -= count
    choices = []
    for rows in (few, whole):
        ends = _ends_for_rows(rest, spot, rows)
        hosts = {int(spot.host[each]) for each, _ in ends}
        # Of a gang all places are kept: it takes them together, or none.
        lets_in = Counter(
            {
                (request, host): count
                for (request, host), count in rows.items()
                if host in hosts or (ends and rest.min_count[request] > 1)
            }
        )
        choices.append((-sum(lets_in.values()), len(ends), ends, lets_in))
    best = min(choices, key=lambda choice: choice[:2])
    return best[2], best[3]


def _vms_without_room(rest: Snapshot, spot: Spot, allocation: Allocation) -> IntArray:
    """Return the unplaced VMs of each request for which spot VMs may end, (Q,)."""
    wanted = np.zeros(len(rest.count), dtype=np.int64)
    for left in allocation.left_out:
        if left.reason in _FOR_ROOM and not spot.asks[left.request]:
            wanted[left.request] += left.count
    for request, _, count in spot.kept:  # some end, or ended, for these
        wanted[request] = max(0, wanted[request] - count)
    wanted[wanted < rest.min_count] = 0
    if rest.constraints is not None:
        placed = set(allocation.placed[:, 0].tolist())
        for group in rest.constraints.groups:
            if group.hard and placed & set(group.requests):
                wanted[[*group.requests]] = 0  # where they may go is known in the next round
        wanted[[each.request for each in rest.constraints.spreads if each.request in placed]] = 0
    return wanted


def _interdependent_requests(snapshot: Snapshot) -> set[int]:
    """Return the requests whose hosts depend on each other by a hard group or a spread."""
    rules = snapshot.constraints
    if rules is None:
        return set()
    ruled = {request for group in rules.groups if group.hard for request in group.requests}
    return ruled | {each.request for each in rules.spreads}


def _snapshot_without_youngest(snapshot: Snapshot, spot: Spot, max_vms: int) -> Snapshot:
    """Return the snapshot without the ``max_vms`` youngest spot VMs of each host."""
    free = snapshot.free.copy()
    for host, vms in _vms_by_host(spot):
        free[host] += spot.amounts[vms[:max_vms]].sum(axis=0)
    return dataclasses.replace(snapshot, free=free)


def _vms_by_host(spot: Spot) -> Iterator[tuple[int, list[int]]]:
    """Yield hosts with the spot VMs that may end there, the youngest first."""
    of_host: defaultdict[int, list[int]] = defaultdict(list)
    for vm in np.flatnonzero(spot.may_end)[::-1].tolist():
        of_host[int(spot.host[vm])].append(vm)
    yield from sorted(of_host.items())


def _snapshot_less_rows(there: Snapshot, rest: Snapshot, rows: _Counts) -> Snapshot:
    """Return a snapshot whose hosts and quotas have lost what the rows take."""
    if not rows:
        return there
    placed = _rows_array(rows)
    free = there.free.copy()
    np.subtract.at(free, placed[:, 1], placed[:, 2:] * rest.demand[placed[:, 0]])
    after = rest.after_placing(placed)
    # Rows may need more than may end at this level: nothing is left there.
    return dataclasses.replace(
        there, free=np.maximum(free, 0), held=after.held, allowances=after.allowances
    )


def _ends_for_rows(rest: Snapshot, spot: Spot, rows: _Counts) -> list[tuple[int, int]]:
    """Return the spot VMs that end for rows of requests, each with its request."""
    on_host: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for (request, host), count in sorted(rows.items()):
        on_host[host].append((request, count))
    ends: list[tuple[int, int]] = []
    for host, vms in _vms_by_host(spot):
        if host not in on_host:
            continue
        takes = [count * rest.demand[request] for request, count in on_host[host]]
        short = np.sum(takes, axis=0) - rest.free[host]
        ending: list[int] = []
        for vm in vms:
            if (short <= 0).all():
                break
            if (spot.amounts[vm][short > 0] > 0).any():
                ending.append(vm)
                short = short - spot.amounts[vm]
        for vm in reversed(ending.copy()):  # the oldest first: it has most to lose
            if (short + spot.amounts[vm] <= 0).all():
                ending.remove(vm)
                short = short + spot.amounts[vm]
        ends += _ends_on_host(rest, spot, on_host[host], rest.free[host], ending)
    return sorted(ends)


def _ends_on_host(
    rest: Snapshot,
    spot: Spot,
    lets_in: Sequence[tuple[int, int]],
    free: IntArray,
    ending: Sequence[int],
) -> Iterator[tuple[int, int]]:
    """Yield each spot VM that ends on a host, with the first request that needs its room."""
    room, vms, taken = free, list(ending), np.zeros_like(free)
    for request, count in lets_in:
        taken = taken + count * rest.demand[request]
        while vms and (taken > room).any():
            room = room + spot.amounts[vms[0]]
            yield vms.pop(0), request


def _closed_hosts(spot: Spot, allocation: Allocation, lets_in: _Counts) -> list[int]:
    """Return the hosts that take no new spot VMs: their free room is kept for others."""
    waits = {left.request for left in allocation.left_out}
    kept_for = [
        *allocation.details.get("freed", ()),
        *allocation.details.get("holding", ()),
        *((request, host) for request, host, _ in spot.kept),
    ]
    return sorted(
        {host for request, host in kept_for if request in waits} | {host for _, host in lets_in}
    )


def _place_spot_vms(
    rest: Snapshot, spot: Spot, after: Snapshot, closed: list[int], policy: _CostedPolicy
) -> Allocation:
    """Place the requested spot VMs in the room that other requests leave."""
    free = rest.free.copy()
    free[closed] = 0
    free -= _margin_room(free, rest.pool, spot.margin)
    snapshot = dataclasses.replace(
        rest,
        free=free,
        count=np.where(spot.asks, rest.count, 0),
        held=spot.held(len(rest.weight)),
        memory=None,  # it is of what ordinary VMs held
        age=np.zeros_like(rest.age),
        allowances=after.allowances,
    )
    if not snapshot.count.any():
        return Allocation(placed=np.zeros((0, 3), dtype=np.int64), left_out=())
    return policy.decide(snapshot)


def _margin_room(free: IntArray, pool: IntArray, thousandths: int) -> IntArray:
    """Return the part of the free room, (H, R), that stays free on the hosts with most of it."""
    part = (free / np.maximum(pool, 1))[:, pool > 0].min(axis=1, initial=np.inf)
    order = np.argsort(-part, kind="stable")
    before = np.cumsum(free[order], axis=0) - free[order]
    kept = np.zeros_like(free)
    kept[order] = np.clip(-(-pool * thousandths // 1000) - before, 0, free[order])
    return kept


def _replace_reasons(
    left_out: Sequence[LeftOut], spot: Spot, lets_in: _Counts
) -> Iterator[LeftOut]:
    """Yield the unplaced VMs; where spot VMs make room for them, that is the reason."""
    coming = Counter({request: 0 for request, _ in lets_in})
    for (request, _), count in lets_in.items():
        coming[request] += count
    for request, _, count in spot.kept:
        coming[request] += count
    for left in left_out:
        count = min(left.count, coming[left.request]) if left.reason in _FOR_ROOM else 0
        coming[left.request] -= count
        for reason, number in ((Reason.SPOT_ENDING, count), (left.reason, left.count - count)):
            if number:
                yield dataclasses.replace(left, count=number, reason=reason)


def _placed_counts(rows: _Counts, requests: int) -> IntArray:
    """Return the VMs of each request in these rows, (Q,)."""
    given = np.zeros(requests, dtype=np.int64)
    for (request, _), count in rows.items():
        given[request] += count
    return given


def _rows_array(rows: _Counts) -> IntArray:
    """Return rows of request, host and count as a sorted array, (P, 3)."""
    return np.array([(*row, count) for row, count in sorted(rows.items())], dtype=np.int64).reshape(
        -1, 3
    )


def _sort_rows(placed: IntArray) -> IntArray:
    """Sort placed rows by request, then host."""
    order: IntArray = placed[np.lexsort((placed[:, 1], placed[:, 0]))]
    return order
