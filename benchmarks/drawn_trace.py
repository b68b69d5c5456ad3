"""A trace of any length, drawn from the sample of Azure's trace that the repository ships."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np

from simulation.traces.table_files import read_rows

SAMPLE: Final = Path(__file__).parents[1] / "docs/examples/traces/azure_2017_sample.csv.gz"
_DAYS: Final = 2  #: that the sample lasts
_DAY_S: Final = 86_400
_SHIFT_S: Final = 1800  #: at most, of a batch from its time of the day
_LARGEST: Final = 1000  #: VMs: the only larger batch alone is an eighth of the sample


def write_drawn(path: Path, vms: int, days: float, seed: int = 0) -> None:
    """Write a trace of about ``vms`` VMs in ``days`` days, in the format of the sample.

    Batches of VMs are drawn with replacement, each with a tenant of its own, at
    their times of the day up to half an hour off; after two days they come again.
    """
    batches = list(_batches())
    drawn = np.random.default_rng([seed, vms])
    each = vms / days * _DAYS / sum(len(batch) for batch in batches)
    first_s = int(batches[0][0]["arrival_s"])
    found: list[tuple[int, int]] = []  #: when, and which
    for again in range(int(np.ceil(days / _DAYS))):
        times = drawn.poisson(each, len(batches))
        for place in np.repeat(np.arange(len(batches)), times).tolist():
            begun_s = int(batches[place][0]["arrival_s"]) - first_s + again * _DAYS * _DAY_S
            at_s = max(begun_s + int(drawn.integers(-_SHIFT_S, _SHIFT_S)), 0)
            if at_s < days * _DAY_S:
                found.append((at_s, place))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(batches[0][0]))
        writer.writeheader()
        for number, (at_s, place) in enumerate(sorted(found)):
            of_batch = {"arrival_s": at_s, "batch_id": number}
            writer.writerows({**row, **of_batch} for row in batches[place])


def _batches() -> Iterator[list[Mapping[str, Any]]]:
    rows = (row for _, row, _ in read_rows(SAMPLE) if isinstance(row, Mapping))
    for _, batch in groupby(rows, key=lambda row: (row["arrival_s"], row["batch_id"])):
        vms = list(batch)
        if len(vms) <= _LARGEST:
            yield vms
