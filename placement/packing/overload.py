"""The overload threshold, above which policies with this parameter fill no host."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from placement.model.arrays import IntArray
from placement.model.snapshot import Snapshot


def overload_fraction(overload: float) -> Fraction:
    """Return an overload threshold as it was written: 0.29 is 29/100, not the nearest double."""
    return Fraction(str(overload))


def room_below_threshold(snapshot: Snapshot, overload: float) -> IntArray:
    """Return the part of each host's free vector below the threshold, shape (H, R).

    ``(capacity - free + chosen) / capacity`` may not exceed ``overload`` in any
    resource. A threshold of 1 leaves the whole free vector; limits know none.
    """
    threshold = overload_fraction(overload)
    if threshold >= 1:
        return snapshot.free.copy()
    ceiling = [
        [int(amount) * threshold.numerator // threshold.denominator for amount in row]
        for row in snapshot.capacity
    ]
    running = snapshot.capacity - snapshot.free
    below = np.array(ceiling, dtype=np.int64).reshape(snapshot.capacity.shape) - running
    room: IntArray = np.clip(below, 0, snapshot.free)
    room[:, snapshot.resource_count :] = snapshot.free[:, snapshot.resource_count :]
    return room
