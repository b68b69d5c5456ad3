"""Hosts in buckets of equal free vector and class, for choosing by H.

H of Best-Fit DRFH depends on nothing but the free vector, so the best host for
a kind of VM is the first host of the best bucket. Even thousands of hosts have
few distinct free vectors when freshly filled.
"""

from __future__ import annotations

import heapq
import math
import operator
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import numpy as np

from placement.model import BoolArray, IntArray
from placement.vm_kinds import VmKinds

_Entry: TypeAlias = tuple[float, int, int]
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
    """Finds the host of least H for a kind of VM, the lowest index among equals.

    A bucket's hosts are a heap of indexes. Each demand has a heap for each host
    class: (H, first host, bucket) of the buckets that hold one more of its VMs.
    An entry's first host may lag behind: hosts leave a bucket far more often
    than entries are looked at, so an entry is corrected when it comes to the top.

    Parameters
    ----------
    room : ndarray of int64, shape (H, R)
        What may be filled on each host.
    host_class : ndarray of int64, shape (H,)
        Part of the bucket's key: hosts of two classes are open to different VMs.
    pool : ndarray of int64, shape (R,)
    kinds : VmKinds

    Notes
    -----
    For every demand d and every bucket b that holds hosts and one more VM of d:
    ``noted[d][b]`` is at most the first host of b and stands in an entry of
    d's heap; ``noted_by_all[b]`` is at least every ``noted[d][b]``, so that a
    host that joins and is not below it concerns no heap.
    """

    def __init__(
        self, room: IntArray, host_class: IntArray, pool: IntArray, kinds: VmKinds
    ) -> None:
        demands, of_kind = np.unique(kinds.demand, axis=0, return_inverse=True)
        self._scores = Mismatches(demands, pool)
        self._demands: list[list[int]] = demands.tolist()
        self._ids: dict[tuple[int, ...], int] = {}
        self._keys: list[tuple[int, ...]] = []
        self._hosts: list[list[int]] = []
        self._after: list[dict[int, int]] = []
        self._fits: list[list[tuple[int, float]]] = []
        self._noted: list[dict[int, int]] = [{} for _ in self._demands]
        self._noted_by_all: list[int] = []
        classes = kinds.eligible.shape[1]
        self._best: list[list[list[_Entry]]] = [[[] for _ in range(classes)] for _ in self._demands]
        self._of_kind = [
            (demand, [self._best[demand][each] for each in np.flatnonzero(open_to).tolist()])
            for demand, open_to in zip(of_kind.ravel().tolist(), kinds.eligible, strict=True)
        ]
        for key, hosts in _alike(room, host_class):
            bucket = self._bucket(key)
            self._hosts[bucket] = hosts  # in ascending order, so a heap
            self._note(bucket, hosts[0])

    def fill(self, line: Iterable[int]) -> list[int]:
        """Place VMs one after another, each on the host of least H.

        Parameters
        ----------
        line : iterable of int
            The kind of each VM.

        Returns
        -------
        list of int
            The host of each, up to the first VM that fits nowhere.
        """
        of_kind, members, after = self._of_kind, self._hosts, self._after
        noted_by_all, heappush, heappop = self._noted_by_all, heapq.heappush, heapq.heappop
        chosen: list[int] = []
        for kind in line:
            demand, heaps = of_kind[kind]
            best = None
            for heap in heaps:
                while heap:
                    entry = heap[0]
                    hosts = members[entry[2]]
                    if hosts and hosts[0] == entry[1]:
                        if best is None or entry < best:
                            best = entry
                        break
                    self._correct(demand, heap)
            if best is None:
                break
            _, host, bucket = best
            heappop(members[bucket])
            joined = after[bucket].get(demand)
            if joined is None:
                joined = self._bucket_after(bucket, demand)
            heappush(members[joined], host)
            if host < noted_by_all[joined]:
                self._note(joined, host)
            chosen.append(host)
        return chosen

    def _correct(self, demand: int, heap: list[_Entry]) -> None:
        """Bring the top entry of a heap up to date, or drop it."""
        score, host, bucket = heap[0]
        noted = self._noted[demand]
        if noted[bucket] != host:  # another entry tells of this bucket
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

    def _note(self, bucket: int, host: int) -> None:
        """Tell all heaps that a bucket begins with this host, or with one before it."""
        of_class = self._keys[bucket][-1]
        for demand, score in self._fits[bucket]:
            noted = self._noted[demand]
            if host < noted.get(bucket, _NO_HOST):
                noted[bucket] = host
                heapq.heappush(self._best[demand][of_class], (score, host, bucket))
        self._noted_by_all[bucket] = host

    def _bucket_after(self, bucket: int, demand: int) -> int:
        """Return the bucket that a host of this one joins when it takes a VM."""
        *free, of_class = self._keys[bucket]
        left = map(operator.sub, free, self._demands[demand])
        joined = self._after[bucket][demand] = self._bucket((*left, of_class))
        return joined

    def _bucket(self, key: tuple[int, ...]) -> int:
        bucket = self._ids.setdefault(key, len(self._keys))
        if bucket == len(self._keys):
            self._keys.append(key)
            self._hosts.append([])
            self._after.append({})
            self._noted_by_all.append(_NO_HOST)
            self._fits.append(self._scores.of(key[:-1]))
        return bucket


class Mismatches:
    """H of many demands against one free vector at a time; see `mismatch`.

    Parameters
    ----------
    demands : ndarray of int64, shape (D, R)
    pool : ndarray of int64, shape (R,)
    """

    def __init__(self, demands: IntArray, pool: IntArray) -> None:
        reference = (demands > 0).argmax(axis=1)
        self._reference = reference
        self._demands = demands
        rows = np.arange(len(demands))
        asked = np.asarray(demands.any(axis=1))
        with np.errstate(divide="ignore", invalid="ignore"):
            self._shape = demands / demands[rows, reference][:, None]
            self._scale = np.where(pool > 0, pool[reference][:, None] / pool, 0.0)
        self._shape[~asked] = 0.0
        # A demand of nothing fits nowhere.
        self._least = np.where(asked[:, None], demands, np.iinfo(np.int64).max)

    def of(self, free: Sequence[int]) -> list[tuple[int, float]]:
        """Return the demands that fit in the free vector, each with its H."""
        room = np.array(free, dtype=np.int64)
        below: BoolArray = np.less_equal(self._least, room)
        fits = np.flatnonzero(below.all(axis=1))
        if len(fits) == 0:
            return []
        # What fits asks for some of its reference, so that there is some.
        shape = room / room[self._reference[fits]][:, None]
        score = (np.abs(self._shape[fits] - shape) * self._scale[fits]).sum(axis=1)
        return list(zip(fits.tolist(), score.tolist(), strict=True))


def _alike(room: IntArray, host_class: IntArray) -> list[tuple[tuple[int, ...], list[int]]]:
    """Return each free vector and class that there is, with its hosts in order."""
    rows = np.concatenate([room, host_class[:, None]], axis=1)
    if not len(rows):
        return []
    by_key = np.lexsort(rows.T)  # stable, so hosts alike stay in order
    rows = rows[by_key]
    starts = np.flatnonzero((rows[1:] != rows[:-1]).any(axis=1)) + 1
    hosts, ends = by_key.tolist(), [*starts.tolist(), len(by_key)]
    keys = map(tuple, rows[[0, *starts.tolist()]].tolist())
    return [
        (key, hosts[start:end]) for key, start, end in zip(keys, [0, *ends], ends, strict=False)
    ]
