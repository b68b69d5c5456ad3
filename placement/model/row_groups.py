"""Group equal rows, so that each kind is computed once, and join rows of allocations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from placement.model.arrays import IntArray


@dataclass(frozen=True, slots=True, eq=False)
class RowGroups:
    """The K kinds among N rows of arrays, in order of first appearance."""

    of_row: IntArray  #: (N,) the kind of each row
    first: IntArray  #: (K,) the first row of each kind

    def __len__(self) -> int:
        return len(self.first)

    def members(self) -> list[IntArray]:
        """Return the rows of each kind in ascending order, arrays of shape (X,)."""
        by_kind = np.argsort(self.of_row, kind="stable")
        return np.split(by_kind, np.cumsum(np.bincount(self.of_row, minlength=1))[:-1])


def group_rows(*columns: npt.NDArray[Any]) -> RowGroups:
    """Group the rows that are equal bit by bit in all columns, of shape (N,) or (N, M)."""
    rows, wide = len(columns[0]), [each if each.ndim == 2 else each[:, None] for each in columns]
    # Rows as bytes: hashing twenty thousand of those takes milliseconds.
    packed = np.concatenate([np.ascontiguousarray(each).view(np.uint8) for each in wide], axis=1)
    kinds: dict[bytes, int] = {}
    keys = packed.view(f"V{packed.shape[1]}").ravel().tolist()
    of_row = np.array([kinds.setdefault(key, len(kinds)) for key in keys], dtype=np.int64)
    first = np.full(len(kinds), rows)
    np.minimum.at(first, of_row, np.arange(rows))
    return RowGroups(of_row, first)


def join_rows(parts: Iterable[IntArray]) -> IntArray:
    """Join allocations' rows (request, host, count), shape (P, 3), sorted.

    Counts of a pair are added up; what comes to 0 is left out.

    Counts of a pair are added up; what comes to 0 is left out.
    """
    rows = np.concatenate([np.zeros((0, 3), dtype=np.int64), *parts])
    # One number for each pair, so that rows sort by request, then host.
    hosts = int(rows[:, 1].max(initial=0)) + 1
    pairs, place = np.unique(rows[:, 0] * hosts + rows[:, 1], return_inverse=True)
    counts = np.zeros(len(pairs), dtype=np.int64)
    np.add.at(counts, place, rows[:, 2])
    merged: IntArray = np.stack([pairs // hosts, pairs % hosts, counts], axis=1)[counts != 0]
    return merged
