"""Kinds of VMs as a search in buckets of hosts needs them: shapes, sizes and heaps as arrays."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass

import numpy as np

from placement.model.arrays import IntArray
from placement.model.vm_kinds import VmKinds


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
        """Return the tables of some kinds; ``pool`` has shape (R,)."""
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
    """The S shapes among some demands, and what H of each is computed from.

    `placement.packing.buckets.mismatch` says what H is.

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
