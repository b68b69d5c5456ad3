"""`fuga move`: VMs go from host to host."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from controller.cli.moving.move_progress import (
    fraction_done,
    progress_text,
    route_text,
    wait_for_move,
)
from controller.client.errors import ApiProblemError
from controller.session.completion import complete_host, complete_vm
from controller.session.default_command import ImpliedCommand
from controller.session.name_lookup import find_target, is_part_of_id
from controller.session.session import Session, list_command, pass_session
from controller.terminal.columns import Column, field
from controller.terminal.errors import BadInputError, CliError
from controller.terminal.output import echo, print_json, short_id
from controller.terminal.times import clock, time_since

if TYPE_CHECKING:
    from controller.client.http import Client, Json

_SHORTEST_PART: Final = 4
_SEARCHED: Final = 500
_NOT_FOUND: Final = 404


class _MoveGroup(ImpliedCommand):
    """A command group whose first word is one of its commands or names a VM."""

    implied = "vm"


app = typer.Typer(
    name="move",
    cls=_MoveGroup,
    no_args_is_help=True,
    help="Move VMs between hosts: `fuga move VM`, or `fuga move vm VM`.",
)

VmArgument = Annotated[
    str,
    typer.Argument(metavar="VM", help="VM (name, id or end of the id)", autocompletion=complete_vm),
]
MoveArgument = Annotated[
    str, typer.Argument(metavar="MOVE", help="Id of a move or its end, or the VM (its last move)")
]
#: A worker gives a move up long before.
_TIMEOUT_S: Final = 86_400.0


def _state_text(move: Mapping[str, Any]) -> str:
    done = fraction_done(move) if move["state"] == "moving" else None
    return str(move["state"]) if done is None else f"moving {done:.0%}"


def _progress_text(move: Mapping[str, Any]) -> str:
    return progress_text(move) if move["ended_at"] is None else "-"


def _downtime_text(move: Mapping[str, Any]) -> str:
    still = move["downtime_ms"]
    return "-" if still is None else f"{still / 1000:g} s"


COLUMNS = (
    Column("id", lambda row: short_id(row["id"])),
    field("vm_name", "vm", prose=True, spare=-2),
    field("tenant", spare=2),
    field("kind", spare=1),
    Column("from → to", route_text, prose=True, spare=-1),
    Column("state", _state_text, spare=-2),
    Column("progress", _progress_text, prose=True, spare=-1),
    Column("guest paused", _downtime_text, right=True, spare=2),
    Column("age", lambda row: time_since(row["requested_at"]), right=True),
    field("reason", spare=3),
    field("requested_by", "requested by", spare=4),
    field("last_error", "last error", spare=3),
)


@app.command(_MoveGroup.implied)
@pass_session
def move_vm(
    session: Session,
    *,
    vm: VmArgument,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="HOST",
            help="Host to move it to (default: the one that suits it best)",
            autocompletion=complete_host,
        ),
    ] = None,
    cold: Annotated[
        bool, typer.Option("--cold", help="Only if the VM is off; never move a running guest")
    ] = False,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Reason; the tenant sees it")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the move is over")] = False,
    timeout: Annotated[
        float, typer.Option(metavar="S", help="Maximum seconds to wait", min=1)
    ] = _TIMEOUT_S,
) -> None:
    """Move a VM to another host, while its guest runs. The word vm may be left out."""
    body: dict[str, Any] = {"vm": _find_vm(session.api, vm)["id"]}
    given = {"host": to, "only_cold": cold or None, "reason": reason}
    body |= {name: value for name, value in given.items() if value is not None}
    move = session.api.post("moves", body)
    if not wait:
        session.answer(
            move,
            f"VM {move['vm_name']} moves from {move['from_host']} to {move['to_host']}: "
            f"`fuga move show {short_id(move['id'])}` shows how far it is",
        )
        return
    ended = wait_for_move(session.api, move, timeout_s=timeout, quiet=session.json)
    if ended["state"] != "moved":
        if session.json:
            print_json(ended)
        raise CliError(_failure_sentence(ended))
    session.answer(ended, _success_sentence(ended))


@app.command("list")
@list_command
def list_moves(
    session: Session,
    *,
    tenant: Annotated[str | None, typer.Option(help="Show only moves of this tenant")] = None,
    vm: Annotated[
        str | None,
        typer.Option(
            metavar="VM",
            help="Show only moves of this VM (name, id or end of the id)",
            autocompletion=complete_vm,
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(help="Show only moves from or to this host", autocompletion=complete_host),
    ] = None,
    state: Annotated[
        str | None, typer.Option(help="Show only pending, moving, moved, failed or cancelled moves")
    ] = None,
    only_open: Annotated[
        bool, typer.Option("--open", help="Show only moves that are not over")
    ] = False,
    last: Annotated[int, typer.Option("--last", "-n", help="Number of newest moves", min=1)] = 100,
) -> None:
    """List moves, newest last."""
    vm_id = None if vm is None else _find_vm(session.api, vm)["id"]
    found = session.api.items(
        "moves",
        max_items=last,
        tenant=tenant,
        vm=vm_id,
        host=host,
        state=state,
        open="true" if only_open else None,
    )
    empty = "no moves. `fuga move VM` moves one."
    if any((tenant, vm, host, state, only_open)):
        empty = "no such moves."
    session.show(list(found)[::-1], COLUMNS, empty=empty)


@app.command("show")
@pass_session
def show_move(session: Session, move: MoveArgument) -> None:
    """Show a move."""
    found = _find_move(session.api, move)
    if session.json:
        print_json(found)
        return
    for label, value in (
        ("move", found["id"]),
        ("vm", f"{found['vm_name']} of tenant {found['tenant']}"),
        ("way", f"{route_text(found)}, {found['kind']}"),
        ("state", _state_text(found)),
        ("progress", None if found["ended_at"] else progress_text(found)),
        ("reason", found["reason"]),
        ("requested", f"{clock(found['requested_at'])} by {found['requested_by']}"),
        ("began", found["began_at"] and clock(found["began_at"])),
        ("ended", found["ended_at"] and clock(found["ended_at"])),
        ("guest paused", None if found["downtime_ms"] is None else _downtime_text(found)),
        ("cancelled by", found["cancelled_by"]),
        ("last error", found["last_error"]),
    ):
        if value is not None:
            echo(f"{label:14}{value}")


@app.command("cancel")
@pass_session
def cancel_move(session: Session, move: MoveArgument) -> None:
    """Cancel a move. The VM stays where it is."""
    found = _find_move(session.api, move)
    cancelled = session.api.post(f"moves/{found['id']}/cancel", {})
    if cancelled["ended_at"] is None:
        message = f"the move of {cancelled['vm_name']} ends with the next step of its worker"
    else:
        message = (
            f"the move of {cancelled['vm_name']} is cancelled; it stays on {cancelled['from_host']}"
        )
    session.answer(cancelled, message)


def _success_sentence(move: Mapping[str, Any]) -> str:
    """Return a sentence about a move that is done, with the guest's downtime."""
    sentence = f"VM {move['vm_name']} moved from {move['from_host']} to {move['to_host']}"
    if move["downtime_ms"] is None:
        return sentence
    return f"{sentence}; its guest was paused for {_downtime_text(move)}"


def _failure_sentence(move: Mapping[str, Any]) -> str:
    """Return a sentence about a move that failed or was cancelled."""
    became = {"failed": "failed", "cancelled": "was cancelled"}[move["state"]]
    why = f": {move['last_error']}" if move["last_error"] else ""
    return (
        f"the move of {move['vm_name']} to {move['to_host']} {became}{why}\n"
        f"`fuga vms` shows where it is, `fuga explain {move['vm_name']}` its last move."
    )


def _find_vm(api: Client, typed: str) -> Json:
    """Find a VM by its name or id; a request is refused with the names of its VMs."""
    target = find_target(api, typed)
    if target.kind == "vm":
        return target.record
    names = [str(vm["name"]) for vm in api.items("vms", request=target.record["id"], max_items=5)]
    vms_of_host = f"; its VMs: {', '.join(names)}" if names else ""
    raise BadInputError(f"{typed!r} is a request, not a VM{vms_of_host}")


def _find_move(api: Client, typed: str) -> Json:
    """Find a move by its id, by the beginning or end of the id, or as the last one of a VM."""
    try:
        whole = uuid.UUID(typed)
    except ValueError:
        found = _find_move_by_part_of_id(api, typed)
        if found is not None:
            return found
    else:
        try:
            return api.get(f"moves/{whole}")
        except ApiProblemError as problem:
            if problem.http_status != _NOT_FOUND:
                raise
    vm = _find_vm(api, typed)
    last = next(api.items("moves", vm=vm["id"], max_items=1), None)
    if last is None:
        raise BadInputError(f"VM {vm['name']} never moved")
    return last


def _find_move_by_part_of_id(api: Client, typed: str) -> Json | None:
    """Find one of the newest moves by a part of its id; None if none has it."""
    if len(typed) < _SHORTEST_PART or not set(typed.lower()) <= set("0123456789abcdef-"):
        return None
    newest = api.items("moves", max_items=_SEARCHED)
    found = [each for each in newest if is_part_of_id(typed, each["id"])]
    if len(found) > 1:
        listed = "\n".join(
            f"  {each['vm_name']}, {route_text(each)}: {each['id']}" for each in found
        )
        raise BadInputError(f"{typed!r} is ambiguous; give the id of one:\n{listed}")
    return found[0] if found else None
