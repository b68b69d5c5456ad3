"""Queues of alike rows: one queue is decided, and each row keeps its place in it.

A backlog of ten thousand requests is a few hundred kinds of them. Played as one row, a kind is
served in order of creation, as the policies serve rows of one tenant that are alike.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

import numpy as np

from placement.forecast.current_state import CurrentState, RecentArrivals
from placement.model.arrays import BoolArray, FloatArray, IntArray

#: The most rows that are simulated without being merged into queues.
_FEW_ROWS: Final = 200


@dataclass(frozen=True, slots=True, eq=False)
class RequestQueues:
    """A current state in which each row is a queue: alike requests merged, in order."""

    present: CurrentState
    queue: IntArray  #: (Q,) of each row of the present that it was made of
    place: IntArray  #: (Q,) VMs of the queue up to the row's last
    waiting: BoolArray  #: (Q,) which rows wait


def merge_into_queues(present: CurrentState) -> RequestQueues:
    """Merge the alike requests of a current state into queues, if there are many.

    Rows are alike in tenant, demand, eligibility, priority and lifetimes, place VMs one by one,
    and no constraint names them. Of rows whose requests end the last to end is at most twice as
    far off as the first; the queue ends with it.
    """
    snapshot = present.snapshot
    rows, waiting = len(snapshot.count), snapshot.count > 0
    if rows <= _FEW_ROWS:
        return RequestQueues(present, np.arange(rows), snapshot.count.copy(), waiting)
    alone = np.flatnonzero((snapshot.min_count > 1) | _rows_in_constraints(present))
    apart = np.zeros(rows, dtype=np.int64)
    apart[alone] = 1 + alone
    priority = np.zeros(rows, dtype=np.int64) if snapshot.priority is None else snapshot.priority
    ends = _binary_logarithms(present.ends_in_s)
    kinds = np.column_stack(
        [snapshot.tenant, snapshot.demand, snapshot.eligible, present.groups, apart, priority, ends]
    )
    _, first, inverse = np.unique(kinds, axis=0, return_index=True, return_inverse=True)
    # Queues are in order of their first rows.
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    queue, first = rank[inverse.ravel()], first[order]
    count = np.bincount(queue, weights=snapshot.count, minlength=len(first)).astype(np.int64)
    age = np.zeros(len(first), dtype=np.int64)
    np.maximum.at(age, queue, snapshot.age)
    ends_in_s = np.zeros(len(first))
    np.maximum.at(ends_in_s, queue, present.ends_in_s)
    place = np.zeros(rows, dtype=np.int64)
    by_queue = np.argsort(queue, kind="stable")
    passed = np.cumsum(snapshot.count[by_queue])
    before = np.concatenate([[0], np.cumsum(count)[:-1]])
    place[by_queue] = passed - before[queue[by_queue]]
    constraints = snapshot.constraints
    if constraints is not None:
        constraints = dataclasses.replace(
            constraints,
            groups=tuple(
                dataclasses.replace(each, requests=tuple(sorted(queue[[*each.requests]].tolist())))
                for each in constraints.groups
            ),
            spreads=tuple(
                dataclasses.replace(each, request=int(queue[each.request]))
                for each in constraints.spreads
            ),
            preferred={int(queue[row]): to for row, to in constraints.preferred.items()},
        )
    came = present.arrivals
    return RequestQueues(
        dataclasses.replace(
            present,
            snapshot=dataclasses.replace(
                snapshot,
                eligible=snapshot.eligible[first],
                demand=snapshot.demand[first],
                count=count,
                min_count=snapshot.min_count[first],
                tenant=snapshot.tenant[first],
                age=age,
                priority=None if snapshot.priority is None else priority[first],
                constraints=constraints,
            ),
            groups=present.groups[first],
            ends_in_s=ends_in_s,
            arrivals=RecentArrivals(
                at_s=came.at_s, row=queue[came.row], count=came.count, span_s=came.span_s
            ),
        ),
        queue,
        place,
        waiting,
    )


def _binary_logarithms(times_s: FloatArray) -> IntArray:
    """Return the whole binary logarithm of each time in seconds, (Q,); -1 for infinite times."""
    finite = np.isfinite(times_s)
    doublings = np.floor(np.log2(np.maximum(np.where(finite, times_s, 1.0), 1.0)))
    return np.where(finite, doublings, -1).astype(np.int64)


def _rows_in_constraints(present: CurrentState) -> BoolArray:
    """Return which rows of requests a constraint names, (Q,)."""
    named = np.zeros(len(present.snapshot.count), dtype=np.bool_)
    constraints = present.snapshot.constraints
    if constraints is not None:
        for group in constraints.groups:
            named[[*group.requests]] = True
        named[[each.request for each in constraints.spreads]] = True
        named[[*constraints.preferred]] = True
    return named
