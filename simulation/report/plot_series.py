"""Series of points as plots draw them: downsampled, or as cumulative fractions."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

#: Points that a line has at most: more cannot be seen.
MAX_POINTS: Final = 400
_INVISIBLE: Final = 2


def downsample_series(
    times: npt.NDArray[Any], values: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return a plot's times and values as means of at most `MAX_POINTS` parts; NaNs are dropped.

    Series of at most twice as many points are returned as they are.
    """
    known = np.isfinite(values)
    times, values = times[known], values[known]
    if len(values) <= _INVISIBLE * MAX_POINTS:
        return times, values
    parts = np.array_split(np.arange(len(values)), MAX_POINTS)
    return (
        np.array([times[part].mean() for part in parts]),
        np.array([values[part].mean() for part in parts]),
    )


def cumulative_fractions(
    values: npt.NDArray[Any], counts: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return a plot's distinct values and the cumulative fraction of the counts at each."""
    distinct, place = np.unique(values, return_inverse=True)
    total = np.cumsum(np.bincount(place.ravel(), counts, len(distinct)))
    return distinct, total / total[-1]
