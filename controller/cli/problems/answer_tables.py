"""Prints an answer of `fuga solve`: tenants, placements by host, demands left out."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final

from controller.terminal.columns import Column, field
from controller.terminal.output import echo, echo_lines, number_text, print_table

#: What the reasons of `left_out` mean, in words.
REASONS: Final[Mapping[str, str]] = {
    "no_host_large_enough": "larger than every eligible host, even empty",
    "no_eligible_host": "no eligible host",
    "no_room": "eligible hosts are too full",
    "above_overload": "there is room, but above the overload threshold",
    "no_slots": "there is room, but not in whole slots",
    "gang_not_whole": "fewer than its min_count found room",
    "held_back": "room is reserved for a starving demand",
    "kept_spare": "room is kept for VMs of hosts that may fail",
    "nothing_asked": "the demand is zero",
}

Row = Mapping[str, Any]

#: The most rows, and demands in a cell; JSON has them all.
_MAX_ROWS: Final = 50
_MAX_IN_A_CELL: Final = 12
#: Columns of `--list`, whatever the terminal.
_MIN_WIDTH: Final = 60
_MAX_WIDTH: Final = 100

_SIZES: Final = (
    "Policies place whole VMs, mechanisms divide the hosts' resources. Sizes: p hosts, k "
    "classes of hosts, T kinds of VM, V distinct free vectors, n tenants, m resources, q "
    "leaves of the tree of tenants, η combinations of a host in the game."
)


def print_answer(answer: Row, *, details: bool) -> None:
    """Print an answer, with the policy's details on request."""
    placed = sum(each["tasks"] for each in answer["tasks"])
    out = sum(each["count"] for each in answer["left_out"])
    unit, done = ("tasks", "given") if answer["divisible"] else ("VMs", "placed")
    echo(
        f"{answer['policy']}: {_number_text(placed)} {unit} {done}, {_number_text(out)} left out, "
        f"{answer['seconds']:.3f} s"
    )
    if answer["details"].get("cut"):
        echo("The search reached its limit and did not evaluate every combination.")

    _print_heading("Tenants")
    _print_limited_table(
        (
            field("name", "tenant"),
            Column(unit, lambda row: _number_text(row["tasks"]), right=True),
            Column("dominant share", lambda row: _percent_text(row["dominant_share"]), right=True),
            *_fair_share_columns(answer["details"]),
        ),
        answer["tenants"],
        empty="none",
    )
    _print_heading("Placements")
    _print_limited_table(
        (
            Column("host", lambda row: row["host"] or "(all as one pool)"),
            Column("demands", lambda row: _entry_names(row["demands"])),
            Column(unit, lambda row: _number_text(row["tasks"]), right=True),
        ),
        _rows_by_host(answer["tasks"]),
        empty="Nothing was placed.",
    )
    if answer["left_out"]:
        _print_heading("Left out")
        _print_limited_table(
            (
                field("demand"),
                Column(unit, lambda row: _number_text(row["count"]), right=True),
                Column("reason", lambda row: REASONS.get(row["reason"], row["reason"])),
            ),
            answer["left_out"],
            empty="Nothing.",
        )
    _print_heading("Utilization")
    bound = answer["details"].get("utilization_bound", {})
    print_table(
        (
            field("resource"),
            Column("in use", lambda row: _percent_text(row["in_use"]), right=True),
            *(
                [Column("at most", lambda row: _percent_text(row["at_most"]), right=True)]
                * bool(bound)
            ),
        ),
        [
            {"resource": name, "in_use": part, "at_most": bound.get(name)}
            for name, part in answer["utilization"].items()
        ],
        empty="none",
    )
    if details:
        _print_details(answer["details"])


def print_catalogue(rows: Sequence[Row]) -> None:
    """Print a paragraph for each policy and mechanism: the texts are too long for cells.

    Policies come first. Lines are as long as the terminal is wide, within limits.
    """
    width = min(max(shutil.get_terminal_size((_MAX_WIDTH, 24)).columns, _MIN_WIDTH), _MAX_WIDTH)
    for row in sorted(rows, key=lambda row: row["kind"] == "mechanism"):
        _print_catalogue_entry(row, width)
    echo_lines(_wrap_text(_SIZES, width, indent=""))


def _print_catalogue_entry(row: Row, width: int) -> None:
    """Print a policy or mechanism: name, kind and summary, then what is known of it."""
    echo_lines(
        _wrap_text(
            f"{row['name']} ({row['kind']}): {row['summary']}", width, indent="", hanging="  "
        )
    )
    parts = {key: row[key] for key in ("paper", "guarantees", "complexity")}
    parts["parameters"] = ", ".join(row["parameters"]) or "none"
    if row["origin"]:
        parts["from"] = row["origin"]
    for key, text in parts.items():
        echo_lines(_wrap_text(f"{key:<11} {text}", width, indent="  ", hanging=" " * 14))
    echo()


def _wrap_text(text: str, width: int, *, indent: str, hanging: str = "") -> str:
    return textwrap.fill(
        text, width, initial_indent=indent, subsequent_indent=hanging, break_on_hyphens=False
    )


def _print_limited_table(columns: Sequence[Column], rows: Sequence[Row], *, empty: str) -> None:
    print_table(columns, rows[:_MAX_ROWS], empty=empty)
    if len(rows) > _MAX_ROWS:
        echo(f"... and {len(rows) - _MAX_ROWS:,} more; -o json shows all")


def _entry_names(entries: Sequence[str]) -> str:
    """Return the first entries of a cell, and the number of the others."""
    more = len(entries) - _MAX_IN_A_CELL
    listed = ", ".join(entries[:_MAX_IN_A_CELL])
    return f"{listed} and {more:,} more demands" if more > 0 else listed


def _print_heading(title: str) -> None:
    echo()
    echo(title)


def _fair_share_columns(details: Row) -> list[Column]:
    """Return the column of fair shares that answers of policies have."""
    if "shares" not in details:
        return []
    shares: Row = details["shares"]
    return [
        Column("fair share", lambda row: _percent_text(shares[row["name"]]["fair"]), right=True)
    ]


def _percent_text(part: float | None) -> str:
    return "-" if part is None else f"{number_text(100 * part, 2)} %"


def _number_text(amount: float) -> str:
    """Return a number as text, with six significant digits if it is not whole."""
    return str(int(amount)) if amount == int(amount) else f"{amount:.6g}"


def _rows_by_host(tasks: Sequence[Row]) -> list[dict[str, Any]]:
    """Return a row for each host with its entries, in order of appearance."""
    rows: dict[str | None, dict[str, Any]] = {}
    for each in tasks:
        row = rows.setdefault(each["host"], {"host": each["host"], "demands": [], "tasks": 0})
        row["demands"].append(f"{_number_text(each['tasks'])} {each['demand']}")
        row["tasks"] += each["tasks"]
    return list(rows.values())


def _print_details(details: Row) -> None:
    """Print the details of a policy's answer as indented lines."""
    _print_heading("Details")
    for key, value in details.items():
        if isinstance(value, Mapping):
            echo(f"{key}:")
            for name, each in value.items():
                _print_detail(name, each)
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            echo(f"{key}:")
            for each in value:
                echo(f"  {_inline_text(each)}")
        else:
            echo(f"{key}: {_inline_text(value)}")


def _print_detail(name: str, value: object) -> None:
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        echo(f"  {name}:")
        for each in value:
            echo(f"    {_inline_text(each)}")
    else:
        echo(f"  {name}: {_inline_text(value)}")


def _inline_text(value: object) -> str:
    """Return a JSON value as text on one line."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
        case Mapping():
            return ", ".join(f"{key} {_inline_text(each)}" for key, each in value.items()) or "-"
        case list() | tuple():
            return " ".join(map(_inline_text, value)) or "-"
        case _:
            return str(value)
