"""The search for best-fit hosts in buckets, on flat arrays; compiled where a compiler is.

`placement.packing.buckets` says what a bucket is, and the types of C are in the file of the same
name that ends in .pxd. Both forms do the same arithmetic: integers of 64 bits and floats of C.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from placement.packing.bucket_tables import BucketTables

#: Above every index of a host.
_NO_HOST: Final = 2**62


class BucketFill:
    """Chooses hosts for VMs one by one, and moves each host to the bucket that it then belongs to.

    The hosts of a bucket are a heap of indexes. For each shape, host class and largest size that
    fits there is a heap of entries: H, the first host, the bucket. An entry's first host may lag
    behind: hosts leave a bucket far more often than entries are looked at, so an entry is corrected
    when it comes to the top. All heaps are skew heaps: a node has two children, -1 for none.

    For every shape s and every bucket b that holds hosts and one more VM of the least size of s,
    ``_noted[b, s]`` is at most the first host of b and is in an entry of a heap of s.
    ``_noted_by_all[b]`` is at least every ``_noted[b, s]``: a host that joins and is not below it
    concerns no heap.
    """

    def __init__(self, tables: BucketTables) -> None:
        self._resources, self._shapes = tables.resources, len(tables.reference)
        self._classes, self._demands = tables.classes, tables.demands
        self._vector, self._reference = tables.vector, tables.reference
        self._ratio, self._scale = tables.ratio, tables.scale
        self._first_size, self._size = tables.first_size, tables.size
        self._demand, self._demand_of_kind = tables.demand, tables.demand_of_kind
        self._shape_of_kind = tables.shape_of_kind
        self._first_heap, self._heap = tables.first_heap, tables.heap
        self._first_heap_of_shape = tables.first_heap_of_shape
        self._buckets = 0
        self._ids: dict[tuple[int, ...], int] = {}
        self._free = array("q")  #: by bucket and resource
        self._class = array("q")  #: of each bucket
        self._after = array("q")  #: by bucket and demand the bucket that a host joins, -1: unknown
        self._sizes = array("q")  #: by bucket and shape, how many sizes of the shape fit
        self._score = array("d")  #: by bucket and shape, H
        self._noted = array("q")  #: by bucket and shape
        self._noted_by_all = array("q")
        self._first_host = array("q")  #: of each bucket the top of its heap, -1 for none
        self._left_host = array("q", [-1]) * tables.hosts
        self._right_host = array("q", [-1]) * tables.hosts
        self._top = array("q", [-1]) * tables.heaps  #: of each heap of entries
        self._entries, self._unused = 0, -1
        self._entry_score = array("d")
        self._entry_host = array("q")
        self._entry_bucket = array("q")
        self._left_entry = array("q")
        self._right_entry = array("q")

    def add_hosts(self, free: Sequence[int], of_class: int, hosts: Sequence[int]) -> None:
        """Enter hosts of one class and of equal free vectors, in ascending order."""
        bucket = self._bucket_of((*free, of_class))
        before = -1
        for host in hosts:  # a chain of ascending hosts is a heap
            if before < 0:
                self._first_host[bucket] = host
            else:
                self._left_host[before] = host
            before = host
        self._push_bucket(bucket, self._first_host[bucket])

    def fill(self, order: Iterable[int]) -> list[int]:
        """Return the host of each VM, given its kind, up to the first that fits nowhere."""
        chosen: list[int] = []
        for kind in order:
            host = self._place(kind)
            if host < 0:
                break
            chosen.append(host)
        return chosen

    def _place(self, kind: int) -> int:
        """Place a VM of a kind on the host of least H; return the host, -1 if there is none."""
        best = self._best_entry(kind, 0)
        if best < 0:
            best = self._best_entry(kind, 1)
        if best < 0:
            return -1
        host, bucket = self._entry_host[best], self._entry_bucket[best]
        self._first_host[bucket] = self._merge_hosts(self._left_host[host], self._right_host[host])
        self._left_host[host], self._right_host[host] = -1, -1
        joined = self._after[bucket * self._demands + self._demand_of_kind[kind]]
        if joined < 0:
            joined = self._bucket_after(bucket, self._demand_of_kind[kind])
        self._first_host[joined] = self._merge_hosts(self._first_host[joined], host)
        if host < self._noted_by_all[joined]:
            self._push_bucket(joined, host)
        return host

    def _best_entry(self, kind: int, last: int) -> int:
        """Return the best entry of a kind, among hosts that come last or not; -1 for none."""
        best, shape = -1, self._shape_of_kind[kind]
        for place in range(
            self._first_heap[2 * kind + last], self._first_heap[2 * kind + last + 1]
        ):
            heap = self._heap[place]
            entry = self._top[heap]
            while (
                entry >= 0
                and self._first_host[self._entry_bucket[entry]] != (self._entry_host[entry])
            ):
                self._refresh_top(shape, heap)
                entry = self._top[heap]
            if entry >= 0 and (best < 0 or self._is_before(entry, best)):
                best = entry
        return best

    def _refresh_top(self, shape: int, heap: int) -> None:
        """Bring the top entry of a heap up to date, or drop it."""
        entry = self._top[heap]
        bucket = self._entry_bucket[entry]
        self._top[heap] = self._merge_entries(self._left_entry[entry], self._right_entry[entry])
        self._left_entry[entry], self._right_entry[entry] = -1, -1
        noted = bucket * self._shapes + shape
        first = self._first_host[bucket]
        if self._noted[noted] != self._entry_host[entry] or first < 0:
            if self._noted[noted] == self._entry_host[entry]:  # else another covers this bucket
                self._noted[noted] = self._noted_by_all[bucket] = _NO_HOST
            self._left_entry[entry], self._unused = self._unused, entry
            return
        self._noted[noted] = self._entry_host[entry] = first
        self._noted_by_all[bucket] = max(self._noted_by_all[bucket], first)
        self._top[heap] = self._merge_entries(self._top[heap], entry)

    def _push_bucket(self, bucket: int, host: int) -> None:
        """Enter a bucket in all heaps; its first host is this one or one before it."""
        for shape in range(self._shapes):
            place = bucket * self._shapes + shape
            if self._sizes[place] and host < self._noted[place]:
                self._noted[place] = host
                sizes = self._first_size[shape + 1] - self._first_size[shape] + 1
                heap = self._first_heap_of_shape[shape] + self._class[bucket] * sizes
                heap += self._sizes[place]
                entry = self._new_entry()
                self._entry_score[entry] = self._score[place]
                self._entry_host[entry], self._entry_bucket[entry] = host, bucket
                self._top[heap] = self._merge_entries(self._top[heap], entry)
        self._noted_by_all[bucket] = host

    def _new_entry(self) -> int:
        """Return an entry that is in no heap."""
        entry = self._unused
        if entry >= 0:
            self._unused, self._left_entry[entry] = self._left_entry[entry], -1
            return entry
        entry, self._entries = self._entries, self._entries + 1
        self._entry_score = grown_floats(self._entry_score, self._entries)
        self._entry_host = grown(self._entry_host, self._entries)
        self._entry_bucket = grown(self._entry_bucket, self._entries)
        self._left_entry = grown(self._left_entry, self._entries)
        self._right_entry = grown(self._right_entry, self._entries)
        return entry

    def _bucket_after(self, bucket: int, demand: int) -> int:
        """Return the bucket that a host of this one joins when it takes a VM."""
        key = []
        for resource in range(self._resources):
            free = self._free[bucket * self._resources + resource]
            key.append(free - self._demand[demand * self._resources + resource])
        key.append(self._class[bucket] % self._classes)
        joined = self._bucket_of(tuple(key))
        self._after[bucket * self._demands + demand] = joined
        return joined

    def _bucket_of(self, key: tuple[int, ...]) -> int:
        """Return the bucket of a free vector and a class, a new one if there is none."""
        known = self._ids.get(key)
        if known is not None:
            return known
        bucket = self._ids[key] = self._buckets
        self._buckets += 1
        self._free = grown(self._free, self._buckets * self._resources)
        self._class = grown(self._class, self._buckets)
        self._after = grown(self._after, self._buckets * self._demands)
        self._sizes = grown(self._sizes, self._buckets * self._shapes)
        self._score = grown_floats(self._score, self._buckets * self._shapes)
        self._noted = grown(self._noted, self._buckets * self._shapes)
        self._noted_by_all = grown(self._noted_by_all, self._buckets)
        self._first_host = grown(self._first_host, self._buckets)
        for resource in range(self._resources):
            self._free[bucket * self._resources + resource] = key[resource]
        self._class[bucket] = key[self._resources]
        self._noted_by_all[bucket] = _NO_HOST
        for shape in range(self._shapes):
            place = bucket * self._shapes + shape
            self._noted[place] = _NO_HOST
            self._sizes[place] = self._fitting_sizes(bucket, shape)
            if self._sizes[place]:
                self._score[place] = self._mismatch(bucket, shape)
        return bucket

    def _fitting_sizes(self, bucket: int, shape: int) -> int:
        """Return how many sizes of a shape fit a free vector."""
        largest = _NO_HOST
        for resource in range(self._resources):
            amount = self._vector[shape * self._resources + resource]
            if amount:
                number = self._free[bucket * self._resources + resource] // amount
                largest = min(largest, number)
        sizes = 0
        for place in range(self._first_size[shape], self._first_size[shape + 1]):
            sizes += self._size[place] <= largest
        return sizes

    def _mismatch(self, bucket: int, shape: int) -> float:
        """Return H of a shape that fits; it demands some of its reference, so there is some."""
        score, first = 0.0, bucket * self._resources
        reference = float(self._free[first + self._reference[shape]])
        for resource in range(self._resources):
            ratio = float(self._free[first + resource]) / reference
            away = abs(self._ratio[shape * self._resources + resource] - ratio)
            score += away * self._scale[shape * self._resources + resource]
        return score

    def _is_before(self, entry: int, other: int) -> bool:
        """Return whether an entry comes before another: by H, first host and bucket."""
        if self._entry_score[entry] != self._entry_score[other]:
            return self._entry_score[entry] < self._entry_score[other]
        if self._entry_host[entry] != self._entry_host[other]:
            return self._entry_host[entry] < self._entry_host[other]
        return self._entry_bucket[entry] < self._entry_bucket[other]

    def _merge_entries(self, one: int, other: int) -> int:
        """Return the top of two heaps of entries made one."""
        if one < 0 or other < 0:
            return max(one, other)
        if self._is_before(other, one):
            one, other = other, one
        top = one
        while True:
            following, self._right_entry[one] = self._right_entry[one], self._left_entry[one]
            if following < 0:
                self._left_entry[one] = other
                return top
            if self._is_before(other, following):
                following, other = other, following
            self._left_entry[one] = following
            one = following

    def _merge_hosts(self, one: int, other: int) -> int:
        """Return the top of two heaps of hosts made one."""
        if one < 0 or other < 0:
            return max(one, other)
        if other < one:
            one, other = other, one
        top = one
        while True:
            following, self._right_host[one] = self._right_host[one], self._left_host[one]
            if following < 0:
                self._left_host[one] = other
                return top
            if other < following:
                following, other = other, following
            self._left_host[one] = following
            one = following


def grown(values: array[int], least: int) -> array[int]:
    """Return an array of at least that length, with -1 where nothing was."""
    if least <= len(values):
        return values
    found = array("q", [-1]) * (2 * least)
    for place in range(len(values)):
        found[place] = values[place]
    return found


def grown_floats(values: array[float], least: int) -> array[float]:
    """Return an array of at least that length."""
    if least <= len(values):
        return values
    found = array("d", [0.0]) * (2 * least)
    for place in range(len(values)):
        found[place] = values[place]
    return found
