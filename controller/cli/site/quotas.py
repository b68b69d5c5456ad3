"""`fuga quota`: how much a tenant or group may have at most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from controller.session.session import Session, pass_session
from controller.terminal.columns import Column, field
from controller.terminal.errors import BadInputError
from controller.terminal.output import echo, print_table
from controller.terminal.pairs import unique_pairs

app = typer.Typer(name="quota", no_args_is_help=True, help="Limits of tenants and groups.")

OwnTenantArgument = Annotated[
    str | None, typer.Argument(metavar="[TENANT]", help="Tenant or group (default: your own)")
]
NONE = "none"  #: what a command line writes for no limit


@app.command("show")
@pass_session
def show_quota(session: Session, tenant: OwnTenantArgument = None) -> None:
    """Show limits and usage, including those of the groups above."""
    name = tenant or tenant_of_token(session)
    _print_quota(session, session.api.get(f"tenants/{name}/quota"))


@app.command("set")
@pass_session
def set_quota(
    session: Session,
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="Tenant or group")],
    limits: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RESOURCE=LIMIT...", help=f"Limits, such as vcpus=40 vms=10; {NONE} removes one"
        ),
    ] = None,
    over: Annotated[
        str | None,
        typer.Option(
            metavar="refuse|wait|inherit",
            help="What happens to requests above a limit; inherit: as in the parent group",
        ),
    ] = None,
) -> None:
    """Set limits. A limit below current usage stops new VMs but ends none."""
    body = {"limits": parse_limits(limits or []), "over_quota": over}
    if not body["limits"] and over is None:
        raise BadInputError("nothing to set: give a limit such as vcpus=40, or --over")
    _print_quota(session, session.api.patch(f"tenants/{tenant}/quota", body))


def parse_limits(given: list[str]) -> dict[str, int | None]:
    """Parse the limits of a quota, ``resource=limit`` pairs; None removes a limit."""
    return unique_pairs("RESOURCE=LIMIT", map(_parse_limit, given))


def _parse_limit(word: str) -> tuple[str, int | None]:
    resource, equals, limit = word.partition("=")
    if not (resource and equals and (limit == NONE or (limit.isascii() and limit.isdigit()))):
        raise BadInputError(
            f"found {word!r}, wanted RESOURCE=LIMIT such as vcpus=40, or vcpus={NONE}"
        )
    return resource, None if limit == NONE else int(limit)


def _print_quota(session: Session, quota: Mapping[str, Any]) -> None:
    columns: tuple[Column, ...] = (
        field("tenant", "whose"),
        field("resource"),
        Column("requested/limit", lambda row: f"{row['requested']}/{row['limit']}", right=True),
        Column("held/limit", lambda row: f"{row['held']}/{row['limit']}", right=True),
    )
    if any(row.get("by_default") for row in quota["limits"]):
        columns += (Column("from", lambda row: "default" if row["by_default"] else "operator"),)
    if session.json:
        session.answer(quota, "")
        return
    print_table(columns, quota["limits"], empty=f"{quota['tenant']} has no limits")
    if quota["over_quota"] is not None:
        what = "are refused" if quota["over_quota"] == "refuse" else "wait"
        echo(f"requests above a quota {what}")


def tenant_of_token(session: Session) -> str:
    """Return the tenant of the session's token."""
    found = session.api.get("shares")["items"]
    if len(found) != 1:
        raise BadInputError("give a tenant or group (see `fuga tenant list`)")
    return str(found[0]["name"])
