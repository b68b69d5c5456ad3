"""Summarise sampled waiting times as the median and the 90th percentile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from placement.model.arrays import FloatArray

#: Fewer samples than this say nothing of nine in ten.
MIN_SAMPLES: Final = 10
#: The quantiles that an estimate reports.
QUANTILES: Final = (0.05, 0.5, 0.9, 0.95)
#: By what each is multiplied, so that it holds as often as it says: see `benchmarks.forecasts`.
AS_CALIBRATED: Final[Mapping[float, float]] = MappingProxyType(
    {0.05: 1.0, 0.5: 1.0, 0.9: 1.0, 0.95: 1.0}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitEstimate:
    """Estimated wait of a request from now; None: beyond the horizon, or for ever."""

    low_s: float | None  #: nine in ten wait between this...
    half_s: float | None  #: half had their place by then
    nine_in_ten_s: float | None
    high_s: float | None  #: ...and that
    samples: int


def estimate_wait(
    waits_s: FloatArray,
    *,
    slot_length_s: float,
    horizon_s: float,
    corrected: Mapping[float, float] = AS_CALIBRATED,
) -> WaitEstimate | None:
    """Return the estimated wait of a request from sampled waits, (S,); None if they are too few."""
    if len(waits_s) < MIN_SAMPLES:
        return None
    moments = []
    for part in QUANTILES:
        found = quantile(waits_s, part) * corrected[part]
        # The end of the next slot: nothing is decided between.
        found = max(slot_length_s, np.ceil(found / slot_length_s) * slot_length_s)
        moments.append(float(found) if found <= horizon_s else None)
    low_s, half_s, nine_in_ten_s, high_s = moments
    return WaitEstimate(
        low_s=low_s, half_s=half_s, nine_in_ten_s=nine_in_ten_s, high_s=high_s, samples=len(waits_s)
    )


def quantile(values: FloatArray, part: float) -> float:
    """Return the quantile ``part`` of sampled waits, shape (S,), corrected for their number.

    The order statistic of rank part (S + 1), rounded up, or down for a part below a half, and
    kept within 1 to S.
    """
    size = len(values)
    rank = int(np.ceil(part * (size + 1))) if part >= 0.5 else int(np.floor(part * (size + 1)))
    return float(np.sort(values)[min(max(rank, 1), size) - 1])
