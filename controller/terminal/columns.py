"""Columns of tables: a heading, and a function from a row to its cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: its heading, and a function from a row to its cell."""

    heading: str
    value: Callable[[Mapping[str, Any]], object]
    right: bool = False
    prose: bool = False  #: sentences, read rather than compared: folded where they are too long
    spare: int = 0  #: the highest is left out first without room; ties go to the rightmost


def field(
    name: str,
    heading: str | None = None,
    *,
    right: bool = False,
    prose: bool = False,
    spare: int = 0,
) -> Column:
    """Make a column of a table that shows one field of each row."""
    heading = heading or name.replace("_", " ")
    return Column(heading, lambda row: row.get(name), right, prose, spare)
