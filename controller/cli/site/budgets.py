"""`fuga budget`: how much a tenant or group may use in each month."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from controller.cli.site.quotas import OwnTenantArgument, tenant_of_token
from controller.session.session import Session, list_command, pass_session
from controller.terminal.columns import Column, field
from controller.terminal.errors import BadInputError
from controller.terminal.output import echo, print_json, print_table
from controller.terminal.pairs import unique_pairs

app = typer.Typer(
    name="budget", no_args_is_help=True, help="Budgets of tenants and groups for each month."
)

NONE: Final = "none"  #: what a command line writes for no budget
_AMOUNT: Final = re.compile(r"[0-9]{1,13}(\.[0-9]{1,6})?")

TenantArgument = Annotated[str, typer.Argument(metavar="TENANT", help="Tenant or group")]


@app.command("list")
@list_command
def list_budgets(session: Session) -> None:
    """List all budgets with their use (operators)."""
    found = list(session.api.items("budgets"))
    if session.json:
        print_json(found)
        return
    _print_limits(found, empty="no budgets.")


@app.command("show")
@pass_session
def show_budget(session: Session, tenant: OwnTenantArgument = None) -> None:
    """Show budgets and their use in this month, with those of the groups above."""
    name = tenant or tenant_of_token(session)
    _print_budget(session, session.api.get(f"tenants/{name}/budget"))


@app.command("set")
@pass_session
def set_budget(
    session: Session,
    tenant: TenantArgument,
    limits: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RESOURCE=AMOUNT...",
            help="Costs or unit hours of a month, such as cost=1000 vcpus=5000;"
            f" {NONE} removes one",
        ),
    ] = None,
    warn_at: Annotated[
        int | None,
        typer.Option(min=1, max=100, metavar="PERCENT", help="When it is near its end (first: 80)"),
    ] = None,
) -> None:
    """Set budgets (operators). When one ends, new VMs wait for the next month; none is ended."""
    body = {"limits": unique_pairs("RESOURCE=AMOUNT", map(_parse_limit, limits or []))}
    if not body["limits"] and warn_at is None:
        raise BadInputError("nothing to set: give a budget such as cost=1000, or --warn-at")
    _print_budget(
        session, session.api.patch(f"tenants/{tenant}/budget", {**body, "warn_at": warn_at})
    )


@app.command("clear")
@pass_session
def clear_budgets(session: Session, tenant: TenantArgument) -> None:
    """Remove all budgets of a tenant or group (operators)."""
    found = session.api.get(f"tenants/{tenant}/budget")["limits"]
    limits = {row["resource"]: None for row in found if row["tenant"] == tenant}
    _print_budget(session, session.api.patch(f"tenants/{tenant}/budget", {"limits": limits}))


def _parse_limit(word: str) -> tuple[str, str | None]:
    resource, equals, amount = word.partition("=")
    if not (resource and equals and (amount == NONE or _AMOUNT.fullmatch(amount))):
        raise BadInputError(
            f"found {word!r}, wanted RESOURCE=AMOUNT such as cost=1000, or cost={NONE}"
        )
    return resource, None if amount == NONE else amount


def _print_budget(session: Session, budget: Mapping[str, Any]) -> None:
    if session.json:
        session.answer(budget, "")
        return
    _print_limits(
        budget["limits"], currency=budget["currency"], empty=f"{budget['tenant']} has no budgets"
    )


def _print_limits(
    rows: Sequence[Mapping[str, Any]], *, currency: str | None = None, empty: str
) -> None:
    columns = (
        field("tenant", "whose"),
        Column("of", lambda row: _subject(row, currency)),
        field("amount", right=True),
        field("used", right=True),
        field("per_hour", "per hour", right=True),
        field("state"),
        Column("ends", lambda row: row["spent_at"] or "-"),
    )
    print_table(columns, rows, empty=empty)
    if rows:
        echo(f"month {rows[0]['month'][:7]} (UTC), measured at {rows[0]['measured_at']}")


def _subject(row: Mapping[str, Any], currency: str | None) -> str:
    if row["resource"] == "cost":
        return "cost" if currency is None else f"cost in {currency}"
    return f"{row['resource']} hours"
