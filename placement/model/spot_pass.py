"""Borrowed and spot VMs of a round: end some for unplaced requests, and place new ones.

The policy decides as if nobody requested borrowed or spot VMs. If it leaves requests out, it
decides what it would place if the spot VMs were not there: spot VMs end for those requests. Where
that is not enough, it decides the same for borrowed VMs, one tenant after the other, as far as
shares let it. Only then requests for borrowed VMs are placed on what is left, and after them
requests for spot VMs.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from placement.model.arrays import SHARE_TOLERANCE, BoolArray, IntArray
from placement.model.borrowed_shares import BorrowedShares, Gain, Loss
from placement.model.preemption import (
    CostedPolicy,
    Ends,
    Preemptible,
    RowCounts,
    placed_counts,
    rows_array,
    vms_to_end,
)
from placement.model.snapshot import Allocation, Borrowed, LeftOut, Policy, Reason, Snapshot, Spot

#: Reasons that more room would end.
_FOR_ROOM: Final = frozenset(
    {Reason.NO_ROOM, Reason.GANG_NOT_WHOLE, Reason.ABOVE_OVERLOAD, Reason.NO_SLOTS}
)
#: Maximum looks of a round for borrowed VMs that end, each for one tenant.
_MAX_TAKES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotPass:
    """Parameters of the pass of borrowed and spot VMs in a round."""

    policy: Policy  #: places borrowed and spot VMs, and decides for which requests others end
    #: returns what is to stay free on each host, (H, R), once rows (P, 3) are placed
    kept: Callable[[IntArray], IntArray] | None = None


def decide_spot_and_borrowed(
    snapshot: Snapshot,
    allocation: Allocation,
    spot_pass: SpotPass,
    *,
    seed: int,
    budget_units: int | None,
) -> Allocation:
    """Decide the borrowed and spot VMs of a round: end some for unplaced requests, place new ones.

    Parameters
    ----------
    snapshot : Snapshot
        With ``spot``, ``borrowed`` or both; what no round could place has a count of 0.
    allocation : Allocation
        An allocation of the same snapshot that places no borrowed and no spot VMs.
    spot_pass : SpotPass
    seed, budget_units
        As for the policy itself, which runs at most seven times more for spot VMs. For borrowed
        VMs it runs at most six times in each of eight takes, and once more.

    Returns
    -------
    Allocation
        ``details["spot"]`` and ``details["borrowed"]`` have ``ends``, rows of VM and the request
        for which it ends, and ``lets_in``, rows of request, host and count. Those let in, now or
        by rounds before, are left out as `Reason.SPOT_ENDING`.

    Notes
    -----
    A first run of the policy, on all room that spot VMs hold, decides for which requests they end.
    Further runs decide the hosts: the youngest spot VM of each host may end, then the two
    youngest, and so on, so that few end. Members of hard groups and of spreads stay on the hosts
    of the first run, as their hosts depend on each other. On each host only the VMs end that
    must. The same is done with the borrowed VMs that a tenant may take.
    """
    borrowed = snapshot.borrowed
    spot = _no_spot(snapshot) if snapshot.spot is None else snapshot.spot
    rest = snapshot.after_placing(allocation.placed)
    rest = dataclasses.replace(rest, spot=None, borrowed=None)
    free = rest.free
    if spot_pass.kept is not None:
        free = np.maximum(free - spot_pass.kept(allocation.placed), 0)
    rest = dataclasses.replace(
        rest, free=free - _room_freed_for_requests(rest, spot, borrowed, free)
    )
    policy = CostedPolicy(spot_pass.policy, seed, budget_units)
    wanted = _vms_without_room(rest, spot, allocation)
    ends, spot_lets_in = vms_to_end(rest, spot, wanted, policy)
    details = {**allocation.details}
    if snapshot.spot is not None:
        details["spot"] = _ends_document(ends, spot_lets_in)
    lets_in, parts = Counter(spot_lets_in), [allocation.placed]
    left_out: list[LeftOut] = []
    if borrowed is not None:
        then = _after_ends(rest, spot, ends, lets_in)
        wanted = np.maximum(wanted - placed_counts(lets_in, len(wanted)), 0)
        ends, borrowed_lets_in = _borrowed_vms_to_end(then, spot, borrowed, wanted, policy)
        details["borrowed"] = _ends_document(ends, borrowed_lets_in)
        lets_in += borrowed_lets_in
    closed = _closed_hosts(spot, allocation, lets_in)
    after = rest.after_placing(rows_array(lets_in)) if lets_in else rest
    if borrowed is not None:
        placed = _place_borrowed_vms(rest, borrowed, after, closed, policy)
        parts.append(placed.placed)
        left_out += placed.left_out
        rest = rest.after_placing(placed.placed)
        after = after.after_placing(placed.placed)
    placed = _place_spot_vms(rest, spot, after, closed, policy)
    return dataclasses.replace(
        allocation,
        placed=_sort_rows(np.concatenate([*parts, placed.placed])),
        left_out=(
            *_replace_reasons(allocation.left_out, spot, lets_in),
            *left_out,
            *placed.left_out,
        ),
        work=allocation.work + policy.work,
        cut=allocation.cut or policy.cut,
        details=details,
    )


def _ends_document(ends: Ends, lets_in: RowCounts) -> dict[str, list[list[int]]]:
    """Return the VMs that end, and the requests that get their room, as an allocation has them."""
    return {
        "ends": [list(each) for each in ends],
        "lets_in": [[*where, count] for where, count in sorted(lets_in.items())],
    }


def _no_spot(snapshot: Snapshot) -> Spot:
    """Return the spot VMs of a cluster that has none, and for whose requests no room is kept."""
    none = np.zeros(0, dtype=np.int64)
    return Spot(
        asks=np.zeros(len(snapshot.count), dtype=np.bool_),
        host=none,
        tenant=none.copy(),
        amounts=np.zeros((0, len(snapshot.resources)), dtype=np.int64),
        may_end=np.zeros(0, dtype=np.bool_),
    )


def _room_freed_for_requests(
    rest: Snapshot, spot: Spot, borrowed: Borrowed | None, free: IntArray
) -> IntArray:
    """Return the room on each host, (H, R), that spot and borrowed VMs freed for requests.

    Room that ending VMs still hold is not free yet and is not counted.
    """
    promised = np.zeros_like(free)
    for request, host, count in spot.kept:
        promised[host] += min(count, int(rest.count[request])) * rest.demand[request]
    np.subtract.at(promised, spot.host[~spot.may_end], spot.amounts[~spot.may_end])
    if borrowed is not None:
        ending = borrowed.ending
        np.subtract.at(promised, borrowed.host[ending], borrowed.amounts[ending])
    return np.clip(promised, 0, free)


def _after_ends(rest: Snapshot, running: Preemptible, ends: Ends, lets_in: RowCounts) -> Snapshot:
    """Return what is left once VMs have ended and the requests that they end for are placed."""
    if not ends:
        return rest
    after = rest.after_placing(rows_array(lets_in))
    free = after.free.copy()
    vms = [vm for vm, _ in ends]
    np.add.at(free, running.host[vms], running.amounts[vms])
    return dataclasses.replace(after, free=np.maximum(free, 0))


def _borrowed_vms_to_end(
    rest: Snapshot, spot: Spot, borrowed: Borrowed, wanted: IntArray, policy: CostedPolicy
) -> tuple[Ends, RowCounts]:
    """Return the borrowed VMs that end, and the requests and hosts that get their room.

    Tenants take in the order of their shares; each takes as far as `BorrowedShares` lets it.
    """
    all_ends: Ends = []
    all_lets_in: RowCounts = Counter()
    if not borrowed.may_end.any() or not wanted.any():
        return all_ends, all_lets_in
    keeps = rest.held.copy()
    np.subtract.at(keeps, borrowed.tenant[borrowed.ending], borrowed.amounts[borrowed.ending])
    for request, _, count in spot.kept:
        taken = min(count, int(rest.count[request]))
        keeps[rest.tenant[request]] += taken * rest.demand[request]
    shares = BorrowedShares(rest, keeps)
    takers = sorted(set(rest.tenant[wanted > 0].tolist()), key=shares.order_key)
    may_end, takes = borrowed.may_end, 0
    for taker in takers:
        its = np.where(rest.tenant == taker, wanted, 0)
        while takes < _MAX_TAKES and its.any():
            which = may_end & _vms_to_take(rest, borrowed, may_end, its, shares)
            able = dataclasses.replace(borrowed, may_end=which)
            if not _could_fit(rest, able, its):
                break
            takes += 1
            ends, lets_in = vms_to_end(rest, able, its, policy, shares)
            if not ends or not shares.change(*_share_changes(rest, borrowed, ends, lets_in)):
                break
            may_end = may_end.copy()
            may_end[[vm for vm, _ in ends]] = False
            its = np.maximum(its - placed_counts(lets_in, len(its)), 0)
            its[its < rest.min_count] = 0
            rest = _after_ends(rest, borrowed, ends, lets_in)
            all_ends += ends
            all_lets_in += lets_in
    return sorted(all_ends), all_lets_in


def _vms_to_take(
    rest: Snapshot, borrowed: Borrowed, may_end: BoolArray, wanted: IntArray, shares: BorrowedShares
) -> BoolArray:
    """Return which borrowed VMs may end, (B,), each by itself, for a VM of a taker's requests.

    All ``wanted`` are requests of one tenant.
    """
    which = np.flatnonzero(wanted)
    taker = int(rest.tenant[which[0]])
    takes = np.unique(rest.demand[which], axis=0)
    # VMs of a request are alike.
    requests, first, inverse = np.unique(
        borrowed.request[may_end], return_index=True, return_inverse=True
    )
    vms = np.flatnonzero(may_end)[first].tolist()
    able = np.zeros(len(requests), dtype=np.bool_)
    for place, vm in enumerate(vms):
        borrower = int(borrowed.tenant[vm])
        if shares.lead(taker, borrower) > SHARE_TOLERANCE:
            continue
        losses = [(taker, borrower, borrowed.amounts[vm])]
        able[place] = any(shares.may_change([(taker, take)], losses) for take in takes)
    found = may_end.copy()
    found[may_end] = able[inverse]
    return found


def _could_fit(rest: Snapshot, borrowed: Borrowed, wanted: IntArray) -> bool:
    """Return whether a VM of a wanted request fits on a host if its borrowed VMs end."""
    which = borrowed.may_end
    if not which.any():
        return False
    hosts, place = np.unique(borrowed.host[which], return_inverse=True)
    free = rest.free[hosts]
    np.add.at(free, place, borrowed.amounts[which])
    classes = rest.host_class[hosts]
    requests = np.flatnonzero(wanted)
    alike = np.concatenate((rest.demand[requests], rest.eligible[requests]), axis=1)
    _, first = np.unique(alike, axis=0, return_index=True)
    return any(
        bool(((free >= rest.demand[request]).all(axis=1) & rest.eligible[request, classes]).any())
        for request in requests[first].tolist()
    )


def _share_changes(
    rest: Snapshot, borrowed: Borrowed, ends: Ends, lets_in: RowCounts
) -> tuple[list[Gain], list[Loss]]:
    """Return what tenants gain and lose by ends of borrowed VMs."""
    gains = [
        (int(rest.tenant[request]), count * rest.demand[request])
        for (request, _), count in lets_in.items()
    ]
    losses = [
        (int(rest.tenant[request]), int(borrowed.tenant[vm]), borrowed.amounts[vm])
        for vm, request in ends
    ]
    return gains, losses


def _vms_without_room(rest: Snapshot, spot: Spot, allocation: Allocation) -> IntArray:
    """Return the unplaced VMs of each request for which others may end, (Q,)."""
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


def _closed_hosts(spot: Spot, allocation: Allocation, lets_in: RowCounts) -> list[int]:
    """Return the hosts that take no new borrowed or spot VMs: their room is kept for others."""
    waits = {left.request for left in allocation.left_out}
    kept_for = [
        *allocation.details.get("freed", ()),
        *allocation.details.get("holding", ()),
        *((request, host) for request, host, _ in spot.kept),
    ]
    return sorted(
        {host for request, host in kept_for if request in waits} | {host for _, host in lets_in}
    )


def _place_borrowed_vms(
    rest: Snapshot, borrowed: Borrowed, after: Snapshot, closed: list[int], policy: CostedPolicy
) -> Allocation:
    """Place the requested borrowed VMs in the room that ordinary requests leave."""
    free = rest.free.copy()
    free[closed] = 0
    snapshot = dataclasses.replace(
        rest,
        free=free,
        count=np.where(borrowed.asks, rest.count, 0),
        age=np.zeros_like(rest.age),
        allowances=after.allowances,
    )
    if not snapshot.count.any():
        return Allocation(placed=np.zeros((0, 3), dtype=np.int64), left_out=())
    return policy.decide(snapshot)


def _place_spot_vms(
    rest: Snapshot, spot: Spot, after: Snapshot, closed: list[int], policy: CostedPolicy
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
    left_out: Sequence[LeftOut], spot: Spot, lets_in: RowCounts
) -> Iterator[LeftOut]:
    """Yield the unplaced VMs; where others end to make room for them, that is the reason."""
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


def _sort_rows(placed: IntArray) -> IntArray:
    """Sort placed rows by request, then host."""
    order: IntArray = placed[np.lexsort((placed[:, 1], placed[:, 0]))]
    return order
