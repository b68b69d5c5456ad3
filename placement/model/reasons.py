"""Why VMs of a request are left out."""

from __future__ import annotations

import numpy as np

from placement.model.arrays import BoolArray, IntArray
from placement.model.row_groups import group_rows
from placement.model.snapshot import LeftOut, Reason, Snapshot
from placement.model.vm_kinds import total_vms_that_fit


def hosts_open_to(snapshot: Snapshot, request: int) -> BoolArray:
    """Return which hosts a request may use, shape (H,)."""
    open_to: BoolArray = snapshot.eligible[request][snapshot.host_class]
    return open_to


def reason_never_placeable(snapshot: Snapshot, request: int) -> Reason | None:
    """Return why no round could place a request on these hosts; None if one could.

    A request that is larger than every host says so even while no host is open
    to it: waiting for one to open would not help.
    """
    demand = snapshot.demand[request]
    if not demand.any():
        return Reason.NOTHING_ASKED
    open_to = hosts_open_to(snapshot, request)
    large_enough = (snapshot.capacity >= demand).all(axis=1)
    if (open_to & large_enough).any():
        return None
    if open_to.any():
        return Reason.NO_HOST_LARGE_ENOUGH
    known = (snapshot.capacity > 0).any(axis=1)
    if known.any() and not large_enough.any():
        return Reason.NO_HOST_LARGE_ENOUGH
    return Reason.NO_ELIGIBLE_HOST


def never_placeable_reasons(snapshot: Snapshot, requests: IntArray) -> dict[int, Reason]:
    """Return the reason of each given request, shape (X,), that no round could place.

    Alike requests are checked once, by `reason_never_placeable`: a round may have tens of
    thousands.
    """
    kinds = group_rows(snapshot.demand[requests], snapshot.eligible[requests])
    reasons = [
        reason_never_placeable(snapshot, request) for request in requests[kinds.first].tolist()
    ]
    of_each = zip(requests.tolist(), kinds.of_row.tolist(), strict=True)
    return {request: why for request, kind in of_each if (why := reasons[kind]) is not None}


def unplaced_vms(snapshot: Snapshot, missing: IntArray, free: IntArray) -> tuple[LeftOut, ...]:
    """Return the VMs that a policy did not place, with their reasons.

    Parameters
    ----------
    missing : ndarray of int64, shape (Q,)
        VMs of each request that were not placed.
    free : ndarray of int64, shape (H, R)
        What is free after the allocation. Where a request still fits, a gang
        whole, a rule of the policy held it back: the overload threshold.
    """
    requests = np.flatnonzero(missing)
    never = never_placeable_reasons(snapshot, requests)
    counts = missing[requests]
    fit = count_fitting_vms_of_each(snapshot, requests, free)
    needed = needed_at_once_of_each(snapshot, requests, counts)
    return tuple(
        LeftOut(request=request, count=count, reason=never.get(request) or _temporary_reason(*room))
        for request, count, *room in zip(
            requests.tolist(), counts.tolist(), fit.tolist(), needed.tolist(), strict=True
        )
    )


def needed_at_once(snapshot: Snapshot, request: int, missing: int) -> int:
    """Return how many VMs of a request must be placed at once, given the missing ones.

    ``min_count`` where nothing of it is placed, else 1.
    """
    begun = missing < int(snapshot.count[request])
    return 1 if begun else max(1, int(snapshot.min_count[request]))


def needed_at_once_of_each(snapshot: Snapshot, requests: IntArray, missing: IntArray) -> IntArray:
    """Return `needed_at_once` of many requests, given the missing VMs of each, shape (X,)."""
    begun = missing < snapshot.count[requests]
    needed: IntArray = np.where(begun, 1, np.maximum(1, snapshot.min_count[requests]))
    return needed


def count_fitting_vms(snapshot: Snapshot, request: int, free: IntArray) -> int:
    """Return how many VMs of a request its hosts hold at once, with ``free`` (H, R).

    VMs of one request are alike, so each takes one place of one host and
    leaves the others' as they are: the sum over hosts does not depend on which
    are chosen first.
    """
    open_to = hosts_open_to(snapshot, request)
    return total_vms_that_fit(free[open_to], snapshot.demand[request])


def count_fitting_vms_of_each(snapshot: Snapshot, requests: IntArray, free: IntArray) -> IntArray:
    """Return `count_fitting_vms` of many requests, computed once for equal requests, shape (X,)."""
    kinds = group_rows(snapshot.demand[requests], snapshot.eligible[requests])
    fit = [count_fitting_vms(snapshot, request, free) for request in requests[kinds.first].tolist()]
    return np.array(fit, dtype=np.int64)[kinds.of_row]


def _temporary_reason(fit: int, needed: int) -> Reason:
    """Return why VMs that could be placed later were not placed now."""
    if fit >= needed:
        return Reason.ABOVE_OVERLOAD
    return Reason.GANG_NOT_WHOLE if fit else Reason.NO_ROOM
