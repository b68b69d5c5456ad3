"""Waiting requests, in order of arrival."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from placement import FloatArray, IntArray
from simulation.slots.row_arrays import RowArrays


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class WaitingRows(RowArrays):
    """Requests with ``count`` VMs to place; the lost VMs of a request have rows of their own."""

    min_count: IntArray  #: at least that many at once, while nothing of it was ever placed
    wanted: IntArray  #: VMs that it requested
    age: IntArray  #: slots that left some of it out, whether or not they had a round
    since_s: FloatArray  #: when it arrived, or its VMs were lost
    lifetime_s: FloatArray  #: of its VMs, or what is left of it; inf: they never end
    wait_at_most_s: FloatArray  #: then its tenant gives up what waits; inf: never

    def with_more(self, more: WaitingRows) -> WaitingRows:
        """Return the waiting rows merged with others, in order of their requests."""
        both = WaitingRows.concatenate([self, more])
        if len(self) and len(more) and more.request[0] < self.request[-1]:
            return both.where(np.argsort(both.request, kind="stable").astype(np.int64))
        return both

    def min_counts(self) -> IntArray:
        """Return the least number of VMs that a round may place of each request, (Q,).

        ``min_count``, but at least 1 and at most what waits.
        """
        minimum: IntArray = np.clip(self.min_count, 1, np.maximum(self.count, 1))
        return minimum

    def after_slot(self, given: IntArray) -> WaitingRows:
        """Return the rows that still wait after a slot placed ``given`` VMs, one slot older."""
        count = self.count - given
        left = replace(
            self, count=count, min_count=np.where(given > 0, 1, self.min_count), age=self.age + 1
        )
        return left.where(count > 0)


NO_ROWS: Final = WaitingRows.empty()
