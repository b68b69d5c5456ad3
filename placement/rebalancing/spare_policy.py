"""Wrap a policy to keep spare capacity for the VMs of failing domains."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

import numpy as np

from placement.model.arrays import BoolArray, IntArray
from placement.model.budget import Budget
from placement.model.reasons import count_fitting_vms_of_each, needed_at_once_of_each
from placement.model.row_groups import group_rows
from placement.model.snapshot import Allocation, LeftOut, Policy, Reason, Snapshot
from placement.rebalancing.destination_search import SearchLimits
from placement.rebalancing.model import Mobility, RunningGroup, RunningSpread, RunningState
from placement.rebalancing.spare_capacity import SpareCapacity, spare_capacity

#: How hard a round searches for a domain: less than a plan does.
_IN_A_ROUND: Final = SearchLimits(tries=2, pairs=0, partly=False)
#: Hosts weighed for domains that are decided alone: undecided ones have nothing kept.
_UNITS: Final = 1_000_000
#: Reasons that more room would end.
_FOR_ROOM = (
    Reason.NO_ROOM,
    Reason.GANG_NOT_WHOLE,
    # Where every host that it may use is kept.
    Reason.NO_ELIGIBLE_HOST,
    Reason.NO_HOST_LARGE_ENOUGH,
)


class SpareCapacityPolicy:
    """A policy whose rounds keep every domain's spare capacity that held before.

    Before the policy decides, what the VMs of each failure domain would need
    elsewhere is taken out of what is free
    (`placement.rebalancing.spare_capacity.SpareCapacity.kept`). After the decision a
    domain may hold no longer, because VMs were placed on its own hosts or joined a group
    or spread of its VMs: then VMs wait, the last request first, until it holds. A domain
    that did not hold before keeps no request waiting. The policy wraps all other rules.

    Parameters
    ----------
    policy : Policy
        Its snapshots are of the same hosts, host classes and requests as ``running``.
    running : RunningState
        What runs as the round begins.
    domain : ndarray of int64, shape (H,)
        The failure domain of each host, -1 for none.

    Notes
    -----
    Whether a domain could do without what is kept, on other hosts, is not checked for
    each VM: near the end of the room VMs may wait that another choice of what is kept
    would admit.
    """

    def __init__(self, policy: Policy, running: RunningState, domain: IntArray) -> None:
        self._policy = policy
        self._running = running
        self._domain = domain

    def place(self, snapshot: Snapshot, rng: np.random.Generator, budget: Budget) -> Allocation:
        """Decide a round with the spare capacity of failure domains left free.

        ``details["spare"]`` has how many domains held before, how many are unknown
        because the budget was spent, and how many VMs wait for it.
        """
        before = spare_capacity(
            self._running, self._domain, search=_IN_A_ROUND, budget_units=_UNITS, max_rows=0
        )
        free = np.maximum(snapshot.free - before.kept, 0)
        within = dataclasses.replace(snapshot, free=free)
        allocation = self._policy.place(within, rng, budget)
        placed = self._rows_within_spare(snapshot, allocation.placed, before)
        left_out = mark_kept_room(Reason.KEPT_SPARE, snapshot, allocation, placed)
        waits = sum(left.count for left in left_out if left.reason is Reason.KEPT_SPARE)
        details = {
            "domains": len(before.holds),
            "held": int(before.holds.sum()),
            "unknown": int((~before.known).sum()),
            "kept_for": waits,
        }
        return dataclasses.replace(
            allocation,
            placed=placed,
            left_out=left_out,
            details={**allocation.details, "spare": details},
        )

    def _rows_within_spare(
        self, snapshot: Snapshot, placed: IntArray, before: SpareCapacity
    ) -> IntArray:
        """Return the rows that may stay placed while every failure domain still holds."""
        dropped: set[int] = set()
        domains_of = self._domains_of_rules()
        while True:
            after = state_with_placed(self._running, snapshot, placed)
            rows_of: dict[int, list[int]] = {}
            for row, (request, host) in enumerate(placed[:, :2].tolist()):
                for domain in {int(self._domain[host]), *domains_of.get(request, ())}:
                    if domain >= 0 and before.holds[domain]:
                        rows_of.setdefault(domain, []).append(row)
            touched = np.array(sorted(rows_of), dtype=np.int64)
            now = spare_capacity(
                after,
                self._domain,
                search=_IN_A_ROUND,
                budget_units=_UNITS,
                only=touched.tolist(),
                max_rows=0,
            )
            failed = touched[~now.holds[touched]]
            if not len(failed):
                return placed
            # The last request first: it is served after all others.
            counts = placed[:, 2].copy()
            last = {domain: int(placed[rows_of[domain], 0].max()) for domain in failed.tolist()}
            # Of those that fail half give way at a time: that may be room for the others.
            giving = sorted(last, key=lambda domain: (-last[domain], -domain))
            for domain in giving[: (len(giving) + 1) // 2]:
                rows = np.array(rows_of[domain], dtype=np.int64)
                rows = rows[np.argsort(-placed[rows, 0], kind="stable")]
                # Half of what is left each time: a domain without new VMs holds as before.
                drop = (int(counts[rows].sum()) + 1) // 2
                for row in rows.tolist():
                    taken = min(drop, int(counts[row]))
                    counts[row] -= taken
                    drop -= taken
            sums = np.bincount(placed[:, 0], counts, minlength=len(snapshot.count))
            begun = np.bincount(placed[:, 0], placed[:, 2], minlength=len(snapshot.count))
            short = (sums < snapshot.min_count) & (begun > 0)
            dropped.update(np.flatnonzero(short).tolist())
            counts[np.isin(placed[:, 0], list(dropped))] = 0
            placed = np.column_stack([placed[:, :2], counts])[counts > 0]

    def _domains_of_rules(self) -> dict[int, set[int]]:
        """Return the failure domains whose VMs share a hard group or spread, by request."""
        running = self._running
        found: dict[int, set[int]] = {}
        rules = [(group.vms, group.requests) for group in running.groups if group.hard]
        rules += [
            (spread.vms, (spread.request,))
            for spread in running.spreads
            if spread.request is not None
        ]
        for vms, requests in rules:
            for request in requests:
                domains = self._domain[running.host[list(vms)]]
                found.setdefault(request, set()).update(domains.tolist())
        return found


def room_for_failures(running: RunningState, domain: IntArray) -> IntArray:
    """Return the room kept free on each host, (H, R), for the VMs of failing domains, (H,)."""
    return spare_capacity(running, domain, search=_IN_A_ROUND, budget_units=_UNITS, max_rows=0).kept


def state_without_spare(running: RunningState, domain: IntArray) -> RunningState:
    """Return the running state with spare capacity counted as taken, as in rounds.

    ``domain``, (H,), is the failure domain of each host, -1 for none.
    """
    free = np.maximum(running.snapshot.free - room_for_failures(running, domain), 0)
    return dataclasses.replace(running, snapshot=dataclasses.replace(running.snapshot, free=free))


def state_with_placed(running: RunningState, snapshot: Snapshot, placed: IntArray) -> RunningState:
    """Return the running state after rows of (request, host, count), (P, 3), are placed.

    New VMs can move live, carry nothing, and are members of the groups and spreads
    that their requests wait in.
    """
    rows = np.repeat(np.arange(len(placed)), placed[:, 2])
    request, host = placed[rows, 0], placed[rows, 1]
    kinds = group_rows(snapshot.demand, snapshot.eligible)
    first = kinds.first
    new = len(rows)
    of_request: dict[int, list[int]] = {}
    ruled = {request for group in running.groups for request in group.requests}
    ruled |= {spread.request for spread in running.spreads if spread.request is not None}
    for place in np.flatnonzero(np.isin(request, list(ruled))).tolist():
        of_request.setdefault(int(request[place]), []).append(len(running) + place)
    room = running.room.copy()
    np.subtract.at(room, placed[:, 1], placed[:, 2:] * snapshot.demand[placed[:, 0]])

    def concatenate(old: IntArray, more: IntArray) -> IntArray:
        """Return an array of the running VMs with that of the new VMs after it."""
        return np.concatenate([old, more])

    zeros = np.zeros(new, dtype=np.int64)
    return dataclasses.replace(
        running,
        snapshot=dataclasses.replace(
            running.snapshot, free=np.maximum(room, 0), host_class=snapshot.host_class
        ),
        kind=concatenate(running.kind, len(running.demand) + kinds.of_row[request]),
        host=concatenate(running.host, host),
        tenant=concatenate(running.tenant, snapshot.tenant[request]),
        transfer_mib=concatenate(running.transfer_mib, zeros),
        mobility=concatenate(running.mobility, zeros + Mobility.LIVE),
        obstacle=concatenate(running.obstacle, zeros - 1),
        rests=np.concatenate([running.rests, np.zeros(new, dtype=np.bool_)]),
        demand=np.concatenate([running.demand, snapshot.demand[first]]),
        eligible=np.concatenate([running.eligible, _eligibility_of_kinds(snapshot, first)]),
        over=np.maximum(-room, 0),
        groups=tuple(_group_with_placed(group, of_request) for group in running.groups),
        spreads=tuple(_spread_with_placed(spread, of_request) for spread in running.spreads),
    )


def _eligibility_of_kinds(snapshot: Snapshot, requests: IntArray) -> BoolArray:
    """Return the host classes that the VMs of these requests may use, (K, C)."""
    eligible: BoolArray = snapshot.eligible[requests]
    return eligible


def _group_with_placed(group: RunningGroup, of_request: Mapping[int, list[int]]) -> RunningGroup:
    """Return a group with the placed VMs of its waiting requests as members."""
    more = [vm for request in group.requests for vm in of_request.get(request, ())]
    return dataclasses.replace(group, vms=(*group.vms, *more)) if more else group


def _spread_with_placed(
    spread: RunningSpread, of_request: Mapping[int, list[int]]
) -> RunningSpread:
    """Return a spread with the placed VMs of its waiting request as members."""
    more = () if spread.request is None else of_request.get(spread.request, ())
    return dataclasses.replace(spread, vms=(*spread.vms, *more)) if more else spread


def mark_kept_room(
    kept: Reason, snapshot: Snapshot, allocation: Allocation, placed: IntArray
) -> tuple[LeftOut, ...]:
    """Return unplaced VMs, with the reason ``kept`` where only reserved room would hold them.

    ``allocation`` was decided on less than the snapshot has; of it ``placed``, (P, 3),
    stays.
    """
    requests = len(snapshot.count)
    given = np.bincount(placed[:, 0], placed[:, 2], minlength=requests).astype(np.int64)
    first = np.bincount(
        allocation.placed[:, 0], allocation.placed[:, 2], minlength=requests
    ).astype(np.int64)
    why: dict[tuple[int, Reason], int] = {}
    for request in np.flatnonzero(first > given).tolist():
        why[request, kept] = int(first[request] - given[request])
    rest = snapshot.after_placing(placed)
    requested = np.array(
        [left.request for left in allocation.left_out if left.reason in _FOR_ROOM], dtype=np.int64
    )
    fit = count_fitting_vms_of_each(snapshot, requested, rest.free)
    needed = needed_at_once_of_each(snapshot, requested, (snapshot.count - given)[requested])
    fit = np.where(fit >= needed, fit, 0) - (first - given)[requested]
    room = dict(zip(requested.tolist(), np.maximum(fit, 0).tolist(), strict=True))
    for left in allocation.left_out:
        back = min(left.count, room.get(left.request, 0)) if left.reason in _FOR_ROOM else 0
        for reason, count in ((kept, back), (left.reason, left.count - back)):
            if count:
                why[left.request, reason] = why.get((left.request, reason), 0) + count
    return tuple(
        LeftOut(request=request, count=count, reason=reason)
        for (request, reason), count in sorted(why.items())
    )
