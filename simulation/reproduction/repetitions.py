"""Repeated runs of an experiment: seeds, and the confidence interval of the mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

#: Number of times that the FUGA paper runs each of its experiments.
RUNS: Final = 10
#: With `--quick`.
FEW_RUNS: Final = 2
_CONFIDENCE: Final = 0.95


def run_seeds(seed: int, *, quick: bool = False) -> range:
    """Return the seeds of the runs; no two values of ``seed`` share one."""
    first = seed * RUNS
    return range(first, first + (FEW_RUNS if quick else RUNS))


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
