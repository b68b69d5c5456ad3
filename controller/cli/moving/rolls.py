"""`fuga roll`: run an operator's command on hosts in turn, after their VMs have moved away."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from controller.cli.moving.roll_runner import run_roll
from controller.session.completion import complete_host
from controller.session.default_command import ImpliedCommand
from controller.session.name_lookup import is_part_of_id
from controller.session.session import Session, list_command, pass_session
from controller.terminal.columns import Column, field
from controller.terminal.errors import BadInputError, CliError
from controller.terminal.output import echo, print_json, print_table, short_id
from controller.terminal.times import clock, time_since

if TYPE_CHECKING:
    from controller.client.http import Json

_SEARCHED: Final = 500


class _RollGroup(ImpliedCommand):
    """A command group that begins a roll if the first word is none of its commands."""

    implied = "over"


app = typer.Typer(
    name="roll",
    cls=_RollGroup,
    no_args_is_help=True,
    help="Run a command on hosts in turn, once their VMs have moved away: `fuga roll --hosts ...`.",
)

RollArgument = Annotated[
    str, typer.Argument(metavar="ROLL", help="Id of a roll, its beginning or its end")
]


def _hosts_done_text(roll: Mapping[str, Any]) -> str:
    return f"{roll['done'] + roll['skipped']}/{roll['hosts']}"


def _state_text(roll: Mapping[str, Any]) -> str:
    gone = roll["state"] == "running" and roll["driver_lease_until"] is None
    return "running, driver lost" if gone else str(roll["state"])


COLUMNS: Final = (
    Column("roll", lambda row: short_id(row["id"])),
    Column("state", _state_text),
    Column("hosts", _hosts_done_text, right=True),
    field("at_once", "at once", right=True, spare=1),
    field("command", spare=1),
    Column("age", lambda row: time_since(row["began_at"]), right=True),
    field("began_by", "began by", spare=3),
    field("driver", spare=4),
    field("last_error", "last error", spare=2),
)
HOST_COLUMNS: Final = (
    Column("turn", lambda row: row["turn"] + 1, right=True),
    field("host"),
    Column("phase", lambda row: str(row["phase"]).replace("_", " ")),
    Column("since", lambda row: time_since(row["since"]), right=True),
    Column("before", lambda row: row["admin_before"], spare=2),
    field("error", spare=1),
)


@app.command(_RollGroup.implied)
@pass_session
def run_over_hosts(
    session: Session,
    *,
    run: Annotated[
        str,
        typer.Option(
            "--run", metavar="COMMAND", help="Command to run here; the host's name is added to it"
        ),
    ],
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--hosts",
            metavar="SELECTOR",
            help="Host, label=LABEL, or all; repeatable",
            autocompletion=complete_host,
        ),
    ] = None,
    skipped: Annotated[
        list[str] | None,
        typer.Option(
            "--except",
            metavar="HOST",
            help="Host to skip; repeatable",
            autocompletion=complete_host,
        ),
    ] = None,
    at_once: Annotated[
        int | None,
        typer.Option(
            "--at-once", metavar="N", help="Hosts that go at once", min=1, max=500, show_default="1"
        ),
    ] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="ROLL", help="Go on with a roll that stopped")
    ] = None,
    empty_within: Annotated[
        int | None,
        typer.Option(
            metavar="S",
            help="Maximum time until the VMs are elsewhere",
            min=1,
            show_default="14400",
        ),
    ] = None,
    run_within: Annotated[
        int | None,
        typer.Option(
            metavar="S", help="Maximum time of the command for a host", min=1, show_default="3600"
        ),
    ] = None,
    up_within: Annotated[
        int | None,
        typer.Option(
            metavar="S", help="Maximum time until the host is up again", min=1, show_default="900"
        ),
    ] = None,
) -> None:
    """Run a command for hosts in turn: move VMs away, run it, wait for the host, go on.

    The word over may be left out. A roll that stopped goes on with --resume.
    """
    argv = _parse_command(run)
    if bool(hosts) == (resume is not None):
        raise BadInputError("give either --hosts, or --resume with the id of a roll")
    limits = {
        "at_once": at_once,
        "empty_within_s": empty_within,
        "run_within_s": run_within,
        "up_within_s": up_within,
    }
    given = {name: value for name, value in limits.items() if value is not None}
    if resume is not None and given:
        option = f"--{next(iter(given)).removesuffix('_s').replace('_', '-')}"
        raise BadInputError(f"a roll that is resumed keeps what it began with: leave {option} out")
    body: dict[str, Any] = {
        "command": run,
        "driver": f"fuga on {socket.gethostname()}, process {os.getpid()}",
        "skipped": skipped or [],
    }
    if resume is not None:
        claim = session.api.post(f"rolls/{find_roll(session, resume)['id']}/resume", body)
    else:
        claim = session.api.begin_roll({**body, "hosts": hosts, **given})
    _print_begun_roll(session, claim["roll"])
    roll = run_roll(session.api, claim, argv, quiet=session.json)
    if roll["state"] != "done":
        if session.json:
            print_json(roll)
        raise CliError(_status_text(session, roll, run))
    hosts_done = "1 host" if roll["done"] == 1 else f"{roll['done']} hosts"
    session.answer(roll, f"roll {roll['id']} is done: {hosts_done}")


@app.command("list")
@list_command
def list_rolls(
    session: Session,
    state: Annotated[
        str | None, typer.Option(help="Show only running, stopped, done or cancelled rolls")
    ] = None,
    last: Annotated[int, typer.Option("--last", "-n", help="Number of newest rolls", min=1)] = 100,
) -> None:
    """List rolls, newest last."""
    found = list(session.api.items("rolls", max_items=last, state=state))[::-1]
    session.show(found, COLUMNS, empty="no rolls. `fuga roll --hosts ... --run ...` begins one.")


@app.command("show")
@pass_session
def show_roll(session: Session, roll: RollArgument) -> None:
    """Show a roll and where each of its hosts is."""
    found = find_roll(session, roll)
    hosts = list(session.api.items(f"rolls/{found['id']}/hosts"))
    if session.json:
        print_json({**found, "host_list": hosts})
        return
    turns = -(-found["hosts"] // found["at_once"])
    for label, value in (
        ("roll", found["id"]),
        ("state", _state_text(found)),
        ("command", found["command"]),
        ("hosts", f"{_hosts_done_text(found)} done, {found['at_once']} at once"),
        ("planned", f"{found['checked']} of {turns} turns before it began"),
        ("began", f"{clock(found['began_at'])} by {found['began_by']}"),
        ("driver", found["driver"]),
        ("ended", found["ended_at"] and clock(found["ended_at"])),
        ("cancelled by", found["cancelled_by"]),
        ("last error", found["last_error"]),
    ):
        if value is not None:
            echo(f"{label:14}{value}")
    echo("")
    print_table(HOST_COLUMNS, hosts, empty="no hosts")


@app.command("cancel")
@pass_session
def cancel_roll(session: Session, roll: RollArgument) -> None:
    """End a roll for good. Hosts on which the command runs come back first."""
    cancelled = session.api.post(f"rolls/{find_roll(session, roll)['id']}/cancel", {})
    if cancelled["ended_at"] is None:
        session.answer(cancelled, f"roll {cancelled['id']} ends when its hosts at work are back")
    else:
        session.answer(
            cancelled,
            f"roll {cancelled['id']} is cancelled",
            *_maintenance_lines(session, cancelled),
        )


def find_roll(session: Session, typed: str) -> Json:
    """Find a roll by its id, or by the beginning or end of the id."""
    rolls = session.api.items("rolls", max_items=_SEARCHED)
    found = [each for each in rolls if is_part_of_id(typed, each["id"])]
    if len(found) != 1:
        several = "several rolls" if found else "no roll"
        raise BadInputError(f"{several} with an id like {typed!r}; see `fuga roll list`")
    return found[0]


def _parse_command(command: str) -> Sequence[str]:
    """Split the command of ``--run`` into words; its program must exist on this machine."""
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise BadInputError(f"--run: {command!r} is no command: {error}") from None
    if not argv or shutil.which(argv[0]) is None:
        raise BadInputError(
            f"--run: {command!r} cannot be run: no program {argv[0] if argv else ''!r} here, or it"
            " is not executable. It is run as it is, without a shell"
        )
    return argv


def _print_begun_roll(session: Session, roll: Mapping[str, Any]) -> None:
    """Print how many hosts a begun roll has, and for how many turns room was looked for."""
    turns = -(-roll["hosts"] // roll["at_once"])
    hosts = f"{roll['hosts']} host{'s' * (roll['hosts'] != 1)}"
    session.print_message(f"roll {roll['id']}: {hosts}, {roll['at_once']} at once")
    if roll["checked"] < turns:
        session.print_message(
            f"room was looked for {roll['checked']} of {turns} turns; there are many VMs"
        )


def _status_text(session: Session, roll: Mapping[str, Any], run: str) -> str:
    """Return lines about the state of a roll and its hosts, with the command to continue it."""
    why = f": {roll['last_error']}" if roll["last_error"] else ""
    lines = [
        f"roll {roll['id']} is {roll['state']}{why}",
        f"{_hosts_done_text(roll)} hosts are done or skipped",
        *_maintenance_lines(session, roll),
    ]
    if roll["state"] == "stopped":
        lines += [
            "To go on, without the host that failed with --except HOST:",
            f"  fuga roll --resume {roll['id']} --run {shlex.quote(run)}",
            f"To end it for good: fuga roll cancel {roll['id']}",
        ]
    return "\n".join(lines)


def _maintenance_lines(session: Session, roll: Mapping[str, Any]) -> list[str]:
    """Return a line that names the hosts that a roll left in maintenance, if there are any."""
    over = ("waiting", "done")
    hosts = session.api.items(f"rolls/{roll['id']}/hosts")
    left = [each["host"] for each in hosts if each["admin_before"] and each["phase"] not in over]
    return [f"in maintenance: {', '.join(left)}"] if left else []
