"""Rows of CSV and Parquet files, with their lines and how far they are read."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from plain_text import plain
from simulation.errors import InputError
from simulation.traces.bad_rows import RowError
from simulation.traces.native import Row

_BATCH: Final = 4096


def is_parquet(path: Path) -> bool:
    """Return whether a table's file is Parquet, by its first bytes."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PAR1"
    except OSError as error:
        raise InputError(str(path), error.strerror or str(error)) from error


def read_columns(path: Path) -> tuple[str, ...]:
    """Return a table's column names: the first line of CSV, or those of Parquet."""
    if is_parquet(path):
        import pyarrow.parquet as pq  # noqa: PLC0415 - slow to import, only needed for Parquet

        return _check_distinct(path, pq.read_schema(path).names)
    with _open_text(path) as file:
        return tuple(next(csv.reader([_first_line(path, file)]), ()))


def read_rows(path: Path, columns: Sequence[str] | None = None) -> Iterator[Row]:
    """Read a table of CSV or Parquet row by row, with lines and the part that is read.

    Parameters
    ----------
    columns : sequence of str, optional
        Of a CSV file without a first line of names.
    """
    if is_parquet(path):
        yield from _parquet_rows(path)
    else:
        yield from _csv_rows(path, columns)


def read_table(path: str, needs: Sequence[str]) -> list[tuple[int, dict[str, str]]]:
    """Return the rows of a small CSV file that has these columns, with their lines.

    A cell that a row lacks is empty.
    """
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, restval="")
            _check_distinct(path, reader.fieldnames or ())
            if missing := [name for name in needs if name not in (reader.fieldnames or ())]:
                raise InputError(path, f"expected a column {missing[0]}")
            return [(reader.line_num, row) for row in reader]
    except OSError as error:
        raise InputError(path, error.strerror or str(error)) from error


def _check_distinct(path: str | Path, names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a table; raise `InputError` if two have the same name."""
    twice = next((name for place, name in enumerate(names) if name and name in names[:place]), None)
    if twice is not None:
        raise InputError(str(path), f"two columns are called {plain(twice)!r}")
    return tuple(names)


def _csv_rows(path: Path, columns: Sequence[str] | None) -> Iterator[Row]:
    """Yield the rows of a CSV file, which may be compressed; bad rows are `RowError`."""
    size = max(path.stat().st_size, 1)
    with path.open("rb") as raw:
        binary = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
        reader = csv.reader(io.TextIOWrapper(binary, encoding="utf-8-sig", newline=""))
        try:
            names = (
                list(columns) if columns is not None else _check_distinct(path, next(reader, []))
            )
            for cells in reader:
                if not cells:
                    continue
                read = min(raw.tell() / size, 1.0)
                if len(cells) != len(names):
                    wrong = RowError(f"{len(cells)} fields, expected {len(names)}")
                    yield reader.line_num, wrong, read
                else:
                    yield reader.line_num, dict(zip(names, cells, strict=True)), read
        except (UnicodeDecodeError, csv.Error, gzip.BadGzipFile, EOFError) as error:
            raise InputError(f"{path}:{reader.line_num + 1}", str(error)) from error


def _parquet_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a Parquet table, with their lines and the part that is read."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        file = pq.ParquetFile(path)
        total, line = max(file.metadata.num_rows, 1), 0
        for batch in file.iter_batches(_BATCH):
            columns: dict[str, list[Any]] = batch.to_pydict()
            names = tuple(columns)
            for values in zip(*columns.values(), strict=True):
                line += 1
                yield line, dict(zip(names, values, strict=True)), line / total
    except pa.ArrowException as error:
        raise InputError(str(path), str(error)) from error


def _open_text(path: Path) -> io.TextIOWrapper:
    """Open a CSV table as text; it may be compressed."""
    try:
        if path.suffix == ".gz":
            return io.TextIOWrapper(gzip.open(path), encoding="utf-8-sig", newline="")
        return path.open(encoding="utf-8-sig", newline="")
    except OSError as error:
        raise InputError(str(path), error.strerror or str(error)) from error


def _first_line(path: Path, file: io.TextIOWrapper) -> str:
    """Return the first line of a CSV table."""
    try:
        return file.readline()
    except (UnicodeDecodeError, OSError, EOFError) as error:
        raise InputError(str(path), f"neither CSV nor Parquet: {error}") from error
