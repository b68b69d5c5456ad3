"""Hosts in buckets of equal free vector and class, for choosing by H.

H of Best-Fit DRFH depends on nothing but the free vector, so the best host for
a kind of VM is the first host of the best bucket. Even thousands of hosts have
few distinct free vectors when freshly filled.
"""

from __future__ import annotations

import heapq
import math
import operator
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import numpy as np

from placement.model.arrays import BoolArray, IntArray
from placement.model.row_groups import group_rows
from placement.model.vm_kinds import VmKinds

_Entry: TypeAlias = tuple[float, int, int]
#: More shapes than these are compared by numpy, which takes its time to start.
_FEW_SHAPES: Final = 12
#: Above every index of a host.
_NO_HOST: Final = 2**62


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

    A bucket's hosts are a heap of indexes. H does not depend on the size of a VM,
    so demands of one shape (multiples of one vector) share it. A host that holds a VM
    holds every smaller VM of the same shape. For each shape, host class and largest
    size that fits there is a heap: (H, first host, bucket). An entry's first host
    may lag behind: hosts leave a bucket far more often than entries are looked
    at, so an entry is corrected when it comes to the top.

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

    For every shape s and every bucket b that holds hosts and one more VM of the
    least size of s: ``noted[s][b]`` is at most the first host of b and is in
    an entry of a heap of s; ``noted_by_all[b]`` is at least every
    ``noted[s][b]``, so that a host that joins and is not below it concerns no
    heap.
    """

    def __init__(
        self,
        room: IntArray,
        host_class: IntArray,
        pool: IntArray,
        kinds: VmKinds,
        empty: BoolArray | None = None,
    ) -> None:
        classes = kinds.eligible.shape[1]
        self._classes = classes
        self._shapes = Shapes(kinds.demand, pool)
        demands: dict[tuple[int, ...], int] = {}
        self._ids: dict[tuple[int, ...], int] = {}
        self._keys: list[tuple[int, ...]] = []
        self._hosts: list[list[int]] = []
        self._after: list[dict[int, int]] = []
        self._fits: list[list[tuple[int, int, float]]] = []
        self._noted: list[dict[int, int]] = [{} for _ in self._shapes.sizes]
        self._noted_by_all: list[int] = []
        #: of each shape and class, by how many of its sizes fit
        self._best: list[list[list[list[_Entry]]]] = [
            [[[] for _ in range(len(sizes) + 1)] for _ in range(2 * classes)]
            for sizes in self._shapes.sizes
        ]
        #: of each kind its demand, its shape, and the heaps of hosts that hold it, empty ones last
        self._of_kind: list[tuple[int, int, list[list[list[_Entry]]]]] = []
        firsts = (0,) if empty is None else (0, classes)
        for demand, open_to in zip(map(tuple, kinds.demand.tolist()), kinds.eligible, strict=True):
            shape, minimum = self._shapes.place(demand)
            heaps = [
                [
                    heap
                    for each in np.flatnonzero(open_to).tolist()
                    for heap in (self._best[shape][first + each][minimum:] if shape >= 0 else ())
                ]
                for first in firsts
            ]
            self._of_kind.append((demands.setdefault(demand, len(demands)), shape, heaps))
        self._demands = list(demands)
        if empty is not None:
            host_class = host_class + classes * empty
        rows = np.concatenate([room, host_class[:, None]], axis=1)
        groups = group_rows(rows)
        for key, hosts in zip(rows[groups.first].tolist(), groups.members(), strict=False):
            bucket = self._bucket_of(tuple(key))
            self._hosts[bucket] = hosts.tolist()  # in ascending order, so a heap
            self._push_bucket(bucket, self._hosts[bucket][0])

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
        of_kind, members, after = self._of_kind, self._hosts, self._after
        noted_by_all, heappush, heappop = self._noted_by_all, heapq.heappush, heapq.heappop
        chosen: list[int] = []
        for kind in order:
            demand, shape, groups = of_kind[kind]
            best = None
            for heaps in groups:
                for heap in heaps:
                    while heap:
                        entry = heap[0]
                        hosts = members[entry[2]]
                        if hosts and hosts[0] == entry[1]:
                            if best is None or entry < best:
                                best = entry
                            break
                        self._refresh_top(shape, heap)
                if best is not None:
                    break
            if best is None:
                break
            _, host, bucket = best
            heappop(members[bucket])
            joined = after[bucket].get(demand)
            if joined is None:
                joined = self._bucket_after(bucket, demand)
            heappush(members[joined], host)
            if host < noted_by_all[joined]:
                self._push_bucket(joined, host)
            chosen.append(host)
        return chosen

    def _refresh_top(self, shape: int, heap: list[_Entry]) -> None:
        """Bring the top entry of a heap up to date, or drop it."""
        score, host, bucket = heap[0]
        noted = self._noted[shape]
        if noted[bucket] != host:  # another entry covers this bucket
            heapq.heappop(heap)
            return
        hosts = self._hosts[bucket]
        first = hosts[0] if hosts else _NO_HOST
        noted[bucket] = first
        self._noted_by_all[bucket] = max(self._noted_by_all[bucket], first)
        if hosts:
            heapq.heapreplace(heap, (score, first, bucket))
        else:
            heapq.heappop(heap)

    def _push_bucket(self, bucket: int, host: int) -> None:
        """Enter a bucket in all heaps; its first host is this one or one before it."""
        of_class = self._keys[bucket][-1]
        for shape, sizes, score in self._fits[bucket]:
            noted = self._noted[shape]
            if host < noted.get(bucket, _NO_HOST):
                noted[bucket] = host
                heapq.heappush(self._best[shape][of_class][sizes], (score, host, bucket))
        self._noted_by_all[bucket] = host

    def _bucket_after(self, bucket: int, demand: int) -> int:
        """Return the bucket that a host of this one joins when it takes a VM."""
        *free, of_class = self._keys[bucket]
        left = map(operator.sub, free, self._demands[demand])
        joined = self._after[bucket][demand] = self._bucket_of((*left, of_class % self._classes))
        return joined

    def _bucket_of(self, key: tuple[int, ...]) -> int:
        bucket = self._ids.setdefault(key, len(self._keys))
        if bucket == len(self._keys):
            self._keys.append(key)
            self._hosts.append([])
            self._after.append({})
            self._noted_by_all.append(_NO_HOST)
            self._fits.append(self._shapes.fitting_shapes(key[:-1]))
        return bucket


class Shapes:
    """The S shapes among some demands, and H of each against one free vector at a time.

    A shape is a vector without a common divisor; a demand is a multiple of
    it, and the factor is its size. See `mismatch`.

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
        vectors = np.array(list(self._of_shape), dtype=np.int64).reshape(-1, len(pool))
        self._reference = (vectors > 0).argmax(axis=1)
        of_reference = vectors[np.arange(len(vectors)), self._reference][:, None]
        self._ratio = vectors / of_reference
        self._scale = np.divide(
            pool[self._reference][:, None], pool, out=np.zeros(vectors.shape), where=pool > 0
        )
        self._vectors = np.where(vectors > 0, vectors, 1)
        self._nothing = vectors == 0
        self._few = [
            (
                [(r, amount) for r, amount in enumerate(vector) if amount],
                reference,
                list(zip(ratio, scale, strict=True)),
            )
            for vector, reference, ratio, scale in zip(
                self._of_shape,
                self._reference.tolist(),
                self._ratio.tolist(),
                self._scale.tolist(),
                strict=True,
            )
        ]

    def place(self, demand: tuple[int, ...]) -> tuple[int, int]:
        """Return a demand's shape (-1 for none) and the number of sizes up to its own."""
        divisor = math.gcd(*demand)
        if divisor == 0:
            return -1, 0
        shape = self._of_shape[tuple(amount // divisor for amount in demand)]
        return shape, self.sizes[shape].index(divisor) + 1

    def fitting_shapes(self, free: Sequence[int]) -> list[tuple[int, int, float]]:
        """Return shape, number of sizes and H of each shape that fits a free vector."""
        if len(self._few) > _FEW_SHAPES:
            return self._fitting_shapes_of_many(np.array(free, dtype=np.int64))
        found = []
        for shape, (demanded, reference, terms) in enumerate(self._few):
            sizes = bisect_right(
                self.sizes[shape], min([free[r] // amount for r, amount in demanded])
            )
            if sizes:
                # What fits demands some of its reference, so that there is some.
                score, of_reference = 0.0, free[reference]
                for amount, (ratio, scale) in zip(free, terms, strict=True):
                    score += abs(ratio - amount / of_reference) * scale
                found.append((shape, sizes, score))
        return found

    def _fitting_shapes_of_many(self, free: IntArray) -> list[tuple[int, int, float]]:
        """Return the same as `fitting_shapes`, faster if there are many shapes."""
        maximum = np.where(self._nothing, np.iinfo(np.int64).max, free // self._vectors).min(axis=1)
        found = [
            (shape, sizes)
            for shape in np.flatnonzero(maximum > 0).tolist()
            if (sizes := bisect_right(self.sizes[shape], int(maximum[shape])))
        ]
        fits = np.array([shape for shape, _ in found], dtype=np.int64)
        ratio = free / free[self._reference[fits]][:, None]
        score = (np.abs(self._ratio[fits] - ratio) * self._scale[fits]).sum(axis=1).tolist()
        return [(*each, h) for each, h in zip(found, score, strict=True)]
