"""`fuga price`: what usage costs, from which day on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Annotated, Any, Final

import typer

from controller.session.session import Session, pass_session
from controller.terminal.columns import Column, field
from controller.terminal.errors import BadInputError
from controller.terminal.output import echo, print_json, print_table

app = typer.Typer(name="price", no_args_is_help=True, help="Prices of usage.")

NONE: Final = "none"  #: what a command line writes for no price
_PRICE: Final = re.compile(r"[0-9]{1,10}(\.[0-9]{1,15})?")

ResourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="RESOURCE",
        help="Resource, or vms for the VMs themselves; of borrowed VMs such as borrowed:vcpus",
    ),
]
TypeOption = Annotated[
    str | None, typer.Option("--type", metavar="TYPE", help="Only for VMs of this type")
]


@app.command("list")
@pass_session
def list_prices(session: Session) -> None:
    """List the prices of today and of days to come."""
    found = session.api.get("prices")
    _print_prices(session, found, _not_over(found["items"], datetime.now(UTC).date()))


@app.command("history")
@pass_session
def list_versions(session: Session) -> None:
    """List all versions of prices, with those that are over."""
    found = session.api.get("prices")
    _print_prices(session, found, found["items"])


@app.command("currency")
@pass_session
def set_currency(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Such as EUR")],
    digits: Annotated[
        int | None,
        typer.Option(min=0, max=6, help="Decimal places of costs (default: as ISO 4217, or 2)"),
    ] = None,
) -> None:
    """Set what prices and costs are in (operators)."""
    made = session.api.put("prices/currency", {"name": name, "minor_digits": digits})
    session.answer(
        made, f"costs are in {made['name']}, rounded to {made['minor_digits']} decimal places"
    )


@app.command("set")
@pass_session
def set_price(
    session: Session,
    *,
    resource: ResourceArgument,
    price: Annotated[
        str, typer.Argument(metavar="PRICE", help=f"Of one unit for an hour; {NONE} ends a price")
    ],
    per: Annotated[
        list[str] | None, typer.Argument(metavar="[per hour]", help="The unit of time: an hour")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="DATE", help="First day (UTC), such as 2026-12-01 (default: today)"
        ),
    ] = None,
    vm_type: TypeOption = None,
) -> None:
    """Set a price from a day on, until that of its next version (operators)."""
    if per and per != ["per", "hour"]:
        raise BadInputError(f"found {' '.join(per)!r}, wanted per hour: prices are of hours")
    if price != NONE and not _PRICE.fullmatch(price):
        raise BadInputError(
            f"PRICE: found {price!r}, wanted a decimal number such as 0.025, with at most 15"
            f" decimal places, or {NONE}"
        )
    body = {
        "resource": resource,
        "price": None if price == NONE else price,
        "since": None if since is None else _day(since),
        "vm_type": vm_type,
    }
    made = session.api.post("prices", body)
    session.answer(made, f"{_subject(made)} from {made['since']}: {_price_text(made)}")


@app.command("rm")
@pass_session
def remove_price(
    session: Session,
    resource: ResourceArgument,
    since: Annotated[
        str, typer.Option("--from", metavar="DATE", help="First day of the version to remove")
    ],
    vm_type: TypeOption = None,
) -> None:
    """Remove a version of a price; the version before it then holds on (operators)."""
    gone = session.api.delete(f"prices/{resource}/{_day(since)}", vm_type=vm_type)
    session.answer(gone, f"{_subject(gone)} from {gone['since']} is removed")


def _print_prices(
    session: Session, found: Mapping[str, Any], items: Sequence[Mapping[str, Any]]
) -> None:
    if session.json:
        print_json({**found, "items": items})
        return
    currency = found["currency"]
    heading = "price" if currency is None else f"{currency['name']} per hour"
    columns = (
        field("resource"),
        Column("type", lambda row: row["vm_type"] or "-"),
        field("since", "from"),
        Column(heading, lambda row: row["price"] or NONE, right=True),
    )
    print_table(columns, items, empty="no prices.")
    if items:
        echo("days begin at midnight UTC")


def _not_over(items: Sequence[Mapping[str, Any]], today: date) -> Sequence[Mapping[str, Any]]:
    """Return the versions without those that another one has followed by today."""
    newest = {
        (each["resource"], each["vm_type"]): each["since"]
        for each in items  # by day, the latest last
        if each["since"] <= today.isoformat()
    }
    return [
        each
        for each in items
        if each["since"] >= newest.get((each["resource"], each["vm_type"]), "")
    ]


def _day(given: str) -> str:
    try:
        return date.fromisoformat(given).isoformat()
    except ValueError:
        raise BadInputError(
            f"--from: found {given!r}, wanted a day (UTC) such as 2026-12-01"
        ) from None


def _subject(price: Mapping[str, Any]) -> str:
    of_type = f" of type {price['vm_type']}" if price["vm_type"] else ""
    return f"price of {price['resource']}{of_type}"


def _price_text(price: Mapping[str, Any]) -> str:
    return "none" if price["price"] is None else f"{price['price']} per hour"
