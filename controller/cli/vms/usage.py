"""`fuga usage`: what VMs held over time, what it costs, and closed months."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from controller.session.default_command import ImpliedCommand
from controller.session.json_shapes import ProofError
from controller.session.session import Session, pass_session
from controller.terminal.columns import Column, field
from controller.terminal.errors import BadInputError, CliError
from controller.terminal.output import echo, print_json, print_table
from controller.terminal.times import clock, parse_moment
from plain_text import plain

if TYPE_CHECKING:
    from typer._click import Context

    from controller.session.closed_usage import VerifiedUsage

_MONTH: Final = re.compile(r"(20[0-9]{2})-(0[1-9]|1[0-2])")
_COST: Final = re.compile(r"-?[0-9]{1,13}(\.[0-9]{1,6})?")
_HOUR_S: Final = 3600


class _UsageGroup(ImpliedCommand):
    """A command group whose first word is one of its commands or an option of `show`."""

    implied = "show"

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Show the usage of this month without any word."""
        return super().parse_args(ctx, args or [self.implied])


app = typer.Typer(
    name="usage", cls=_UsageGroup, help="What VMs held over time and cost; closed months."
)

MonthArgument = Annotated[str, typer.Argument(metavar="MONTH", help="Month (UTC), such as 2026-10")]


@app.command(_UsageGroup.implied)
@pass_session
def show_usage(
    session: Session,
    *,
    tenant: Annotated[str | None, typer.Option(help="Only the usage of this tenant")] = None,
    group: Annotated[
        str | None, typer.Option(help="Only the usage of the tenants below this group (operators)")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="tenant|group|type|label:KEY", help="Split the sums by one of these"),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Begin of the period: a time, or a span before now such as 7d"
            " (default: begin of this month, UTC)",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="TIME", help="End of the period: a time, or a span (default: now)"
        ),
    ] = None,
    month: Annotated[
        str | None, typer.Option(metavar="YYYY-MM", help="Instead: the period of a month (UTC)")
    ] = None,
) -> None:
    """Show the usage of a period and what it costs: amounts of resources times hours.

    A VM counts from the end of its build until it is removed, also while it is off. A VM that
    moves counts once. See `fuga price list` for prices.
    """
    start, end = _period(since, until, month, datetime.now(UTC))
    found = session.api.get(
        "usage",
        tenant=tenant,
        group=group,
        by=by,
        since=start.isoformat(),
        until=None if end is None else end.isoformat(),
    )
    if session.json:
        print_json(found)
        return
    echo(f"from {clock(found['since'])} until {clock(found['until'])}")
    priced = found["cost"] is not None
    columns = (
        *([Column(by, lambda row: row["name"] or "-")] if by else []),
        field("resource"),
        Column("unit hours", lambda row: _hours(row["charged"]), right=True),
        Column("held", lambda row: _hours(row["held"]), right=True, spare=1),
        *(
            [Column(found["currency"], lambda row: _money(row["cost"]), right=True)]
            if priced
            else []
        ),
    )
    print_table(columns, found["items"], empty="no usage.")
    if priced:
        echo(f"total: {_money(found['cost'])} {found['currency']}")


@app.command("close")
@pass_session
def close_month(session: Session, month: MonthArgument) -> None:
    """Close a month: its usage and costs stay as they are (operators)."""
    month_period(month, "MONTH")
    made = session.api.post("usage/months", {"month": month})
    session.answer(made, f"{month} is closed: entry {made['number']}, link {made['link']}")


@app.command("correct")
@pass_session
def correct_month(
    session: Session,
    *,
    month: MonthArgument,
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="Whose costs are corrected")],
    cost: Annotated[
        str, typer.Option(metavar="COST", help="Added to its costs; may be negative: --cost=-12.50")
    ],
    reason: Annotated[str, typer.Option(help="Why; the tenant sees it")],
) -> None:
    """Correct what a tenant had in a closed month, by an entry of its own (operators)."""
    month_period(month, "MONTH")
    if not _COST.fullmatch(cost):
        raise BadInputError(f"--cost: found {cost!r}, wanted a decimal number such as -12.50")
    body = {"month": month, "tenant": tenant, "cost": cost, "reason": reason}
    made = session.api.post("usage/corrections", body)
    session.answer(made, f"{month} is corrected by {cost} for {tenant}: entry {made['number']}")


@app.command("closed")
@pass_session
def list_closed(
    session: Session,
    *,
    tenant: Annotated[str | None, typer.Option(help="Only the costs of this tenant")] = None,
) -> None:
    """List closed months and corrections, newest first, with their costs."""
    columns = (
        field("number", right=True),
        Column("month", lambda row: row["month"][:7]),
        field("kind"),
        Column("cost", _entry_cost, right=True),
        Column("reason", _entry_reason, prose=True, spare=1),
        Column("signed", lambda row: row["signed"] is not None, spare=2),
        Column("link", lambda row: row["link"][:16], spare=3),
    )
    entries = session.api.items("usage/months", tenant=tenant)
    session.show(entries, columns, empty="no month is closed.")


@app.command("verify")
@pass_session
def verify_months(
    session: Session,
    *,
    tenant: Annotated[
        str | None, typer.Option(help="Check this tenant's leaves alone (default: all you may see)")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="FILE|HEX", help="The site's public key: it must have signed them"),
    ] = None,
) -> None:
    """Check that closed months are as they were closed, who signed them, and each cost."""
    from controller.session.closed_usage import verify_entries  # noqa: PLC0415 - not for `--help`
    from controller.session.signed_heads import read_public_key  # noqa: PLC0415

    try:
        pinned = None if key is None else read_public_key(key)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise BadInputError(f"--key {key}: {why}") from error
    entries = list(session.api.items("usage/months", tenant=tenant))
    keys = [each["public_key"] for each in session.api.get("site-keys")["keys"]]
    try:
        found = verify_entries(entries, keys=keys, pinned=pinned)
    except ProofError as error:
        raise CliError(f"NOT VERIFIED: {plain(str(error))}") from error
    session.answer(asdict(found), *_verified_lines(found))


def _verified_lines(found: VerifiedUsage) -> list[str]:
    if not found.entries:
        return ["no month is closed"]
    signed = "no entry is signed"
    if found.signed_to:
        signed = f"signed up to entry {found.signed_to} by key {found.signed_by}"
    return [
        f"verified: {found.months} months from {found.first_month} to {found.last_month},"
        f" {found.entries} entries, {found.lines} lines",
        signed,
        f"link {found.link}",
    ]


def _entry_cost(entry: Mapping[str, Any]) -> str:
    """Return the sum of an entry's costs that the caller sees."""
    costs = [
        Decimal(line["cost"])
        for leaf in entry["leaves"]
        for line in leaf["lines"]
        if line["cost"] is not None
    ]
    if not costs:
        return "-"
    return f"{sum(costs):,.{entry['minor_digits'] or 0}f} {entry['currency']}"


def _entry_reason(entry: Mapping[str, Any]) -> str | None:
    return next((leaf["reason"] for leaf in entry["leaves"] if leaf["reason"]), None)


def _period(
    since: str | None, until: str | None, month: str | None, now: datetime
) -> tuple[datetime, datetime | None]:
    """Return the begin and the end of the period; None for an end of now."""
    if month is not None:
        if since is not None or until is not None:
            raise BadInputError("--month names the whole period: omit --from and --to")
        return month_period(month, "--month")
    start = (
        parse_moment(since, "--from", now)
        if since is not None
        else now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    )
    return start, None if until is None else parse_moment(until, "--to", now)


def month_period(given: str, option: str) -> tuple[datetime, datetime]:
    """Return the begin of a month such as 2026-10 and that of the next, in UTC."""
    found = _MONTH.fullmatch(given)
    if found is None:
        raise BadInputError(f"{option}: found {given!r}, wanted a month such as 2026-10")
    year, month = int(found[1]), int(found[2])
    following = (year + 1, 1) if month == 12 else (year, month + 1)
    return datetime(year, month, 1, tzinfo=UTC), datetime(*following, 1, tzinfo=UTC)


def _hours(seconds: Any) -> str:
    """Return unit seconds as unit hours, with thousands separated."""
    return f"{Decimal(seconds) / _HOUR_S:,.3f}"


def _money(cost: str | None) -> str:
    """Return a cost with thousands separated; ``-`` for none."""
    return "-" if cost is None else f"{Decimal(cost):,f}"
