"""Tables for people; JSON, YAML or names alone for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import typer

from controller.cli.yaml_text import yaml_text

WIDE = 400  #: columns where no terminal limits them


class OutputFormat(StrEnum):
    """How answers are printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"

    @property
    def for_programs(self) -> bool:
        """Whether a program reads it: records and nothing else."""
        return self is not OutputFormat.TABLE


_format: ContextVar[OutputFormat] = ContextVar("format", default=OutputFormat.JSON)


def percent(value: float | None) -> str:
    """Say a part of one, as of shares or distances."""
    return "-" if value is None else f"{value:.1%}"


def print_records_as(output: OutputFormat) -> None:
    """Choose how `print_json` writes, for this command."""
    _format.set(output if output.for_programs else OutputFormat.JSON)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: its heading, and what stands there for a row."""

    heading: str
    value: Callable[[Mapping[str, Any]], object]
    right: bool = False


def field(name: str, heading: str | None = None, *, right: bool = False) -> Column:
    """Make a column of one field of the row."""
    return Column(heading or name.replace("_", " "), lambda row: row.get(name), right)


def print_json(value: Any) -> None:
    """Print records and nothing else: as JSON, or in the form that was asked for instead."""
    match _format.get():
        case OutputFormat.YAML:
            typer.echo(yaml_text(value), nl=False)
        case OutputFormat.NAME:
            for name in names_in(value):
                typer.echo(name)
        case _:
            typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def names_in(value: Any) -> list[str]:
    """Return what records are called: by name, else by number or id."""
    records = value if isinstance(value, list) else [value]
    return [_called(record) for record in records if isinstance(record, Mapping)]


def _called(record: Mapping[str, Any]) -> str:
    keys = ("name", "number", "id")
    return str(next((record[key] for key in keys if record.get(key) is not None), ""))


def print_table(
    columns: Sequence[Column], rows: Iterable[Mapping[str, Any]], *, empty: str
) -> None:
    """Print rows below their headings, numbers to the right; ``empty`` where there are none."""
    cells = [[text(column.value(row)) for column in columns] for row in rows]
    if not cells:
        typer.echo(empty)
        return
    from rich import box  # noqa: PLC0415 - `fuga --help` is to be there at once
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column.heading, justify="right" if column.right else "left")
    for row in cells:
        table.add_row(*(Text(cell, overflow="fold") for cell in row))
    console = Console(width=None if sys.stdout.isatty() else WIDE, soft_wrap=False)
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        typer.echo(line.rstrip())


def text(value: object) -> str:
    """Say a value in a cell."""
    match value:
        case None | "":
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.3f}"
        case list() | tuple():
            return ",".join(str(each) for each in value) or "-"
        case _:
            return str(value)


def clock(value: object) -> str:
    """Say an API time in the reader's own zone, to the second; only the time if it is today."""
    if not isinstance(value, str):
        return "-"
    moment = datetime.fromisoformat(value).astimezone()
    if moment.date() == datetime.now(UTC).astimezone().date():
        return moment.strftime("%H:%M:%S")
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def age(value: object) -> str:
    """Say how long ago an API time was."""
    if not isinstance(value, str):
        return "-"
    return _span(max(0.0, (datetime.now(UTC) - datetime.fromisoformat(value)).total_seconds()))


def _span(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def until(value: object) -> str:
    """Say how long it is until an API time."""
    if not isinstance(value, str):
        return "-"
    seconds = (datetime.fromisoformat(value) - datetime.now(UTC)).total_seconds()
    return _span(max(0.0, seconds))


def resources(amounts: Mapping[str, Any]) -> str:
    """Say a resource vector as ``4 vcpus, 8192 memory_mib``."""
    return ", ".join(f"{amount} {name}" for name, amount in amounts.items())


def short_id(value: object) -> str:
    """Return the end of a UUIDv7, which is random; its beginning is the time, which many share."""
    return str(value)[-8:]
