"""Make a policy keep constraints that it does not know itself.

It decides on snapshots in which constraints are eligibility and room
(`placement.constraints.expansion`), first with all soft constraints kept, then, for what found no
room so, with fewer. The next run keeps what earlier runs placed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from placement.constraints.expansion import (
    ExpandedSnapshot,
    RefusedPlaces,
    SoftConstraint,
    expand_constraints,
)
from placement.constraints.wait_reasons import OF_HOSTS, find_wait_reason
from placement.model.arrays import IntArray
from placement.model.budget import Budget
from placement.model.constraints import AffinityGroup, Constraints, Spread
from placement.model.details import Details, merge_details
from placement.model.row_groups import join_rows
from placement.model.snapshot import Allocation, LeftOut, Policy, Reason, Snapshot

#: Soft constraints kept, run by run: preferences are dropped before groups.
_CONSTRAINT_FIELDS: Final = (
    frozenset(SoftConstraint),
    frozenset({SoftConstraint.GROUPS}),
    frozenset[SoftConstraint](),
)
#: Runs for requests whose zone or host others filled, or the policy refused.
_MAX_RETRIES: Final = 8
#: What no other host or zone would change.
_WHEREVER: Final = (Reason.QUOTA, Reason.HELD_BACK, Reason.NOTHING_ASKED)
#: Groups that keep apart in one run: each adds a column to the resources of every host.
MAX_LIMITS: Final = 64
#: Rounds of dissolving gangs that are spread and not whole, before none of them is placed.
_MAX_DISSOLVED: Final = 4


class ConstrainedPolicy:
    """A policy that keeps the constraints of its snapshots.

    A snapshot without constraints goes to the policy as it is.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def place(self, snapshot: Snapshot, rng: np.random.Generator, budget: Budget) -> Allocation:
        """Decide a round within the constraints of its requests.

        After several runs, ``details`` has the details about single VMs and the number of
        ``runs``.
        """
        constraints = snapshot.constraints
        if constraints is None or not constraints:
            return self._policy.place(snapshot, rng, budget)
        spread_gangs = {
            spread.request
            for spread in constraints.spreads
            if snapshot.min_count[spread.request] > 1
        }
        closed: set[int] = set()
        for attempt in range(_MAX_DISSOLVED + 1):
            runs = _PolicyRuns(self._policy, snapshot, constraints, closed)
            runs.decide(rng, budget)
            broken = runs.incomplete_gangs(spread_gangs)
            if not broken:
                break
            closed |= broken if attempt < _MAX_DISSOLVED - 1 else spread_gangs
        return runs.allocation(budget)


class _PolicyRuns:
    """Runs a policy once or more for one decision, with fewer and fewer soft constraints."""

    def __init__(
        self, policy: Policy, snapshot: Snapshot, constraints: Constraints, closed: set[int]
    ) -> None:
        self._policy = policy
        self._snapshot = snapshot
        self._closed = closed
        count = snapshot.count.copy()
        count[list(closed)] = 0
        self._rest = dataclasses.replace(snapshot, count=count, constraints=None)
        self._constraints = constraints
        self._decided: list[tuple[ExpandedSnapshot, Allocation]] = []
        self._reasons: dict[int, Reason] = {}
        self._refused_homes: dict[int, set[int]] = {}
        self._refused_zones: dict[int, set[int]] = {}
        self._refusals: dict[int, Reason] = {}

    def decide(self, rng: np.random.Generator, budget: Budget) -> None:
        """Run the policy for each batch of requests, with fewer and fewer soft constraints."""
        for others in _excluded_requests(self._constraints.groups, self._rest.count):
            for soft_kept in _CONSTRAINT_FIELDS:
                if soft_kept == _CONSTRAINT_FIELDS[0] or self._drops_soft_constraint(soft_kept):
                    self._run_policy(soft_kept, others, rng, budget)
            again = 0
            while again < _MAX_RETRIES and self._has_chosen_places(others):
                before = int(self._rest.count.sum()), self._refusal_count()
                self._run_policy(_CONSTRAINT_FIELDS[-1], others, rng, budget)
                now = int(self._rest.count.sum()), self._refusal_count()
                again = again + 1 if now != before else _MAX_RETRIES

    def _run_policy(
        self,
        soft_kept: frozenset[SoftConstraint],
        others: frozenset[int],
        rng: np.random.Generator,
        budget: Budget,
    ) -> None:
        """Run the policy on the unplaced VMs of all requests except ``others``."""
        count = self._rest.count.copy()
        count[list(others)] = 0
        within = dataclasses.replace(self._rest, count=count)
        refused = RefusedPlaces(homes=self._refused_homes, zones=self._refused_zones)
        expanded = expand_constraints(within, self._constraints, soft_kept, refused)
        allocation = self._policy.place(expanded.snapshot, rng, budget)
        self._decided.append((expanded, allocation))
        for left in allocation.left_out:
            self._reasons[int(expanded.origin[left.request])] = left.reason
        if not soft_kept:  # else a soft constraint may be the reason
            self._record_refused_places(expanded, allocation)
        placed = _original_rows(expanded, allocation)
        self._rest = self._rest.after_placing(placed)
        self._constraints = _constraints_after(self._constraints, placed)

    def _record_refused_places(self, expanded: ExpandedSnapshot, allocation: Allocation) -> None:
        """Record where constraints sent VMs and the policy placed fewer than was possible.

        An overload threshold or slots may close a host that has room. A refused place
        stays refused within a decision, as room only shrinks.
        """
        given = set(expanded.origin[allocation.placed[:, 0]].tolist())
        for left in allocation.left_out:
            if left.reason in _WHEREVER:
                continue
            request, zone = (int(of[left.request]) for of in (expanded.origin, expanded.zone))
            closed = zone >= 0
            if closed:
                self._refused_zones.setdefault(request, set()).add(zone)
            for number, host in expanded.homes.items():
                members = self._constraints.groups[number].requests
                if request in members and given.isdisjoint(members):
                    self._refused_homes.setdefault(number, set()).add(host)
                    closed = True
            if closed and self._refusals.get(request, Reason.NO_ROOM) in OF_HOSTS:
                self._refusals[request] = left.reason

    def _refusal_count(self) -> int:
        """Return the number of hosts and zones that were refused, for all groups and requests."""
        return sum(map(len, (*self._refused_homes.values(), *self._refused_zones.values())))

    def _drops_soft_constraint(self, soft_kept: frozenset[SoftConstraint]) -> bool:
        """Return whether a waiting request gives up a soft constraint that this run drops."""
        waits = self._rest.count > 0
        if SoftConstraint.GROUPS not in soft_kept:
            soft = [group.requests for group in self._constraints.groups if not group.hard]
            return any(waits[list(requests)].any() for requests in soft)
        return bool(waits[list(self._constraints.preferred)].any())

    def _has_chosen_places(self, others: frozenset[int]) -> bool:
        """Return whether constraints chose the zone or first host of a waiting request."""
        waits = self._rest.count > 0
        members = [spread.request for spread in self._constraints.spreads]
        for group in self._constraints.groups:
            if group.hard and not group.apart and not group.hosts:
                members += group.requests
        return any(waits[request] for request in members if request not in others)

    def incomplete_gangs(self, gangs: set[int]) -> set[int]:
        """Return which of these gangs got fewer VMs at once than they need."""
        given = self._snapshot.count - self._rest.count
        minimum = self._snapshot.min_count
        return {gang for gang in gangs - self._closed if 0 < int(given[gang]) < int(minimum[gang])}

    def allocation(self, budget: Budget) -> Allocation:
        """Return the joined allocation of all runs of the policy."""
        return Allocation(
            placed=join_rows(_original_rows(*part) for part in self._decided),
            left_out=self._unplaced_vms(),
            work=budget.spent if len(self._decided) > 1 else self._decided[0][1].work,
            cut=any(allocation.cut for _, allocation in self._decided),
            details=_joined_details(self._decided),
        )

    def _unplaced_vms(self) -> tuple[LeftOut, ...]:
        """Return the unplaced VMs with their reasons: a constraint, or the policy's own reason."""
        last = self._decided[-1]
        in_last_run = _left_out_by_request(*last, self._rest.count)
        rest = dataclasses.replace(self._rest, constraints=self._constraints)
        parts: list[LeftOut] = []
        for request in np.flatnonzero(self._snapshot.count).tolist():
            closed = request in self._closed
            count = int(self._snapshot.count[request] if closed else self._rest.count[request])
            if not count:
                continue
            given_reason = (
                Reason.GANG_NOT_WHOLE if closed else self._reasons.get(request, Reason.NO_ROOM)
            )
            # Of what was refused the last run no longer knows.
            given_reason = self._refusals.get(request, given_reason)
            reported = [LeftOut(request=request, count=count, reason=given_reason)]
            if request not in self._refusals:
                reported = in_last_run.get(request, reported)
            why: dict[Reason, int] = {}
            for part in reported:
                reason = find_wait_reason(rest, self._snapshot, request, count, part.reason)
                why[reason] = why.get(reason, 0) + part.count
            parts += [LeftOut(request=request, count=n, reason=reason) for reason, n in why.items()]
        return tuple(parts)


def _original_rows(expanded: ExpandedSnapshot, allocation: Allocation) -> IntArray:
    """Return an allocation's rows with the requests' indices before constraints split them."""
    requests, hosts, counts = allocation.placed.T
    return np.stack([expanded.origin[requests], hosts, counts], axis=1)


def _excluded_requests(groups: Sequence[AffinityGroup], count: IntArray) -> list[frozenset[int]]:
    """Return the requests that each run leaves out, so that no run has too many VM groups."""
    apart = [group for group in groups if group.apart and count[list(group.requests)].any()]
    if len(apart) <= MAX_LIMITS:
        return [frozenset()]
    batches = []
    for start in range(0, len(apart), MAX_LIMITS):
        now = apart[start : start + MAX_LIMITS]
        others = (group for group in apart if group not in now)
        batches.append(frozenset(request for group in others for request in group.requests))
    return batches


def _constraints_after(constraints: Constraints, placed: IntArray) -> Constraints:
    """Return the constraints once rows of (request, host, count) are placed."""
    hosts: dict[int, list[tuple[int, int]]] = {}
    for request, host, count in placed.tolist():
        hosts.setdefault(request, []).append((host, count))
    groups = []
    for group in constraints.groups:
        new = {host for request in group.requests for host, _ in hosts.get(request, ())}
        groups.append(dataclasses.replace(group, hosts=tuple(sorted({*group.hosts, *new}))))
    spreads: list[Spread] = []
    for spread in constraints.spreads:
        in_zones = list(spread.placed)
        for host, count in hosts.get(spread.request, ()):
            in_zones[constraints.zones[host]] += count
        spreads.append(dataclasses.replace(spread, placed=tuple(in_zones)))
    return dataclasses.replace(constraints, groups=tuple(groups), spreads=tuple(spreads))


def _left_out_by_request(
    expanded: ExpandedSnapshot, allocation: Allocation, count: IntArray
) -> dict[int, list[LeftOut]]:
    """Return the VMs that the policy's last run left out, for requests of which it placed none."""
    parts: dict[int, list[LeftOut]] = {}
    for left in allocation.left_out:
        request = int(expanded.origin[left.request])
        parts.setdefault(request, []).append(dataclasses.replace(left, request=request))
    return {
        request: listed
        for request, listed in parts.items()
        if sum(part.count for part in listed) == count[request]
        and len({part.reason for part in listed}) == len(listed)
    }


def _joined_details(decided_parts: Sequence[tuple[ExpandedSnapshot, Allocation]]) -> dict[str, Any]:
    """Return the joined details of all runs, with the indices of the original requests."""
    (expanded, first), *more = decided_parts
    origin = expanded.origin
    if not more and (origin == np.arange(len(origin))).all():
        return dict(first.details)
    parts = [
        Details.of(allocation).with_original_requests(run.origin)
        for run, allocation in decided_parts
    ]
    return {"runs": len(decided_parts), **merge_details(parts).document()}
