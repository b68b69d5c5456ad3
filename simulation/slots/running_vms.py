"""Running VMs, by the slot in which they end."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from placement import BoolArray, FloatArray, IntArray
from simulation.checkpoint import (
    CheckpointData,
    CheckpointSizes,
    MisfitError,
    ValueRange,
    read_array,
)
from simulation.slots.row_arrays import RowArrays

#: Parts of a slot: more are joined before one is sought in them.
_MAX_PARTS: Final = 64


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class VmRows(RowArrays):
    """Rows of alike running VMs: one request's on one host, with one end."""

    host: IntArray
    end_s: FloatArray  #: inf: never


class RunningBuckets:
    """The running VMs in buckets by the slot at whose start they have ended.

    Adding and taking costs what is added and taken, however many run.
    """

    def __init__(self, slot_length_s: float) -> None:
        self._length_s = slot_length_s
        self._buckets: dict[int, list[VmRows]] = {}
        self._endless: list[VmRows] = []

    def add(self, vms: VmRows, slot: int) -> None:
        """Add VMs that run from the start of a slot; a lifetime of 0 s ends with the slot."""
        ends = np.isfinite(vms.end_s)
        if not ends.all():
            self._endless.append(vms.where(~ends))
            vms = vms.where(ends)
        if not len(vms):
            return
        slots = np.maximum(np.ceil(vms.end_s / self._length_s).astype(np.int64), slot + 1)
        order = np.argsort(slots, kind="stable")
        slots = slots[order]
        starts = np.flatnonzero(np.diff(slots, prepend=slots[0] - 1))
        for start, stop in zip(starts, [*starts[1:], len(slots)], strict=True):
            bucket = self._buckets.setdefault(int(slots[start]), [])
            bucket.append(vms.where(order[start:stop]))

    def pop_ended(self, slot: int) -> list[VmRows]:
        """Pop the VMs that end in the interval before the start of a slot."""
        return self._buckets.pop(slot, [])

    def pop_lost(self, host: int, at_s: float) -> VmRows | None:
        """Pop the VMs that run on a failed host at a time."""
        found: list[VmRows] = []
        first = math.floor(at_s / self._length_s)
        for slot in sorted(slot for slot in self._buckets if slot > first):
            self._buckets[slot] = _remove_lost(self._buckets[slot], host, at_s, found)
        self._endless = _remove_lost(self._endless, host, at_s, found)
        return VmRows.concatenate(found) if found else None

    def count_on_host(self, request: int, end_s: float, host: int) -> int:
        """Return how many VMs of a request with this end run on a host."""
        return sum(
            int(part.count[_matching_rows(part, request, end_s, host)].sum())
            for parts in self._buckets_of_end(end_s)
            for part in parts
        )

    def relocate(self, request: int, end_s: float, host: int, destination: int) -> bool:
        """Move one running VM to another host; return False if no such VM runs."""
        for parts in self._buckets_of_end(end_s):
            if len(parts) > _MAX_PARTS:
                parts[:] = [VmRows.concatenate(parts)]
            for place, part in enumerate(parts):
                rows = _matching_rows(part, request, end_s, host)
                if rows.any():
                    row = int(rows.argmax())
                    one = replace(
                        part.where(np.array([row])),
                        count=np.ones(1, dtype=np.int64),
                        host=np.array([destination], dtype=np.int64),
                    )
                    count = part.count.copy()
                    count[row] -= 1
                    rest = replace(part, count=count).where(count > 0)
                    parts[place : place + 1] = [rest, one] if len(rest) else [one]
                    return True
        return False

    def _buckets_of_end(self, end_s: float) -> list[list[VmRows]]:
        """Return the buckets that may hold running VMs with this end."""
        if not math.isfinite(end_s):
            return [self._endless]
        first = math.ceil(end_s / self._length_s)
        # A life of nothing ends with the slot after the one that placed it.
        return [self._buckets[slot] for slot in (first, first + 1) if slot in self._buckets]

    def all_rows(self) -> list[VmRows]:
        """Return the rows of all running VMs, in order of the slots in which they end."""
        return [part for slot in sorted(self._buckets) for part in self._buckets[slot]] + [
            *self._endless
        ]

    def state(self) -> CheckpointData:
        """Return the running VMs for a checkpoint, which `restore` reads."""
        slots = [slot for slot in self._buckets for _ in self._buckets[slot]]
        parts = [part for listed in self._buckets.values() for part in listed] + self._endless
        return {
            "slots": np.array(slots, dtype=np.int64),
            "lengths": np.array([len(part) for part in parts], dtype=np.int64),
            "vms": None if not parts else VmRows.concatenate(parts).columns(),
        }

    def restore(self, kept: CheckpointData, sizes: CheckpointSizes) -> None:
        """Restore the running VMs of a checkpoint, which `state` saved."""
        lengths = read_array(kept, "lengths", "int", (None,), ValueRange(0, 2**48))
        slots = read_array(kept, "slots", "int", (None,))
        vms = None if kept["vms"] is None else VmRows.from_state(kept["vms"], sizes)
        total = 0 if vms is None else len(vms)
        misfit = (vms is None) != (len(lengths) == 0) or total != int(lengths.sum())
        if misfit or len(slots) > len(lengths):
            raise MisfitError(f"{len(slots)} slots and {len(lengths)} parts")
        self._buckets, self._endless = {}, []
        if vms is None:
            return
        stops = np.cumsum(lengths)
        for place, (length, stop) in enumerate(zip(lengths, stops, strict=True)):
            part = vms.where(np.arange(stop - length, stop))
            if place < len(slots):
                self._buckets.setdefault(int(slots[place]), []).append(part)
            else:
                self._endless.append(part)

    @property
    def last_slot(self) -> int | None:
        """The slot at whose start all VMs with a finite life have ended; None if there is none."""
        return max(self._buckets, default=None)


def _matching_rows(part: VmRows, request: int, end_s: float, host: int) -> BoolArray:
    """Return which rows are running VMs of a request with this end on a host."""
    same: BoolArray = (part.request == request) & (part.host == host) & (part.end_s == end_s)
    return same


def _remove_lost(parts: list[VmRows], host: int, at_s: float, found: list[VmRows]) -> list[VmRows]:
    """Return the rows without the VMs of a failed host, which go to ``found``."""
    rest = []
    for part in parts:
        hit = (part.host == host) & (part.end_s > at_s)
        if hit.any():
            found.append(part.where(hit))
            part = part.where(~hit)  # noqa: PLW2901 - what is left of it
        if len(part):
            rest.append(part)
    return rest
