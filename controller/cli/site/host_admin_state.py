"""`fuga host drain`, `maintenance`, `activate`, `fence` and `remove`: whether a host takes VMs."""

from __future__ import annotations

from typing import Annotated

import typer

from controller.cli.site.host_changes import NameArgument, print_required_action
from controller.session.session import Session, pass_session
from controller.terminal.errors import BadInputError

MoveOption = Annotated[
    bool, typer.Option("--move", help="Move its VMs to other hosts while they run")
]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until they have moved")]


@pass_session
def drain(
    session: Session, *, name: NameArgument, move: MoveOption = False, wait: WaitOption = False
) -> None:
    """Stop placing VMs on a host. Its VMs keep running, there or, with --move, elsewhere."""
    _take_out_of_service(session, name, "draining", "takes no new VMs", move=move, wait=wait)


@pass_session
def maintenance(
    session: Session, *, name: NameArgument, move: MoveOption = False, wait: WaitOption = False
) -> None:
    """Stop placing VMs on a host, for maintenance."""
    message = "is in maintenance and takes no new VMs"
    _take_out_of_service(session, name, "maintenance", message, move=move, wait=wait)


@pass_session
def activate(session: Session, name: NameArgument) -> None:
    """Place VMs on a host again."""
    _set_admin_state(session, name, "active", "takes VMs again")


@pass_session
def fence(
    session: Session,
    *,
    name: NameArgument,
    by_hand: Annotated[
        bool,
        typer.Option("--by-hand", help="Confirm that you switched the host off and keep it off"),
    ] = False,
) -> None:
    """Prove that a host which is down is off, so that its VMs are placed elsewhere.

    On a shared pool they keep their disks. On a pool of its own these are lost: VMs start from
    their images.
    """
    answer = session.api.post(f"hosts/{name}/fence", {"by_hand": by_hand})
    done = "its VMs wait for the next round" if by_hand else "a worker will fence it"
    session.answer(answer, f"host {name}: {done}")


@pass_session
def remove(
    session: Session,
    *,
    name: NameArgument,
    volumes_lost: Annotated[
        bool,
        typer.Option(
            "--volumes-lost", help="Its pool is lost: remove the volumes of tenants there, too"
        ),
    ] = False,
) -> None:
    """Retire a host that holds no VMs. Its history is kept."""
    query = {"volumes_lost": "true"} if volumes_lost else {}
    answer = session.api.delete(f"hosts/{name}", **query)
    session.answer(answer, f"host {name} is retired")


def _take_out_of_service(
    session: Session, name: str, admin: str, message: str, *, move: bool, wait: bool
) -> None:
    """Set the state of a host; with ``move``, plan the evacuation of its VMs."""
    if wait and not move:
        raise BadInputError("--wait needs --move: without it nothing is waited for")
    if not move:
        _set_admin_state(session, name, admin, message)
        return
    from controller.cli.moving.plans import TIMEOUT_S, propose_plan  # noqa: PLC0415
    from controller.session.plan_progress import wait_until_empty  # noqa: PLC0415

    session.api.hosts.change(name, {"admin": admin})
    session.print_message(f"host {name} {message}")
    body = {"kind": "evacuate", "hosts": [name]}
    propose_plan(session, body, True, wait=wait, timeout_s=TIMEOUT_S)
    if wait:
        wait_until_empty(session.api, name)


def _set_admin_state(session: Session, name: str, admin: str, message: str) -> None:
    answer = session.api.hosts.change(name, {"admin": admin})
    if admin == "active":
        session.answer(answer, f"host {name} {message}")
    else:
        print_required_action(session, answer, message)
