"""`fuga reserve`, `reservations`, `reservation`: room that a tenant will have from a time on."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from typing import Annotated, Any, Final

import typer

from controller.cli.operating.pause import halt_notice
from controller.session.completion import complete_vm_type
from controller.session.name_lookup import find_reservation
from controller.session.polling import poll_attempts, progress
from controller.session.session import Session, list_command, pass_session
from controller.terminal.columns import Column, field
from controller.terminal.errors import CliError, WaitExpiredError
from controller.terminal.output import short_id
from controller.terminal.times import clock, parse_start, parse_ttl, typed_zone

app = typer.Typer(name="reservation", no_args_is_help=True, help="Show and cancel reservations.")
ReservationArgument = Annotated[
    str, typer.Argument(metavar="RESERVATION", help="Reservation name, id or end of the id")
]
#: It is decided within seconds, or no control centre is there.
_DECIDED_S: Final = 120.0
_OPEN: Final = ("pending", "accepted", "in_force")

COLUMNS = (
    Column("id", lambda row: short_id(row["id"])),
    field("name"),
    field("tenant", spare=-1),
    field("vm_type", "type"),
    field("count", right=True),
    field("used", right=True),
    field("left", right=True),
    field("held", right=True, spare=2),
    field("missing", right=True, spare=1),
    field("state"),
    Column("from", lambda row: clock(row["starts_at"])),
    Column("until", lambda row: clock(row["ends_at"])),
)


@pass_session
def reserve(
    session: Session,
    *,
    vm_type: Annotated[
        str,
        typer.Argument(
            metavar="TYPE", help="VM type (see `fuga type list`)", autocompletion=complete_vm_type
        ),
    ],
    length: Annotated[
        str, typer.Option("--for", metavar="TIME", help="Length (30m, 2h, 7d; at most 30d)")
    ],
    count: Annotated[int, typer.Option("-n", "--count", help="Number of VMs")] = 1,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Beginning: now, 2h, or a time such as 2026-11-10T08:00 (local time)",
        ),
    ] = "now",
    name: Annotated[
        str | None, typer.Option(help="Reservation name (generated if omitted)")
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Tenant (required for operators)")] = None,
    requires: Annotated[
        list[str] | None,
        typer.Option("--require", metavar="LABEL", help="Only hosts with this label; repeatable"),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until it is accepted or refused")
    ] = True,
) -> None:
    """Reserve room for VMs from a time on. It is accepted if there will be room."""
    zone = typed_zone(start)
    body: dict[str, Any] = {
        "vm_type": vm_type,
        "count": count,
        "for_s": parse_ttl(length, "--for"),
        "requires": requires or [],
    }
    if start != "now":
        at = parse_start(start, "--from", datetime.now(UTC))
        body["starts_at"] = at.astimezone(zone).isoformat()  # an error repeats it
    body |= {key: value for key, value in (("name", name), ("tenant", tenant)) if value}
    made = session.api.post("reservations", body)
    if wait:
        made = _wait_until_decided(session, made)
    if made["state"] == "refused":
        raise CliError(f"reservation {made['name']} is refused: {made['decision']['message']}")
    _print_reservation(session, made, zone)


@list_command
def reservations(
    session: Session,
    tenant: Annotated[str | None, typer.Option(help="Show only items of this tenant")] = None,
    state: Annotated[str | None, typer.Option(help="Show only reservations in this state")] = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Include reservations that are over")
    ] = False,
) -> None:
    """List reservations: what is used and left of each, and what is short."""
    is_open = None if everything or state else "true"
    session.show(
        session.api.items("reservations", tenant=tenant, state=state, open=is_open),
        COLUMNS,
        empty="no reservations. Make one with `fuga reserve small -n 4 --from 2h --for 1d`.",
    )


@app.command("show")
@pass_session
def show_reservation(session: Session, reservation: ReservationArgument) -> None:
    """Show a reservation: what was decided, and what is left of it."""
    _print_reservation(session, find_reservation(session.api, reservation))


@app.command("cancel")
@pass_session
def cancel_reservation(session: Session, reservation: ReservationArgument) -> None:
    """Cancel a reservation. VMs that drew on it stay."""
    found = find_reservation(session.api, reservation)
    answer = session.api.delete(f"reservations/{found['id']}")
    session.answer(answer, f"cancelled reservation {answer['name']}")


def _print_reservation(
    session: Session, found: Mapping[str, Any], zone: tzinfo | None = None
) -> None:
    """Print a reservation and, if it is open, why no room is kept for it."""
    session.answer(found, *_status_lines(found, zone))
    if found["state"] in _OPEN and not session.json and (notice := halt_notice(session)):
        session.print_message(notice)


def _status_lines(found: Mapping[str, Any], zone: tzinfo | None) -> list[str]:
    """Return lines about a reservation: its VMs, its period, and how it was decided."""
    starts_at, ends_at = clock(found["starts_at"], zone), clock(found["ends_at"], zone)
    lines = [
        f"reservation {found['name']} ({short_id(found['id'])}): {found['count']} ×"
        f" {found['vm_type']} for tenant {found['tenant']}, {found['state'].replace('_', ' ')}",
        f"from {starts_at} until {ends_at}: {found['used']} used, {found['waiting']} waiting,"
        f" {found['left']} left",
    ]
    if found["decision"]:
        lines.append(found["decision"]["message"])
    if found["missing"]:
        lines.append(f"{found['missing']} missing: there is no room for these yet")
    return lines


def _wait_until_decided(session: Session, made: Mapping[str, Any]) -> dict[str, Any]:
    """Poll a reservation until the control centre has accepted or refused it."""
    seen = dict(made)
    with progress(quiet=session.json) as report:
        for look in poll_attempts(_DECIDED_S):
            if seen["state"] != "pending":
                return seen
            with look:
                report("the control centre decides the reservation")
                seen = session.api.get(f"reservations/{seen['id']}")
    why = halt_notice(session) or "`fuga status` says whether a control centre leads."
    raise WaitExpiredError(
        f"reservation {seen['name']} is not decided after {_DECIDED_S:g} s: {why} It"
        f" stays; `fuga reservation show {seen['name']}` shows what became of it"
    )
