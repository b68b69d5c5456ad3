"""Rows as columns: what slots keep of VMs and requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from placement import BoolArray, IntArray
from simulation.checkpoint import CheckpointData, CheckpointSizes, ValueRange, read_array


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RowArrays:
    """Rows of requests or VMs as arrays, one for each column: floats in ``*_s``, else integers."""

    request: IntArray  #: its number in order of arrival
    tenant: IntArray
    kind: IntArray
    constraints: IntArray
    count: IntArray  #: VMs

    def __len__(self) -> int:
        return len(self.count)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the rows by the name of their column."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def where(self, chosen: IntArray | BoolArray) -> Self:
        """Return the chosen rows, by index or mask."""
        return type(self)(**{name: column[chosen] for name, column in self.columns().items()})

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of all parts as one, in order."""
        names = (each.name for each in fields(cls))
        return cls(**{name: np.concatenate([getattr(p, name) for p in parts]) for name in names})

    @classmethod
    def empty(cls) -> Self:
        """Return an object without rows."""
        return cls(**{each.name: np.zeros(0, _dtype_of(each.name)) for each in fields(cls)})

    @classmethod
    def from_state(cls, kept: CheckpointData, sizes: CheckpointSizes) -> Self:
        """Return the rows whose columns a checkpoint has.

        Raises
        ------
        MisfitError
            For columns of another type, length or range.
        """
        rows = len(read_array(kept, "count", "int", (None,)))
        high = {
            "tenant": sizes.tenants,
            "kind": sizes.kinds,
            "constraints": sizes.constraints,
            "host": sizes.hosts,
        }
        found = {}
        for name in (each.name for each in fields(cls)):
            like = "float" if _dtype_of(name) is np.float64 else "int"
            within = ValueRange(0, high[name]) if name in high else None
            found[name] = read_array(kept, name, like, (rows,), within)
        return cls(**found)


def _dtype_of(column: str) -> type:
    """Return the type of a column's numbers, by its name."""
    return np.float64 if column.endswith("_s") else np.int64
