"""VMs that run, by the slot in which they end."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np

from placement import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Vms:
    """Rows of VMs that are alike: one request's on one host, with one end."""

    request: IntArray  #: its number in order of arrival
    tenant: IntArray
    kind: IntArray
    wish: IntArray
    host: IntArray
    count: IntArray
    end_s: FloatArray  #: inf: never

    def __len__(self) -> int:
        return len(self.count)

    def where(self, chosen: IntArray | BoolArray) -> Vms:
        """Return some of the rows."""
        return Vms(**{each.name: getattr(self, each.name)[chosen] for each in fields(self)})

    @classmethod
    def joined(cls, parts: list[Vms]) -> Vms:
        """Return the rows of all parts, in order."""
        return cls(
            **{
                each.name: np.concatenate([getattr(part, each.name) for part in parts])
                for each in fields(cls)
            }
        )


class Running:
    """VMs in buckets by the slot at whose start they have ended.

    Adding and taking costs what is added and taken, however many run.
    """

    def __init__(self, slot_length_s: float) -> None:
        self._length_s = slot_length_s
        self._buckets: dict[int, list[Vms]] = {}
        self._endless: list[Vms] = []

    def add(self, vms: Vms, slot: int) -> None:
        """Let VMs run from the start of a slot; a life of nothing ends with the slot."""
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

    def ended(self, slot: int) -> list[Vms]:
        """Take out what ends in the interval before the start of a slot."""
        return self._buckets.pop(slot, [])

    def lost(self, host: int, at_s: float) -> Vms | None:
        """Take out the VMs that run on a host at a time."""
        found: list[Vms] = []
        first = math.floor(at_s / self._length_s)
        for slot in sorted(slot for slot in self._buckets if slot > first):
            self._buckets[slot] = _without(self._buckets[slot], host, at_s, found)
        self._endless = _without(self._endless, host, at_s, found)
        return Vms.joined(found) if found else None

    def parts(self) -> list[Vms]:
        """Return everything that runs, for whoever counts."""
        return [part for slot in sorted(self._buckets) for part in self._buckets[slot]] + [
            *self._endless
        ]

    @property
    def last_slot(self) -> int | None:
        """The slot at whose start the last of those that end has ended."""
        return max(self._buckets, default=None)


def _without(parts: list[Vms], host: int, at_s: float, found: list[Vms]) -> list[Vms]:
    rest = []
    for part in parts:
        hit = (part.host == host) & (part.end_s > at_s)
        if hit.any():
            found.append(part.where(hit))
            part = part.where(~hit)  # noqa: PLW2901 - what is left of it
        if len(part):
            rest.append(part)
    return rest
