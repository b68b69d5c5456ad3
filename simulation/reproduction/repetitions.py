"""Seeds of the repeated runs of an experiment."""

from __future__ import annotations

from typing import Final

#: Number of times that the FUGA paper runs each of its experiments.
RUNS: Final = 10
#: With `--quick`.
FEW_RUNS: Final = 2


def run_seeds(seed: int, *, quick: bool = False) -> range:
    """Return the seeds of the runs; no two values of ``seed`` share one."""
    first = seed * RUNS
    return range(first, first + (FEW_RUNS if quick else RUNS))
