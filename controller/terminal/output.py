"""Tables for people; JSON, YAML, CSV or names alone for programs."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from enum import StrEnum
from typing import Any

import typer

from controller.terminal.columns import Column
from controller.terminal.yaml_text import yaml_text
from plain_text import plain, plain_json, plain_lines

WIDE = 400  #: columns where no terminal limits them


class OutputFormat(StrEnum):
    """The format in which a command prints its result."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    NAME = "name"

    @property
    def is_machine_readable(self) -> bool:
        """Whether only records are printed, for programs: JSON, YAML, CSV or names."""
        return self not in (OutputFormat.TABLE, OutputFormat.WIDE)


_format: ContextVar[OutputFormat] = ContextVar("format", default=OutputFormat.JSON)
_wide: ContextVar[bool] = ContextVar("wide", default=False)


def echo(message: object = "", *, err: bool = False) -> None:
    """Print one line with control characters of untrusted parts removed."""
    _print_text(plain(str(message)), err=err)


def echo_lines(message: object, *, err: bool = False, nl: bool = True) -> None:
    """Print lines. Pass untrusted text through `plain` before."""
    _print_text(plain_lines(str(message)), err=err, nl=nl)


def _print_text(message: str, *, err: bool = False, nl: bool = True) -> None:
    typer.echo(message, err=err, nl=nl)  # noqa: TID251 - here alone


def number_text(value: float, places: int = 3) -> str:
    """Return a number with these decimal places; one digit if it would round to zero."""
    text = f"{value:.{places}f}"
    return text if float(text) or not value else f"{value:.1g}"


def percent_text(value: float | None, places: int = 1) -> str:
    """Return a fraction as a percentage."""
    return "-" if value is None else f"{number_text(100 * value, places)}%"


def print_records_as(output: OutputFormat) -> None:
    """Choose how `print_json` writes, for this command."""
    _format.set(output if output.is_machine_readable else OutputFormat.JSON)
    _wide.set(output is OutputFormat.WIDE)


def print_json(value: Any) -> None:
    """Print records and nothing else, as JSON or in the chosen format."""
    match _format.get():
        case OutputFormat.YAML:
            echo_lines(yaml_text(value), nl=False)
        case OutputFormat.CSV:
            echo_lines(csv_text(value), nl=False)
        case OutputFormat.NAME:
            for name in record_names(value):
                echo(name)
        case _:
            echo_lines(plain_json(json.dumps(value, indent=2, ensure_ascii=False)))


def csv_text(value: Any) -> str:
    """Return records as CSV (RFC 4180) under a line of field names; lists and records as JSON.

    Of an answer with ``items`` these are the records.
    """
    import csv  # noqa: PLC0415 - not for `--help`

    if isinstance(value, Mapping):
        value = value.get("items", [value])
    records = [record for record in value if isinstance(record, Mapping)]
    names = dict.fromkeys(name for record in records for name in record)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_csv_cell(record.get(name)) for name in names] for record in records)
    return text.getvalue()


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    return plain(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def record_names(value: Any) -> list[str]:
    """Return the name of a record, or else its number or id."""
    records = value if isinstance(value, list) else [value]
    return [_record_name(record) for record in records if isinstance(record, Mapping)]


def _record_name(record: Mapping[str, Any]) -> str:
    keys = ("name", "number", "id")
    return str(next((record[key] for key in keys if record.get(key) is not None), ""))


def print_table(
    columns: Sequence[Column], rows: Iterable[Mapping[str, Any]], *, empty: str
) -> None:
    """Print rows below their headings, one a line, or ``empty`` without rows.

    On a terminal, columns without room are left out, unless ``-o wide`` asks for all.
    """
    cells = [[text(column.value(row)) for column in columns] for row in rows]
    if not cells:
        echo(empty)
        return
    from controller.terminal.tables import columns_with_room, render_lines  # noqa: PLC0415 - not for `--help`

    headings = [plain(column.heading) for column in columns]
    width = None if _wide.get() else terminal_width()
    kept = columns_with_room(columns, headings, cells, width)
    for line in render_lines(
        [columns[each] for each in kept],
        [[row[each] for each in kept] for row in (headings, *cells)],
        width,
        bold=sys.stdout.isatty(),
    ):
        _print_text(line)
    if len(kept) < len(columns):
        gone = ", ".join(each for place, each in enumerate(headings) if place not in kept)
        echo(f"(-o wide shows {gone}, too)")


def terminal_width() -> int | None:
    """Return the width of a line; None without a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table_width() -> int:
    """Return the maximum width of a table, in characters."""
    return terminal_width() or WIDE


def text(value: object) -> str:
    """Return a value as a cell's text, without control characters."""
    return plain(_cell_text(value))


def _cell_text(value: object) -> str:
    match value:
        case None | "":
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return number_text(value)
        case list() | tuple():
            return ",".join(str(each) for each in value) or "-"
        case _:
            return str(value)


def amounts_text(amounts: Mapping[str, Any]) -> str:
    """Return a resource vector as ``4 vcpus, 8192 memory_mib``."""
    return ", ".join(f"{amount} {name}" for name, amount in amounts.items())


def short_id(value: object) -> str:
    """Return the end of a UUIDv7, which is random; its beginning is the time, which many share."""
    return str(value)[-8:]
