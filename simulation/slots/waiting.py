"""Requests that wait for a slot, in order of arrival."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from placement import BoolArray, FloatArray, IntArray
from simulation.checkpoint import Kept, Limits, Sizes, array, columns


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Waiting:
    """Rows of requests with VMs to place; lost VMs of a request are rows of their own."""

    request: IntArray  #: its number in order of arrival
    tenant: IntArray
    kind: IntArray
    wish: IntArray
    count: IntArray  #: VMs to place
    min_count: IntArray  #: at least so many at once, while nothing of it was ever placed
    wanted: IntArray  #: VMs that it asked for
    age: IntArray  #: rounds that left some of it out
    since_s: FloatArray  #: when it arrived, or its VMs were lost
    lifetime_s: FloatArray  #: of its VMs, or what is left of it; inf: they never end
    wait_at_most_s: FloatArray  #: then its tenant gives up what waits; inf: never

    def __len__(self) -> int:
        return len(self.count)

    def where(self, chosen: IntArray | BoolArray) -> Waiting:
        """Return some of the rows."""
        return Waiting(**{each.name: getattr(self, each.name)[chosen] for each in fields(self)})

    def with_more(self, more: Waiting) -> Waiting:
        """Return these rows and others, in order of their requests."""
        both = {
            each.name: np.concatenate([getattr(self, each.name), getattr(more, each.name)])
            for each in fields(self)
        }
        joined = Waiting(**both)
        if len(self) and len(more) and more.request[0] < self.request[-1]:
            return joined.where(np.argsort(joined.request, kind="stable").astype(np.int64))
        return joined

    def kept(self) -> Kept:
        """Return what waits, for a checkpoint."""
        return columns(self, (each.name for each in fields(self)))

    @classmethod
    def of_kept(cls, kept: Kept, sizes: Sizes) -> Waiting:
        """Return what waited."""
        rows = len(array(kept, "count", "int", (None,)))
        high = {"tenant": sizes.tenants, "kind": sizes.kinds, "wish": sizes.wishes}
        found = {}
        for each in fields(cls):
            like = "float" if each.name.endswith("_s") else "int"
            within = Limits(0, high[each.name]) if each.name in high else None
            found[each.name] = array(kept, each.name, like, (rows,), within)
        return cls(**found)

    def least(self) -> IntArray:
        """Return ``min_count`` as a round sees it, shape (Q,); 1 for requests that began."""
        least: IntArray = np.clip(self.min_count, 1, np.maximum(self.count, 1))
        return least

    def after(self, given: IntArray) -> Waiting:
        """Return what waits after a round placed so many VMs of each row: one round older."""
        count = self.count - given
        left = replace(
            self,
            count=count,
            min_count=np.where(given > 0, 1, self.min_count),
            age=self.age + 1,
        )
        return left.where(count > 0)


def nobody() -> Waiting:
    """Return no rows."""
    none = np.zeros(0, dtype=np.int64)
    return Waiting(
        request=none,
        tenant=none,
        kind=none,
        wish=none,
        count=none,
        min_count=none,
        wanted=none,
        age=none,
        since_s=np.zeros(0),
        lifetime_s=np.zeros(0),
        wait_at_most_s=np.zeros(0),
    )
