"""`fuga shadow`: decisions of a second policy, compared with the real ones."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from controller.session.session import Session, list_command
from controller.terminal.columns import Column, field
from controller.terminal.output import echo, number_text, percent_text, print_table
from controller.terminal.times import clock, parse_moment

Row = Mapping[str, Any]
_LAST: Final = 100


def _both_policies_cell(
    name: str, render: Callable[[Any], str] = str
) -> Callable[[Row], str | None]:
    """Return a cell function for a measure of a round by both policies: ``first / second``."""

    def cell(row: Row) -> str | None:
        if row["first"] is None or row["decided"] is None:
            return None
        return f"{render(row['first'][name])} / {render(row['decided'][name])}"

    return cell


def _used_percent(used: Mapping[str, float]) -> str:
    """Return the used percentage of the first resource."""
    return percent_text(next(iter(used.values()), None))


def _duration_text(row: Row) -> str | None:
    return None if row["seconds"] is None else f"{row['seconds']:.3f} s"


COLUMNS = (
    field("round", right=True),
    Column("slot", lambda row: clock(row["slot_start_at"])),
    Column("first / second", lambda row: f"{row['first_policy']} / {row['policy']}"),
    Column("placed", _both_policies_cell("placed"), right=True),
    Column("not placed", _both_policies_cell("left_out"), right=True),
    field("agreed", "same host", right=True),
    Column("in use", _both_policies_cell("used", _used_percent), right=True),
    Column("distance from fair", _both_policies_cell("fair_distance", percent_text), right=True),
    Column("took", _duration_text, right=True),
    field("error"),
)


def _placed_text(row: Row) -> str | None:
    """Return the number of a tenant's VMs that each policy placed, if the round recorded it."""
    return f"{row['placed_first']} / {row['placed_second']}" if "placed_first" in row else None


def _share_cell(name: str) -> Callable[[Row], str]:
    return lambda row: number_text(row[name])


TENANTS = (
    field("tenant"),
    field("asked", "requested", right=True),
    Column("placed", _placed_text, right=True),
    field("agreed", "same host", right=True),
    Column("share before", _share_cell("before"), right=True),
    Column("after", _share_cell("first"), right=True),
    Column("by the second", _share_cell("second"), right=True),
    Column("difference", lambda row: f"{row['second'] - row['first']:+.3f}", right=True),
)


SinceOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Slots since TIME: 12h (ago), or a time such as 2026-11-10T08:00 (local time)",
    ),
]
UntilOption = Annotated[str | None, typer.Option(metavar="TIME", help="Slots before TIME")]


@list_command
def shadow(
    session: Session,
    last: Annotated[
        int | None,
        typer.Option(
            "--last", "-n", help="Number of newest rounds (default: 100; all with --since)", min=1
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Show all rounds")] = False,
    since: SinceOption = None,
    until: UntilOption = None,
) -> None:
    """Compare rounds with a second policy, FUGA_SHADOW_POLICY (operators).

    Newest last. Each cell shows the deciding policy, then the second one.
    `fuga rounds show N` shows the tenants of one round.
    """
    now = datetime.now(UTC)
    moments = {
        name: parse_moment(day, f"--{name}", now).isoformat()
        for name, day in (("since", since), ("until", until))
        if day is not None
    }
    limit = last if last or moments or everything else _LAST
    found = session.api.items("shadow-rounds", max_items=None if everything else limit, **moments)
    rows = list(found)[::-1]
    session.show(rows, COLUMNS, empty="no rounds. Set FUGA_SHADOW_POLICY to a second policy.")
    if rows and not session.json:
        session.print_message(agreement_summary(rows))


def agreement_summary(rows: Sequence[Row]) -> str:
    """Return a line that says how far two policies agreed in these rounds."""
    both = [row for row in rows if row["first"] is not None and row["decided"] is not None]
    failed, skipped = len(rows) - len(both), sum(row["skipped"] for row in rows)
    words = [f"{len(both)} rounds"]
    if both:
        placed = [sum(row[which]["placed"] for row in both) for which in ("first", "decided")]
        agreed = sum(row["agreed"] for row in both)
        part = agreed / max(*placed, 1)
        far = [
            _mean_of_known([row[which]["fair_distance"] for row in both])
            for which in ("first", "decided")
        ]
        words += [
            f"{placed[0]} VMs placed, {placed[1]} by the second policy",
            f"{agreed} ({part:.0%}) on the same host",
            f"distance from fair {percent_text(far[0])}, {percent_text(far[1])} by the second",
            f"which took {statistics.median(row['seconds'] for row in both):.3f} s (median)",
        ]
    words += [f"{failed} failed"] * bool(failed) + [f"{skipped} skipped"] * bool(skipped)
    return "; ".join(words)


def _mean_of_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def print_comparison(found: Row) -> None:
    """Print the second policy's decision of a round next to the real one."""
    echo()
    echo(f"second policy {found['policy']}, without effect (first / second):")
    if found["error"] is not None:
        echo(f"not decided: {found['error']}")
        return
    lines = comparison_rows(found)
    if found["first"]["zones"] or found["decided"]["zones"]:
        lines.append(("in zones", _both_policies_cell("zones", _zone_policies_text)(found)))
    for label, value in lines:
        echo(f"{label:18}{value}")
    echo("")
    print_table(TENANTS, found["shares"], empty="neither policy placed a VM")


def comparison_rows(found: Row) -> list[tuple[str, str | None]]:
    """Return lines, each a label and a text, that compare both policies' decisions of a round."""
    lines = [
        ("placed", _both_policies_cell("placed")(found)),
        ("not placed", _both_policies_cell("left_out")(found)),
        ("on the same host", str(found["agreed"])),
        ("in use", _both_policies_cell("used", _used_percent)(found)),
        ("distance from fair", _both_policies_cell("fair_distance", percent_text)(found)),
        ("took", _duration_text(found)),
    ]
    if found["cut"]:
        lines.append(("cut", "the round's budget cut its search"))
    return lines


def _zone_policies_text(zones: Mapping[str, str]) -> str:
    """Return the policies of zones as text."""
    policies = [f"{zone or 'elsewhere'}: {policy}" for zone, policy in zones.items()]
    return ", ".join(policies) or "the same everywhere"
