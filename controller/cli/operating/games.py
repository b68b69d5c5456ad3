"""Prints a round step by step, and as another policy would have decided it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from controller.cli.operating.shadow import TENANTS, comparison_rows
from controller.terminal.columns import Column, field
from controller.terminal.name_lists import first_names
from controller.terminal.output import echo, number_text, percent_text, print_table
from plain_text import plain

Row = Mapping[str, Any]
#: Of hosts and requests that one line names.
_NAMED: Final = 3
_KINDS: Final[Mapping[str, str]] = {
    "before": "before",
    "game": "game",
    "move": "move",
    "handed_out": "handed out",
    "best_fit": "Best-Fit",
    "gang": "gang",
    "exchange": "exchange",
    "rest": "rest",
}


def print_game(game: Row) -> None:
    """Print a round step by step."""
    again = "the same again, bit for bit" if game["identical"] else "DIFFERS from what was stored"
    who = f"decided by {game['decided_by']} with policy {game['policy']}"
    echo(f"round {game['round']}, {who}: {again}")
    for each in game["differences"]:
        echo(plain(f"  {each}"))
    if game["ranking"]:
        echo(f"combinations are ranked by {', '.join(game['ranking'])}")
    echo("")
    rows = [_step_row(game, place, step) for place, step in enumerate(game["steps"], start=1)]
    columns = (
        field("step", right=True),
        field("what"),
        field("where"),
        field("took"),
        field("utility", right=True, spare=2),
        field("weighed", right=True, spare=4),
        field("v(A)", right=True, spare=3),
        field("skewness", right=True, spare=3),
        Column(
            "distance from fair", lambda row: percent_text(row["distance from fair"]), right=True
        ),
    )
    print_table(columns, rows, empty="it placed nothing")
    if left := game["steps_left_out"]:
        echo(f"and {left} steps more: --steps N, up to 2000")


def _step_row(game: Row, place: int, step: Row) -> dict[str, Any]:
    """Return a step of a round as a row of the table: hosts, choice, v(A), skewness."""
    chosen = next((each for each in step["combinations"] if each["chosen"]), None)
    number_of = f" {step['game']}" if step["kind"] == "game" else ""
    return {
        "step": place,
        "what": _KINDS[step["kind"]] + number_of,
        "where": _hosts_text(game, step),
        "took": _choice_text(game, step, chosen),
        "utility": None if chosen is None else number_text(chosen["utility"], 4),
        "weighed": len(step["combinations"]) or None,
        "v(A)": _number_text(step["fairness"]),
        "skewness": _number_text(step["skewness"]),
        "distance from fair": step["fair_distance"],
    }


def _number_text(value: float | None) -> str | None:
    return None if value is None else number_text(value, 4)


def _hosts_text(game: Row, step: Row) -> str:
    if step["kind"] == "game":
        return f"{step['players']} hosts"
    if step["host"] is not None:
        return str(game["hosts"][step["host"]]["name"])
    names = list(dict.fromkeys(game["hosts"][row["host"]]["name"] for row in step["rows"]))
    return first_names(names, _NAMED)


def _choice_text(game: Row, step: Row, chosen: Row | None) -> str:
    """Return what a host took in a step, or how many VMs a game offered."""
    if step["kind"] == "game":
        return f"{step['vms']} VMs offered, {step['how']}"
    if chosen is not None:
        return _combination_text(game, chosen["vms"]) or "nothing"
    if step["kind"] == "handed_out":
        return "VMs go to their requests"
    by_request: dict[int, int] = {}
    for row in step["rows"]:
        by_request[row["request"]] = by_request.get(row["request"], 0) + row["count"]
    words = [
        f"{count:+d} {game['requests'][request]['name']}" if count else None
        for request, count in by_request.items()
    ]
    return first_names([word for word in words if word is not None], _NAMED)


def _combination_text(game: Row, vms: Sequence[Row]) -> str:
    """Return a combination in VMs of each type."""
    counts: dict[str, int] = {}
    for each in vms:
        name = game["requests"][each["request"]]["vm_type"]
        counts[name] = counts.get(name, 0) + each["count"]
    return " + ".join(f"{count} {name}" for name, count in sorted(counts.items()))


_REQUESTS: Final = (
    field("name", "request"),
    field("tenant"),
    field("vm_type", "type", spare=1),
    field("asked", "requested", right=True),
    Column("placed", lambda row: f"{row['placed_first']} / {row['placed_second']}", right=True),
    field("agreed", "same host", right=True),
)


def print_shadow_game(shadow_game: Row) -> None:
    """Print the decision of another policy next to the real one."""
    first, second = shadow_game["first_policy"], shadow_game["policy"]
    echo(f"round {shadow_game['round']} by {first} / by {second}, without effect:")
    for label, line in comparison_rows(shadow_game):
        echo(f"{label:18}{line}")
    echo("")
    print_table(TENANTS, shadow_game["shares"], empty="neither policy placed a VM")
    if shadow_game["requests"]:
        echo("")
        print_table(_REQUESTS, shadow_game["requests"], empty="")
