"""Columns of numbers that grow row by row, in eight bytes each."""

from __future__ import annotations

from array import array as array_of_numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from simulation.checkpoint import CheckpointData, read_array, read_texts


class Series:
    """Rows of numbers by column name; a column that a row omits is NaN."""

    def __init__(self, *names: str) -> None:
        self._columns = {name: array_of_numbers("d") for name in names}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, **values: float | None) -> None:
        """Append a row."""
        self.add_row(values)

    def add_row(self, values: Mapping[str, float | None]) -> None:
        """Append a row with any column names; new names make new columns."""
        for name in values:
            if name not in self._columns:
                self._columns[name] = array_of_numbers("d", [float("nan")] * self._length)
        for name, column in self._columns.items():
            value = values.get(name)
            column.append(float("nan") if value is None else value)
        self._length += 1

    def state(self) -> CheckpointData:
        """Return the rows for a checkpoint."""
        rows = [np.array(column) for column in self._columns.values()]
        return {"names": list(self._columns), "rows": np.array(rows).reshape(-1, self._length)}

    def restore(self, kept: CheckpointData) -> None:
        """Restore saved rows."""
        names = read_texts(kept, "names")
        rows = read_array(kept, "rows", "float", (len(names), None))
        self._columns = {
            name: array_of_numbers("d", row.tobytes())
            for name, row in zip(names, rows, strict=True)
        }
        self._length = rows.shape[1]

    def column(self, name: str) -> npt.NDArray[np.float64]:
        """Return a column; all NaN if no row named it."""
        if name not in self._columns:
            return np.full(self._length, np.nan)
        return np.array(self._columns[name])

    @property
    def names(self) -> Sequence[str]:
        """The columns, in order of first appearance."""
        return tuple(self._columns)


class Stacks:
    """Arrays of equal length by name, to which many rows are appended at once."""

    def __init__(self, *names: str) -> None:
        self._parts: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in names}

    def add(self, **parts: npt.NDArray[Any]) -> None:
        """Append rows."""
        for name, listed in self._parts.items():
            listed.append(parts[name])
        if len(listed) > 512:  # few long arrays take less room than many short ones
            self._parts = {name: [np.concatenate(each)] for name, each in self._parts.items()}

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return a column."""
        listed = self._parts[name]
        return np.concatenate(listed) if listed else np.zeros(0)

    def state(self) -> CheckpointData:
        """Return the rows for a checkpoint; empty if none was added."""
        return {name: self.column(name) for name, listed in self._parts.items() if listed}

    def restore(self, kept: CheckpointData) -> None:
        """Restore saved rows."""
        if not kept:
            self._parts = {name: [] for name in self._parts}
            return
        rows: int | None = None
        for name in self._parts:
            column = read_array(kept, name, None, (rows,))
            self._parts[name], rows = [column], len(column)

    @property
    def names(self) -> Sequence[str]:
        """The columns."""
        return tuple(self._parts)
