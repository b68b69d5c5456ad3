"""`fuga capacity`: how many more VMs fit now, where, and capacity over time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from controller.cli.vms.capacity_trend import show_trend
from controller.session.session import Session, pass_session
from controller.terminal.columns import Column, field
from controller.terminal.errors import BadInputError
from controller.terminal.output import amounts_text, echo, print_json, print_table


@pass_session
def capacity(
    session: Session,
    *,
    vm_type: Annotated[
        str | None, typer.Argument(metavar="TYPE", help="VM type (see `fuga type list`)")
    ] = None,
    survive: Annotated[
        str | None,
        typer.Option(
            metavar="host|zone|label:KEY",
            help="Instead: would the VMs of any one of these find room on other hosts? (operators)",
        ),
    ] = None,
    trend: Annotated[
        bool,
        typer.Option(
            "--trend",
            help="Instead: what was committed in the last days, and its growth (operators)",
        ),
    ] = False,
    days: Annotated[
        int,
        typer.Option(min=1, max=731, help="With --trend: the number of days; by the hour up to 2"),
    ] = 30,
    host_class: Annotated[
        str | None,
        typer.Option(
            "--class",
            metavar="LABELS",
            help="With --trend: only hosts with exactly these labels, joined by commas",
        ),
    ] = None,
    resource: Annotated[
        str | None, typer.Option(help="With --trend: a table of this resource")
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Tenant whose VM groups apply")] = None,
    requires: Annotated[
        list[str] | None,
        typer.Option("--require", metavar="LABEL", help="Only hosts with this label; repeatable"),
    ] = None,
    forbid: Annotated[
        list[str] | None, typer.Option(metavar="LABEL", help="No hosts with this label; repeatable")
    ] = None,
    host: Annotated[
        list[str] | None, typer.Option(metavar="HOST", help="Only this host; repeatable")
    ] = None,
    zone: Annotated[str | None, typer.Option(help="Only hosts in this zone")] = None,
    anti_affinity: Annotated[
        str | None, typer.Option(metavar="GROUP", help="At most one VM of this group per host")
    ] = None,
    affinity: Annotated[
        str | None, typer.Option(metavar="GROUP", help="All VMs of this group on one host")
    ] = None,
    spread: Annotated[
        str | None, typer.Option(metavar="zone", help="Spread evenly over zones")
    ] = None,
) -> None:
    """Show how many more VMs of a type fit now, where, and which resource runs out first."""
    if [vm_type is not None, survive is not None, trend].count(True) != 1:
        raise BadInputError(
            "name a VM type, what may fail (`fuga capacity --survive host`), or --trend"
        )
    if trend:
        now = datetime.now(UTC)
        show_trend(session, days=days, host_class=host_class, resource=resource, now=now)
        return
    if survive is not None:
        print_survival(session, session.api.survival(survive))
        return
    found = session.api.get(
        "capacity",
        vm_type=vm_type,
        tenant=tenant,
        requires=requires,
        forbids=forbid,
        hosts=host,
        zone=zone,
        anti_affinity=anti_affinity,
        affinity=affinity,
        spread=spread,
    )
    if session.json:
        print_json(found)
        return
    what = f"more {found['vm_type']} ({amounts_text(found['demand'])})"
    if not found.get("at_least"):
        echo(
            f"{found['fits']} {what} fit now, "
            f"{found['open']} of {found['hosts']} hosts are open to them"
        )
    elif found["fits"]:
        echo(f"at least {found['fits']} {what} fit now")
    else:
        echo(f"no {what} fits now")
    _print_after_queue(found)
    if found["runs_out_first"]:
        echo(f"{found['runs_out_first']} runs out first")
    if found["classes"]:
        echo("")
        columns = [
            Column("open", lambda row: f"{row['open']} of {row['hosts']} hosts", right=True),
            field("labels"),
            Column("each has", lambda row: amounts_text(row["capacity"])),
            field("fits", right=True),
            field("runs_out_first", "runs out first"),
        ]
        print_table(columns, found["classes"], empty="")


def _print_after_queue(found: Mapping[str, Any]) -> None:
    """Print how many VMs of the type fit once the queue ahead of them is served."""
    if "in_turn" not in found:  # an older API
        return
    in_turn = found["in_turn"]
    if in_turn is None:
        echo("after those that wait: not computed now; try again")
    elif found["fits"]:
        prefix = "at least " if found.get("at_least") and in_turn else ""
        after = "once those that wait and are owed before are served"
        echo(f"{prefix}{in_turn or 'none'} of them {after}")


def print_survival(session: Session, found: Mapping[str, Any]) -> None:
    """Print whether the cluster survives the failure of any one domain, and what it lacks."""
    if session.json:
        print_json(found)
        return
    what = f"{found['domains']} failure domains ({found['domain']})"
    if found["hold"] == found["domains"]:
        echo(f"each of {what} could fail: its VMs would find room on other hosts")
    else:
        echo(f"{found['hold']} of {what} could fail without their VMs lacking room")
    if found["not_known"]:
        echo(f"of {found['not_known']} it is not known: the search would have taken too long")
    if found["immovable"]:
        echo(f"{found['immovable']} VMs cannot be elsewhere and are not counted")
    rows = [
        {"domain": domain["name"], **vm, "number": domain["vms_lacking"]}
        for domain in found["lacking"]
        if domain["known"]
        for vm in domain["vms"][:1]
    ]
    if rows:
        echo("")
        columns = (
            field("domain"),
            field("number", "VMs without room", right=True),
            Column("for example", lambda row: row["vm"][:8]),
            Column("why", lambda row: row["why"].replace("_", " ")),
            field("nearest_host", "nearest host"),
            Column("lacks", lambda row: amounts_text(row["missing"]) if row["missing"] else "-"),
        )
        print_table(columns, rows, empty="")
