"""Hosts in buckets of equal free vector and class, for choosing by H.

H of Best-Fit DRFH depends on nothing but the free vector, so the best host for
a kind of VM is the first host of the best bucket. Even thousands of hosts have
few distinct free vectors when freshly filled.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from placement.compiled.forms import compiled_form
from placement.model.arrays import BoolArray, IntArray
from placement.model.row_groups import group_rows
from placement.model.vm_kinds import VmKinds
from placement.packing import bucket_loop

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


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BucketTables:
    """What a search in buckets knows of VMs, as flat arrays: one row of a table after another.

    A shape is a vector without a common divisor. A demand is a multiple of it, and the factor is
    its size. For each shape, class of hosts and number of sizes that fit there is a heap.
    """

    hosts: int
    resources: int
    classes: int  #: of hosts; empty hosts are of as many further ones
    demands: int  #: D, different demands
    heaps: int
    vector: array[int]  #: (S, R)
    reference: array[int]  #: (S,) the resource to which the others are compared
    ratio: array[float]  #: (S, R) of the vector to its reference
    scale: array[float]  #: (S, R) the pool's reference to its resource
    first_size: array[int]  #: (S + 1,) a shape's sizes are those from its own to the next's
    size: array[int]  #: ascending within a shape
    first_heap_of_shape: array[int]  #: (S,)
    demand: array[int]  #: (D, R)
    demand_of_kind: array[int]  #: (T,)
    shape_of_kind: array[int]  #: (T,), -1 for a demand of nothing
    #: (2 T + 1,) the heaps where a kind finds hosts, then those where it finds hosts that come last
    first_heap: array[int]
    heap: array[int]

    @classmethod
    def of(cls, hosts: int, pool: IntArray, kinds: VmKinds) -> BucketTables:
        """Return the tables of some kinds."""
        shapes, classes = Shapes(kinds.demand, pool), kinds.eligible.shape[1]
        widths = [2 * classes * (len(sizes) + 1) for sizes in shapes.sizes]
        first_of_shape = np.cumsum([0, *widths]).tolist()
        demands: dict[tuple[int, ...], int] = {}
        demand_of_kind, shape_of_kind, first_heap = [], [], [0]
        heap: list[int] = []
        for demand, open_to in zip(map(tuple, kinds.demand.tolist()), kinds.eligible, strict=True):
            shape, least = shapes.place(demand)
            demand_of_kind.append(demands.setdefault(demand, len(demands)))
            shape_of_kind.append(shape)
            for first_class in (0, classes):
                for each in np.flatnonzero(open_to).tolist() if shape >= 0 else ():
                    sizes = len(shapes.sizes[shape]) + 1
                    first = first_of_shape[shape] + (first_class + each) * sizes
                    heap += range(first + least, first + sizes)
                first_heap.append(len(heap))
        return cls(
            hosts=hosts,
            resources=len(pool),
            classes=classes,
            demands=len(demands),
            heaps=first_of_shape[-1],
            vector=array("q", shapes.vectors.tobytes()),
            reference=array("q", shapes.reference.tolist()),
            ratio=array("d", shapes.ratio.tobytes()),
            scale=array("d", shapes.scale.tobytes()),
            first_size=array("q", np.cumsum([0, *map(len, shapes.sizes)]).tolist()),
            size=array("q", [size for sizes in shapes.sizes for size in sizes]),
            first_heap_of_shape=array("q", first_of_shape[:-1]),
            demand=array("q", [amount for demand in demands for amount in demand]),
            demand_of_kind=array("q", demand_of_kind),
            shape_of_kind=array("q", shape_of_kind),
            first_heap=array("q", first_heap),
            heap=array("q", heap),
        )


class Shapes:
    """The S shapes among some demands, and what H of each is computed from; see `mismatch`.

    Parameters
    ----------
    demand : ndarray of int64, shape (T, R)
        One of nothing has no shape and fits nowhere.
    pool : ndarray of int64, shape (R,)
    """

    def __init__(self, demand: IntArray, pool: IntArray) -> None:
        divisor = np.gcd.reduce(demand, axis=1, initial=0)
        shape = (demand // np.maximum(divisor, 1)[:, None])[divisor > 0]
        self._of_shape: dict[tuple[int, ...], int] = {}
        sizes: list[set[int]] = []
        for vector, size in zip(map(tuple, shape.tolist()), divisor[divisor > 0], strict=True):
            number = self._of_shape.setdefault(vector, len(sizes))
            if number == len(sizes):
                sizes.append(set())
            sizes[number].add(int(size))
        #: sizes of the demands of each shape, ascending
        self.sizes = [sorted(each) for each in sizes]
        self.vectors = np.array(list(self._of_shape), dtype=np.int64).reshape(-1, len(pool))
        self.reference = (self.vectors > 0).argmax(axis=1)
        self.ratio = (
            self.vectors / self.vectors[np.arange(len(self.vectors)), self.reference][:, None]
        )
        self.scale = np.divide(
            pool[self.reference][:, None], pool, out=np.zeros(self.vectors.shape), where=pool > 0
        )

    def place(self, demand: tuple[int, ...]) -> tuple[int, int]:
        """Return a demand's shape (-1 for none) and the number of sizes up to its own."""
        divisor = math.gcd(*demand)
        if divisor == 0:
            return -1, 0
        shape = self._of_shape[tuple(amount // divisor for amount in demand)]
        return shape, self.sizes[shape].index(divisor) + 1
