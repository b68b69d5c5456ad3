"""Hosts in buckets of equal free vector and class, for choosing by H.

H of Best-Fit DRFH depends on nothing but the free vector, so the best host for
a kind of VM is the first host of the best bucket. Even thousands of hosts have
few distinct free vectors when freshly filled.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from placement.model.arrays import BoolArray, IntArray
from placement.model.row_groups import group_rows
from placement.model.vm_kinds import VmKinds
from placement.packing import bucket_loop
from placement.packing.bucket_tables import BucketTables
from placement.packing.compiled_loops import compiled_form

BucketFill: Final = compiled_form(bucket_loop.BucketFill)


def mismatch(demand: Sequence[int], free: Sequence[int], pool: Sequence[int]) -> float:
    """Return H, how far the shape of a free vector is from the shape of a demand.

    Parameters
    ----------
    demand, free, pool : sequences of int, length R
        One VM, what is free on one host, and the capacity of all hosts.

    Returns
    -------
    float
        0 where the shapes are equal, infinity where the host has nothing left
        of the reference resource.

    Notes
    -----
    ``H(i,l) = sum_r | D[i,r]/D[i,1] - f[l,r]/f[l,1] |`` of [1]_, section V, with
    D and f in fractions of the pool. Where the VM demands nothing of the first
    resource, the first that it demands is the reference (derived). The two
    ratios are formed before the pool comes in, so that hosts of equal shape tie
    exactly.

    References
    ----------
    .. [1] Wang, Li, Liang, "Dominant Resource Fairness in Cloud Computing
       Systems with Heterogeneous Servers", INFOCOM 2014.
    """
    reference = next((r for r, amount in enumerate(demand) if amount > 0), None)
    if reference is None or free[reference] == 0:
        return math.inf
    return sum(
        abs(demand[r] / demand[reference] - free[r] / free[reference]) * (pool[reference] / pool[r])
        for r in range(len(demand))
        if pool[r] > 0
    )


class FreeBuckets:
    """Finds the best-fit host (least H, see `mismatch`) of a kind of VM; ties: the lowest index.

    Empty hosts, if given, come last: only where no other host has room for the VM.

    H does not depend on the size of a VM, so demands of one shape (multiples of one vector)
    share it. A host that holds a VM holds every smaller VM of the same shape.

    Parameters
    ----------
    room : ndarray of int64, shape (H, R)
        What may be filled on each host.
    host_class : ndarray of int64, shape (H,)
        Part of the bucket's key: hosts of two classes are open to different VMs.
    pool : ndarray of int64, shape (R,)
    kinds : VmKinds
    empty : ndarray of bool, shape (H,), optional
        The hosts that come last until they take a VM; by default none.

    Notes
    -----
    An empty host has a class of its own until it takes a VM.
    """

    def __init__(
        self,
        room: IntArray,
        host_class: IntArray,
        pool: IntArray,
        kinds: VmKinds,
        empty: BoolArray | None = None,
    ) -> None:
        self._fill = BucketFill(BucketTables.of(len(room), pool, kinds))
        if empty is not None:
            host_class = host_class + kinds.eligible.shape[1] * empty
        rows = np.concatenate([room, host_class[:, None]], axis=1)
        groups = group_rows(rows)
        for (*free, of_class), hosts in zip(
            rows[groups.first].tolist(), groups.members(), strict=False
        ):
            self._fill.add_hosts(free, of_class, hosts.tolist())

    def fill(self, order: Iterable[int]) -> list[int]:
        """Place VMs one after another on the host of least H.

        Parameters
        ----------
        order : iterable of int
            The kind of each VM.

        Returns
        -------
        list of int
            The host of each, up to the first VM that fits nowhere.
        """
        return self._fill.fill(order)
