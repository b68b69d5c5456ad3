"""Slots: hosts cut into equal slots, the tenant of fewest slots is next."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from placement.model.arrays import IntArray
from placement.model.budget import Budget
from placement.model.reasons import count_fitting_vms_of_each, needed_at_once_of_each
from placement.model.row_groups import group_rows
from placement.model.snapshot import Allocation, LeftOut, Reason, Snapshot
from placement.model.vm_kinds import vm_kinds
from placement.packing.draft import Draft
from placement.packing.drfh_fill import fill_by_first_fit
from placement.packing.gangs import fill_with_gangs
from placement.packing.overload import room_below_threshold
from placement.parameters import fraction_reader, integer_reader

#: Into which the largest host may be cut.
MAX_SLOTS: Final = 10_000
#: What may be set on it.
READERS: Final = {"slots": integer_reader(1, MAX_SLOTS), "overload": fraction_reader}
#: Slots of a VM that no host can hold: more than hosts offer.
_NEVER: Final = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """The scheduler of slots that DRFH is measured against.

    Notes
    -----
    One slot is ``1 / slots`` of the element-wise largest host. A host offers
    ``floor(min_r capacity[r] / slot[r])`` slots [1]_. The tenant that holds
    fewest slots per weight is next; ties go to the one whose request comes
    first.

    Derived: a VM takes the least number of slots of one host that covers its
    demand, on the first host that has them. What runs already takes the least
    number of slots that covers what is in use of the host, and counts to its
    tenant as the least number that covers what the tenant holds. So VMs that
    have slots have room, since what is in use and what is new each stay within
    their slots. A VM that has room but no slots is left out with that reason.

    This is First-Fit DRFH on a cluster of one resource, the slot.

    References
    ----------
    .. [1] Wang, Li, Liang, "Dominant Resource Fairness in Cloud Computing
       Systems with Heterogeneous Servers", INFOCOM 2014, section VI.
    """

    slots: int = 14  #: in the largest host
    overload: float = 1.0  #: no host is filled above this part of its capacity

    def place(self, snapshot: Snapshot, rng: np.random.Generator, budget: Budget) -> Allocation:
        """Fill the slots; every VM that finds slots is placed."""
        del rng, budget  # nothing is random, nothing is searched
        room = room_below_threshold(snapshot, self.overload)
        cut = snapshot_in_slots(snapshot, room, self.slots)
        by_slots = Draft(cut)
        kinds = vm_kinds(cut)
        fill_with_gangs(by_slots, lambda: fill_by_first_fit(by_slots, kinds))

        draft = Draft(snapshot, room)
        for gang in np.flatnonzero(draft.not_begun * by_slots.placed_counts).tolist():
            draft.begin_gang(gang)
        draft.put_all(by_slots.rows)
        return _replace_reasons(draft, draft.allocation())


def snapshot_in_slots(snapshot: Snapshot, room: IntArray, slots: int) -> Snapshot:
    """Return the cluster with slots as its one resource.

    Parameters
    ----------
    snapshot : Snapshot
    room : ndarray of int64, shape (H, R)
        What may be filled on each host.
    slots : int
        Of the element-wise largest host.

    Returns
    -------
    Snapshot
        ``capacity`` are the slots that hosts offer, ``free`` those that neither
        what runs nor the overload threshold takes. Limits stay as they are.

    Examples
    --------
    Servers (1, 1) and (.5, .25), in quarters, offer 14 and 3 slots; see the
    golden tests.
    """
    counted = snapshot.resource_count
    capacity, demanded = snapshot.capacity[:, :counted], snapshot.demand[:, :counted]
    largest = capacity.max(axis=0, initial=0).tolist()
    in_use = capacity - snapshot.free[:, :counted]
    offered = _whole_slots(capacity, largest, slots)
    below = _whole_slots(in_use + room[:, :counted], largest, slots)
    taken = _covering_slots(in_use, largest, slots)
    demand = _covering_slots(demanded, largest, slots)
    missing = np.array(largest, dtype=np.int64) == 0
    demand[(demanded[:, missing] > 0).any(axis=1)] = _NEVER
    held = _covering_slots(snapshot.held[:, :counted], largest, slots)

    def join_columns(in_slots: IntArray, amounts: IntArray) -> IntArray:
        """Return a column of slots with the snapshot's limits after it."""
        return np.concatenate([in_slots[:, None], amounts[:, counted:]], axis=1)

    return dataclasses.replace(
        snapshot,
        resources=("slots", *snapshot.resources[counted:]),
        capacity=join_columns(offered, snapshot.capacity),
        free=join_columns(np.maximum(below - taken, 0), snapshot.free),
        demand=join_columns(demand, snapshot.demand),
        held=join_columns(held, snapshot.held),
    )


def _whole_slots(amounts: IntArray, largest: Sequence[int], slots: int) -> IntArray:
    """Return how many whole slots fit into capacities or room, (X, R) to (X,)."""
    # In Python's integers: amounts times slots may exceed int64.
    return _map_rows(
        lambda row: min(
            (a * slots // maximum for a, maximum in zip(row, largest, strict=True) if maximum),
            default=0,
        ),
        amounts,
    )


def _covering_slots(amounts: IntArray, largest: Sequence[int], slots: int) -> IntArray:
    """Return the smallest number of slots that covers demands, (X, R) to (X,).

    Resources that no host offers apart.
    """
    return _map_rows(
        lambda row: max(
            (
                min(-(-a * slots // maximum), _NEVER)
                for a, maximum in zip(row, largest, strict=True)
                if maximum
            ),
            default=0,
        ),
        amounts,
    )


def _map_rows(number: Callable[[list[int]], int], amounts: IntArray) -> IntArray:
    """Return a number for each row, computed once for alike rows, (X, R) to (X,)."""
    same = group_rows(amounts)
    numbers = [number(row) for row in amounts[same.first].tolist()]
    return np.array(numbers, dtype=np.int64)[same.of_row]


def _replace_reasons(draft: Draft, allocation: Allocation) -> Allocation:
    """Give the VMs that have room but no slots that reason, in place of the overload threshold."""
    above = np.array(
        [each.request for each in allocation.left_out if each.reason is Reason.ABOVE_OVERLOAD],
        dtype=np.int64,
    )
    fits = count_fitting_vms_of_each(draft.snapshot, above, draft.room)
    needed = needed_at_once_of_each(draft.snapshot, above, draft.unplaced_counts[above])
    without_slots = set(above[fits >= needed].tolist())
    left = tuple(
        LeftOut(request=each.request, count=each.count, reason=Reason.NO_SLOTS)
        if each.request in without_slots
        else each
        for each in allocation.left_out
    )
    return dataclasses.replace(allocation, left_out=left)
