"""The confidence interval of a mean over repeated runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

_CONFIDENCE: Final = 0.95


def half_width(runs: Sequence[float]) -> float:
    """Return half of the 95 % confidence interval of the mean (Student's t); 0 for one run."""
    if len(runs) < 2:
        return 0.0
    from scipy.special import stdtrit  # noqa: PLC0415 - `fuga --help` need not wait for scipy

    quantile = float(stdtrit(len(runs) - 1, (1 + _CONFIDENCE) / 2))
    return quantile * float(np.std(runs, ddof=1)) / math.sqrt(len(runs))


def is_above_zero(differences: Sequence[float]) -> bool:
    """Return whether the mean of paired differences is above zero, noise apart."""
    return float(np.mean(differences)) > half_width(differences)
