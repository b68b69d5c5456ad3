"""The tables at the end of a study: its runs, and means over seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from controller.terminal.output import Column, echo, print_table


def print_study(comparison: Mapping[str, Any], summaries: Sequence[Mapping[str, Any]]) -> None:
    """Print every run, and then, if any has several seeds, variants side by side."""
    print_table(_OF_RUNS, summaries, empty="nothing was simulated")
    if any(len(row["seeds"]) > 1 for row in comparison["variants"]):
        echo()
        echo("means over seeds ± standard deviation")
        print_table(_OF_VARIANTS, comparison["variants"], empty="nothing was simulated")


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f} %"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} s"


def _first_used(row: Mapping[str, Any]) -> str:
    used = next(iter(row["used"].values()), {"mean": None})
    return _percent(used["mean"])


_OF_RUNS = (
    Column("run", lambda row: row["name"] + ("" if row["finished"] else " (stopped)")),
    Column("VMs requested", lambda row: f"{row['vms']['asked']:,}", right=True),
    Column("placed", lambda row: _percent(row["placed_part"]), right=True),
    Column("mean wait", lambda row: _seconds(row["wait_s"]["mean"]), right=True),
    Column("95 % within", lambda row: _seconds(row["wait_s"]["p95"]), right=True),
    Column("waiting", lambda row: f"{row['vms']['waiting']:,}", right=True),
    Column("in use", _first_used, right=True),
    Column("off fair", lambda row: _percent(row["fair_distance"]), right=True),
    Column("of bound", lambda row: _percent(row["bound_part"]), right=True),
    Column("took", lambda row: _seconds(row["timing"]["processor_seconds"]), right=True),
    Column(
        "events/s", lambda row: f"{row['timing']['events_per_processor_second']:,.0f}", right=True
    ),
)


def _mean(path: str, shown: Callable[[float | None], str]) -> Callable[[Mapping[str, Any]], str]:
    def cell(row: Mapping[str, Any]) -> str:
        told = row["measures"][path]
        spread = "" if told["sd"] is None else f" ± {shown(told['sd'])}"
        return f"{shown(told['mean'])}{spread}"

    return cell


_OF_VARIANTS = (
    Column("variant", lambda row: row["variant"]),
    Column("seeds", lambda row: len(row["seeds"]), right=True),
    Column("placed", _mean("placed_part", _percent), right=True),
    Column("mean wait", _mean("wait_s.mean", _seconds), right=True),
    Column("95 % within", _mean("wait_s.p95", _seconds), right=True),
    Column("in use", _mean("used.first.mean", _percent), right=True),
    Column("off fair", _mean("fair_distance", _percent), right=True),
    Column("of bound", _mean("bound_part", _percent), right=True),
)
