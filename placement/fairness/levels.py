"""Levels of tenants, shares per weight, and how they are compared.

The level of a tenant is its dominant share per weight. Only quotients of weights
mean anything, so every level is taken relative to the largest weight: multiplying
all weights by a number changes no comparison, and no decision.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from placement.fairness.shares import dominant_shares
from placement.model.arrays import SHARE_TOLERANCE, BoolArray, FloatArray, IntArray

#: Levels so large that steps of the tolerance leave the integers count as one.
_MAX_STEPS: Final = 2.0**62


def relative_weights(weight: FloatArray) -> FloatArray:
    """Return the tenants' weights relative to the largest of them, shape (N,)."""
    relative: FloatArray = weight / weight.max(initial=0.0)
    return relative


def levels_of(held: IntArray, pool: IntArray, weight: FloatArray) -> FloatArray:
    """Return each tenant's level, its dominant share per weight, shape (N,).

    Parameters
    ----------
    held : ndarray of int64, shape (N, R)
    pool : ndarray of int64, shape (R,)
    weight : ndarray of float64, shape (N,)
        Weight of each tenant; weights count relative to the largest.
    """
    levels: FloatArray = dominant_shares(held, pool) / relative_weights(weight)
    return levels


def is_poorer(level: FloatArray | float, than: FloatArray | float) -> BoolArray:
    """Return whether levels, (X,) or one, lie below others by more than `SHARE_TOLERANCE`."""
    poorer: BoolArray = np.asarray(level) < np.asarray(than) - SHARE_TOLERANCE
    return poorer


def level_in_steps(level: float) -> int:
    """Return a tenant's level in whole steps of `SHARE_TOLERANCE`: equal levels compare equal.

    Counting steps, unlike testing whether two levels are close, is transitive,
    so it may serve as a key to sort by.
    """
    return round(min(level / SHARE_TOLERANCE, _MAX_STEPS))


def levels_in_steps(levels: FloatArray) -> IntArray:
    """Return tenants' levels, (X,), in whole steps of `SHARE_TOLERANCE`; see `level_in_steps`."""
    return np.minimum(np.rint(levels / SHARE_TOLERANCE), _MAX_STEPS).astype(np.int64)
