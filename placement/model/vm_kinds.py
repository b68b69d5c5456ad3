"""Requests that are alike: one demand vector, the same hosts open to them.

A vm_type as the game knows it. Two named types of equal size are one kind; one
named type requested with two different constraints is two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.model.arrays import BoolArray, IntArray
from placement.model.row_groups import group_rows
from placement.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class VmKinds:
    """The T kinds among the requests of a snapshot, in order of first appearance."""

    demand: IntArray  #: (T, R)
    eligible: BoolArray  #: (T, C)
    of_request: IntArray  #: (Q,) kind of each request

    def __len__(self) -> int:
        return len(self.demand)

    def requests(self, kind: int) -> IntArray:
        """Return the requests of a kind of VM, in order, shape (X,)."""
        return np.flatnonzero(self.of_request == kind).astype(np.int64)


def vm_kinds(snapshot: Snapshot) -> VmKinds:
    """Return the kinds of VM in a snapshot: alike in demand vector and eligibility."""
    kinds = group_rows(snapshot.demand, snapshot.eligible)
    first = kinds.first
    return VmKinds(snapshot.demand[first], snapshot.eligible[first], kinds.of_row)


def hosts_for(snapshot: Snapshot, kinds: VmKinds) -> BoolArray:
    """Return which hosts each kind of VM may use, shape (T, H)."""
    return kinds.eligible[:, snapshot.host_class]


def vms_that_fit(free: IntArray, demand: IntArray) -> IntArray:
    """Return how many VMs of ``demand`` (R,) each free vector (H, R) holds, shape (H,).

    A demand of nothing fits nowhere: a request that demands nothing gets nothing.
    """
    demanded = demand > 0
    if not demanded.any():
        return np.zeros(len(free), dtype=np.int64)
    fits: IntArray = (free[:, demanded] // demand[demanded]).min(axis=1)
    return fits


def total_vms_that_fit(free: IntArray, demand: IntArray) -> int:
    """Return how many VMs of ``demand`` (R,) all free vectors (H, R) hold together."""
    return int(vms_that_fit(free, demand).sum())


def max_vms_per_request(
    snapshot: Snapshot, room: IntArray, kinds: VmKinds | None = None
) -> IntArray:
    """Return how many VMs of each request fit if no other request gets any, shape (Q,).

    ``kinds`` are those of the snapshot; they are computed if absent.
    """
    kinds = kinds or vm_kinds(snapshot)
    open_to = hosts_for(snapshot, kinds)
    fits = np.array(
        [total_vms_that_fit(room[open_to[kind]], kinds.demand[kind]) for kind in range(len(kinds))],
        dtype=np.int64,
    )
    return np.minimum(fits[kinds.of_request], snapshot.count)
