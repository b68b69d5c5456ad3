"""`fuga shadow`: what a second policy would have decided, beside what was decided."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from controller.cli.output import Column, clock, field
from controller.cli.rounds import off_fair
from controller.cli.session import Session, listing

Row = Mapping[str, Any]


def _both(name: str, told: Callable[[Any], str] = str) -> Callable[[Row], str | None]:
    """Return what tells a measure of the first policy and of the second."""

    def cell(row: Row) -> str | None:
        if row["first"] is None or row["decided"] is None:
            return None
        return f"{told(row['first'][name])} / {told(row['decided'][name])}"

    return cell


def _used(used: Mapping[str, float]) -> str:
    """Say the part of the first resource that is in use."""
    return off_fair(next(iter(used.values()), None))


def _took(row: Row) -> str | None:
    return None if row["seconds"] is None else f"{row['seconds']:.3f} s"


COLUMNS = (
    field("round", right=True),
    Column("slot", lambda row: clock(row["slot_start_at"])),
    Column("first / second", lambda row: f"{row['first_policy']} / {row['policy']}"),
    Column("placed", _both("placed"), right=True),
    Column("left out", _both("left_out"), right=True),
    field("agreed", "same host", right=True),
    Column("in use", _both("used", _used), right=True),
    Column("off fair", _both("fair_distance", off_fair), right=True),
    Column("took", _took, right=True),
    field("error"),
)


@listing
def shadow(
    session: Session,
    last: Annotated[int, typer.Option("--last", "-n", help="So many of the newest.", min=1)] = 100,
    everything: Annotated[bool, typer.Option("--all", "-a", help="All there are.")] = False,
) -> None:
    """List rounds as the second policy (FUGA_SHADOW_POLICY) would have decided them.

    The newest below, each cell with the first policy and the second. For operators.
    """
    rows = list(session.api.items("shadow-rounds", most=None if everything else last))[::-1]
    session.show(rows, COLUMNS, empty="no rounds: FUGA_SHADOW_POLICY names a second policy.")
    if rows and not session.json:
        session.say(summary(rows))


def summary(rows: Sequence[Row]) -> str:
    """Say what came of all these rounds together."""
    both = [row for row in rows if row["first"] is not None and row["decided"] is not None]
    failed, skipped = len(rows) - len(both), sum(row["skipped"] for row in rows)
    words = [f"{len(both)} rounds"]
    if both:
        placed = [sum(row[which]["placed"] for row in both) for which in ("first", "decided")]
        agreed = sum(row["agreed"] for row in both)
        part = agreed / max(*placed, 1)
        far = [
            _mean([row[which]["fair_distance"] for row in both]) for which in ("first", "decided")
        ]
        words += [
            f"{placed[0]} VMs placed, {placed[1]} by the second policy",
            f"{agreed} ({part:.0%}) on the same host",
            f"off fair {off_fair(far[0])}, {off_fair(far[1])} by the second",
            f"which took {statistics.median(row['seconds'] for row in both):.3f} s (median)",
        ]
    words += [f"{failed} failed"] * bool(failed) + [f"{skipped} passed over"] * bool(skipped)
    return "; ".join(words)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
