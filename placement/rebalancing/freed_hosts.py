"""Keep room that moves free for the request that the plan serves."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

import numpy as np

from placement.model.arrays import IntArray
from placement.model.budget import Budget
from placement.model.reasons import never_placeable_reasons
from placement.model.snapshot import Allocation, Policy, Reason, Snapshot
from placement.rebalancing.spare_policy import mark_kept_room

#: Reasons of one whose hosts are all closed to it.
_CLOSED_OUT: Final = frozenset({Reason.NO_ELIGIBLE_HOST, Reason.NO_HOST_LARGE_ENOUGH})


class FreedHostsPolicy:
    """Wrap a policy so that hosts that moves free take only the requests they are freed for.

    A request with freed hosts starves no more: `placement.constraints.starvation_reserve` holds no
    others back for it. Where several plans free one host, it takes the requests of the first.
    The policy wraps all other rules.

    Parameters
    ----------
    policy : Policy
    freed : sequence of (request, host)
        Indices of the snapshot's Q and H.
    left : sequence of (request, host)
        The same, of room that spot VMs leave: a host takes all requests that it is left for.
    """

    def __init__(
        self, policy: Policy, freed: Sequence[tuple[int, int]], left: Sequence[tuple[int, int]] = ()
    ) -> None:
        first = {host: request for request, host in reversed(freed)}
        rows = {(request, host) for host, request in first.items()}
        rows |= {(request, host) for request, host in left if host not in first}
        self._policy = policy
        self._freed = sorted(rows)

    def place(self, snapshot: Snapshot, rng: np.random.Generator, budget: Budget) -> Allocation:
        """Decide a round in which freed hosts take only the requests that they are freed for.

        ``details["freed"]`` has rows of request and host.
        """
        rows = [(request, host) for request, host in self._freed if snapshot.count[request]]
        if not rows:
            return self._policy.place(snapshot, rng, budget)
        allocation = self._policy.place(close_freed_hosts(snapshot, rows), rng, budget)
        allocation = _restore_room_reasons(snapshot, allocation)
        return dataclasses.replace(
            allocation,
            left_out=mark_kept_room(Reason.HELD_BACK, snapshot, allocation, allocation.placed),
            details={**allocation.details, "freed": [list(row) for row in rows]},
        )


def _restore_room_reasons(snapshot: Snapshot, allocation: Allocation) -> Allocation:
    """Return an allocation in which requests wait for room, not for hosts that are closed to them.

    To the policy, one that may use no other hosts has none.
    """
    closed_out = [left.request for left in allocation.left_out if left.reason in _CLOSED_OUT]
    never = never_placeable_reasons(snapshot, np.array(closed_out, dtype=np.int64))
    return dataclasses.replace(
        allocation,
        left_out=tuple(
            dataclasses.replace(left, reason=Reason.NO_ROOM)
            if left.reason in _CLOSED_OUT and left.request not in never
            else left
            for left in allocation.left_out
        ),
    )


def close_freed_hosts(snapshot: Snapshot, rows: Sequence[tuple[int, int]]) -> Snapshot:
    """Return the snapshot in which freed hosts are open only to their requests.

    What a request may use and prefers stays so; none of these requests has waited.
    """
    classes = snapshot.eligible.shape[1]
    # A class of its own for each host: what a request may use and prefers depends on it.
    host_class: IntArray = snapshot.host_class.copy()
    column_of: dict[int, int] = {}
    was: dict[int, list[int]] = {}
    for _, host in rows:
        if host not in column_of:
            column = column_of[host] = len(column_of)
            was.setdefault(int(snapshot.host_class[host]), []).append(classes + column)
            host_class[host] = classes + column
    eligible = np.zeros((len(snapshot.count), len(column_of)), dtype=np.bool_)
    for request, host in rows:
        before = snapshot.eligible[request, snapshot.host_class[host]]
        eligible[request, column_of[host]] = before
    constraints = snapshot.constraints
    if constraints is not None and constraints.preferred:
        preferred = {
            request: (*listed, *(new for each in listed for new in was.get(each, ())))
            for request, listed in constraints.preferred.items()
        }
        constraints = dataclasses.replace(constraints, preferred=preferred)
    age = snapshot.age.copy()
    age[[request for request, _ in rows]] = 0
    return dataclasses.replace(
        snapshot,
        host_class=host_class,
        eligible=np.concatenate([snapshot.eligible, eligible], axis=1),
        constraints=constraints,
        age=age,
    )
