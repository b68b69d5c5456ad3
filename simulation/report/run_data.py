"""Time series of runs, read from their files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy.typing as npt

from simulation.experiments.study import RUNS
from simulation.experiments.variant_comparison import variant_of


@dataclass(frozen=True)
class RunData:
    """One run of a report: its summary, and its tables, read on first use."""

    folder: Path
    summary: Mapping[str, Any]

    @property
    def variant(self) -> str:
        """The run's variant: its name without the seed."""
        return variant_of(self.summary)

    @property
    def policy(self) -> str:
        """The run's policy."""
        return str(self.summary["policy"])

    @cached_property
    def slots(self) -> Mapping[str, npt.NDArray[Any]]:
        """The run's table of slots, by column."""
        return self.table("slots")

    def table(self, name: str, *columns: str) -> Mapping[str, npt.NDArray[Any]]:
        """Return a table of the run's files, by column, or only some columns."""
        import pyarrow.csv as pa_csv  # noqa: PLC0415 - slow to import
        import pyarrow.parquet as pq  # noqa: PLC0415

        parquet = self.folder / f"{name}.parquet"
        csv = self.folder / f"{name}.csv"
        if parquet.exists():
            table = pq.read_table(parquet, columns=list(columns) or None)
        else:
            options = pa_csv.ConvertOptions(include_columns=list(columns) or None)
            table = pa_csv.read_csv(csv, convert_options=options)
        return {
            column: table[column].to_numpy(zero_copy_only=False) for column in table.column_names
        }


def runs_in(folder: Path, summaries: Sequence[Mapping[str, Any]]) -> list[RunData]:
    """Return the runs in a study's folder, for its report."""
    return [RunData(folder / RUNS / str(each["name"]), each) for each in summaries]


def first_seed_runs(runs: Sequence[RunData]) -> list[RunData]:
    """Return the run of the first seed of each variant, which plots show."""
    first: dict[str, RunData] = {}
    for run in runs:
        first.setdefault(run.variant, run)
    return list(first.values())
