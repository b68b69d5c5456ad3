"""The tables at the end of a study: its runs, and means over seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from controller.terminal.output import Column, echo, number, print_table


def print_study(comparison: Mapping[str, Any], summaries: Sequence[Mapping[str, Any]]) -> None:
    """Print every run, and then, if any has several seeds, variants side by side."""
    print_table(_OF_RUNS, summaries, empty="nothing was simulated")
    moving = [each for each in summaries if each["moves"] is not None]
    if moving:
        echo()
        echo("what moves took, and means over the slots")
        print_table(_OF_MOVES, moving, empty="nothing was simulated")
        for each in moving:
            _print_roll(each)
    if any(len(row["seeds"]) > 1 for row in comparison["variants"]):
        echo()
        echo("means over seeds ± standard deviation")
        print_table(_OF_VARIANTS, comparison["variants"], empty="nothing was simulated")


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{number(100 * value, 2)} %"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} s"


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _print_roll(run: Mapping[str, Any]) -> None:
    """Print how a roll went, and the hosts that were left out."""
    roll = run["moves"]["roll"]
    if roll is None:
        return
    took = "not at its end" if roll["took_s"] is None else f"took {roll['took_s']:,.0f} s"
    echo(f"roll of {run['name']}: {roll['rolled']} hosts, {took}")
    for each in roll["left_out"]:
        why = ", ".join(each["why"][:3]) + (", …" if len(each["why"]) > 3 else "")
        echo(f"  {each['host']} left out: {why}")


def _spare_held(row: Mapping[str, Any]) -> str:
    spare = row["moves"]["spare"]
    return "-" if spare is None else f"{spare['asked'] - spare['not_held']} of {spare['asked']}"


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

_OF_MOVES = (
    Column("run", lambda row: row["name"]),
    Column("moves", lambda row: f"{row['moves']['moved']:,}", right=True),
    Column("GiB", lambda row: _number(row["moves"]["moved_gib"], 0), right=True),
    Column("load off", lambda row: _percent(row["moves"]["load_deviation"]), right=True),
    Column("skewness", lambda row: _number(row["moves"]["mean_skewness"], 3), right=True),
    Column("potential", lambda row: _number(row["moves"]["potential"]), right=True),
    Column("off fair", lambda row: _percent(row["moves"]["fairness_distance"]), right=True),
    Column("hosts", lambda row: _number(row["moves"]["hosts_in_use"], 1), right=True),
    Column("held idle", lambda row: _percent(row["moves"]["held_idle_part"]), right=True),
    Column("spare held", _spare_held, right=True),
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
