"""Azure's trace for packing of 2020: VMs, and the fraction of a machine that each type takes.

Published as a file of SQLite with the tables ``vm`` and ``vmType``; the same tables
as CSV, ``vm.csv`` with ``vmType.csv`` next to it, are read as well. A type may run on
several kinds of machine and takes other parts of each: sizes here are those on
the kind that most types can run on.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from simulation.errors import InputError
from simulation.traces.bad_rows import RowError
from simulation.traces.native import Row
from simulation.traces.table_files import read_columns, read_rows

#: What a whole machine has of each resource; parts of it are rounded down.
MACHINE: Final = 1_000_000
#: Resources by the columns of types that say what part of a machine they take.
_PARTS: Final = {
    "cpu_ppm": "core",
    "memory_ppm": "memory",
    "hdd_ppm": "hdd",
    "nic_ppm": "nic",
    "ssd_ppm": "ssd",
}
RESOURCES: Final = tuple(_PARTS)
NEEDS: Final = frozenset({"vmId", "tenantId", "vmTypeId", "starttime", "endtime"})
_DAY_S: Final = 86_400.0
_MAGIC: Final = b"SQLite format 3\x00"
#: A part of a machine this close below a whole number is rounded up.
_ROUNDING: Final = 1e-6


def is_packing_trace(path: Path) -> bool:
    """Return whether a file is SQLite, as Azure's packing trace is."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError as error:
        raise InputError(str(path), error.strerror or str(error)) from error


def packing_requests(path: Path) -> Iterator[Row]:
    """Yield the VMs of Azure's packing trace in order of start, as native rows.

    VMs that ran before the trace begins arrive at 0 for what is left of their
    lives. The line of a row of SQLite is its ``rowid``.
    """
    if is_packing_trace(path):
        with closing(_open_database(path)) as database:
            sizes = _vm_sizes(path, _read_types(path, database))
            yield from _native_rows(_read_vms(path, database), sizes)
    else:
        types = path.with_name("vmType.csv")
        if not types.is_file():
            raise InputError(str(path), f"its table of types, {types}, is not there")
        if missing := {"vmTypeId", "machineId", *_PARTS.values()} - set(read_columns(types)):
            raise InputError(str(types), f"no column {', '.join(sorted(missing))}")
        sizes = _vm_sizes(types, ((line, row) for line, row, _ in read_rows(types)))
        yield from _native_rows(read_rows(path), sizes)


def _open_database(path: Path) -> sqlite3.Connection:
    """Open the trace's SQLite file, read-only."""
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)


def _read_types(
    path: Path, database: sqlite3.Connection
) -> Iterator[tuple[int, Mapping[str, Any] | RowError]]:
    """Yield the rows of the trace's table of VM types."""
    names = ("vmTypeId", "machineId", *_PARTS.values())
    for line, *cells in _select_columns(path, database, "vmType", names, order="rowid"):
        yield line, dict(zip(names, cells, strict=True))


def _read_vms(path: Path, database: sqlite3.Connection) -> Iterator[Row]:
    """Yield the rows of the trace's table of VMs in order of start, with the part read."""
    names = ("tenantId", "vmTypeId", "starttime", "endtime")
    total = max(next(_select_columns(path, database, "vm", (), order="1", what="count(*)"))[0], 1)
    rows = _select_columns(path, database, "vm", names, order="max(starttime, 0), rowid")
    for place, (line, *cells) in enumerate(rows):
        yield line, dict(zip(names, cells, strict=True)), (place + 1) / total


def _select_columns(
    path: Path,
    database: sqlite3.Connection,
    table: str,
    names: Iterable[str],
    *,
    order: str,
    what: str = "rowid",
) -> Iterator[tuple[Any, ...]]:
    """Yield columns of a table; the query has only names of this module."""
    columns = ", ".join([what, *names])
    try:
        yield from database.execute(f"SELECT {columns} FROM {table} ORDER BY {order}")  # noqa: S608
    except sqlite3.DatabaseError as error:
        raise InputError(str(path), f"no packing trace: {error}") from error


def _vm_sizes(
    path: Path, types: Iterable[tuple[int, Mapping[str, Any] | RowError]]
) -> Mapping[str, Mapping[str, int]]:
    """Return the amounts of each VM type on the machine that most types can use."""
    on: dict[str, dict[str, Mapping[str, int]]] = {}
    for line, row in types:
        if isinstance(row, RowError):
            raise InputError(f"{path}:{line}", str(row))
        try:
            sizes = {name: _millionths(row[column]) for name, column in _PARTS.items()}
        except (TypeError, ValueError) as error:
            raise InputError(f"{path}:{line}", f"a part of a machine: {error}") from None
        on.setdefault(_id_text(row["machineId"]), {})[_id_text(row["vmTypeId"])] = sizes
    if not on:
        raise InputError(str(path), "no types of VM")
    known = Counter({machine: len(types) for machine, types in on.items()})
    return on[known.most_common(1)[0][0]]


def _native_rows(rows: Iterable[Row], sizes: Mapping[str, Mapping[str, int]]) -> Iterator[Row]:
    """Convert rows of VMs to native rows; bad rows become errors."""
    for line, row, read in rows:
        if isinstance(row, RowError):
            yield line, row, read
            continue
        try:
            yield line, _to_native_row(row, sizes), read
        except (TypeError, ValueError) as error:
            yield line, error if isinstance(error, RowError) else RowError(str(error)), read


def _to_native_row(
    row: Mapping[str, Any], sizes: Mapping[str, Mapping[str, int]]
) -> Mapping[str, Any]:
    """Convert one VM to a row of the native format."""
    its_type = _id_text(row["vmTypeId"])
    if its_type not in sizes:
        raise RowError(f"vmTypeId: {its_type} does not run on the machine of this trace")
    start_s = max(float(row["starttime"]), 0.0) * _DAY_S
    ended = row["endtime"]
    return {
        "arrival_s": start_s,
        "lifetime_s": None if ended in (None, "") else float(ended) * _DAY_S - start_s,
        "tenant": _id_text(row["tenantId"]),
        **sizes[its_type],
    }


def _id_text(found: Any) -> str:
    """Return an id as text; tables export the same number as 7 or as 7.0."""
    return str(int(found)) if isinstance(found, float) and found == int(found) else str(found)


def _millionths(found: Any) -> int:
    """Return a fraction of the machine in millionths, rounded; 0 for none."""
    if found in (None, ""):
        return 0
    part = float(found)
    if not 0 <= part <= 1:
        raise ValueError(f"found {found!r}, expected 0 to 1")
    return int(part * MACHINE + _ROUNDING)
