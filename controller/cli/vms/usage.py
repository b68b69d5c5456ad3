"""`fuga usage`: what VMs held over time."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Final

import typer

from controller.session.session import Session, pass_session
from controller.terminal.columns import Column, field
from controller.terminal.errors import BadInputError
from controller.terminal.output import echo, print_json, print_table
from controller.terminal.times import clock, parse_moment

_MONTH: Final = re.compile(r"(20[0-9]{2})-(0[1-9]|1[0-2])")
_HOUR_S: Final = 3600


@pass_session
def usage(
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
