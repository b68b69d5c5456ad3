"""`fuga plan`: moves in waves, decided together."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final

import typer

from controller.client.errors import ApiProblemError
from controller.session.completion import complete_host
from controller.session.name_lookup import find_request, is_part_of_id
from controller.session.plan_progress import wait_for_plan, wait_until_decided
from controller.session.session import Session, list_command, pass_session
from controller.terminal.columns import Column, field
from controller.terminal.errors import BadInputError, CliError
from controller.terminal.output import (
    echo,
    echo_lines,
    number_text,
    percent_text,
    print_json,
    print_table,
    short_id,
    terminal_width,
)
from controller.terminal.times import time_since

app = typer.Typer(
    name="plan", no_args_is_help=True, help="Plans of moves: propose, approve, cancel (operators)."
)

HostsArgument = Annotated[
    list[str],
    typer.Argument(metavar="HOST...", help="Hosts to empty", autocompletion=complete_host),
]
IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="Id of a plan, its beginning or its end")
]
ApproveOption = Annotated[
    bool, typer.Option("--approve", help="Carry the plan out as soon as it is decided")
]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until the plan is carried out")]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="S", help="Maximum time to wait", min=1)
]
#: Plans end long before; a wait without end would hide a control centre that is away.
TIMEOUT_S = 86_400.0
_SEARCHED: Final = 500
_MAX_FAILED_SHOWN: Final = 50  #: failed moves, each of which costs a call
_WHOLE: Final = 36  #: characters of an id
_NOT_FOUND: Final = 404

COLUMNS = (
    Column("plan", lambda row: short_id(row["id"])),
    field("kind"),
    field("state"),
    Column("moves", lambda row: f"{row['ended']}/{row['moves']}", right=True),
    field("failed", right=True),
    field("waves", right=True),
    Column("not moved", lambda row: len(row["not_moved"]), right=True),
    Column("GiB", lambda row: number_text(row["moved_gib"], 1), right=True),
    Column("age", lambda row: time_since(row["requested_at"]), right=True),
    Column("requested by", lambda row: row["requested_by"], spare=2),
    Column("last error", lambda row: row["last_error"], spare=1),
)
_MEASURES = (
    ("potential", "potential", partial(number_text, places=4)),
    ("fairness_distance", "distance from fair", partial(percent_text, places=2)),
    ("mean_skewness", "mean skewness", partial(number_text, places=4)),
    ("hosts_in_use", "hosts in use", str),
    ("moved_gib", "GiB moved", partial(number_text, places=1)),
)
#: What keeps VMs where others would like to be; obstacles without words of their own say theirs.
_IN_THE_WAY: Final[Mapping[str, str]] = {
    "label": "may not move by their label",
    "host_device": "use a device of their host",
    "local_pool": "have a disk that cannot be copied",
    "moving": "move already",
    "unsettled": "are being built, switched or deleted",
    "host_silent": "are on a host that does not answer",
    "local_volume": "have volumes, which cannot move",
    "no_eligible_host": "may use no other host",
    "no_host_large_enough": "fit no other host, even an empty one",
    "no_room": "have no room elsewhere that would help",
}
#: Why one VM stays where it is; other reasons say it by their names.
_STAYS: Final[Mapping[str, str]] = {
    "label": "its label forbids moves",
    "host_device": "it uses a device of its host",
    "local_pool": "it has a disk that cannot be copied",
    "moving": "it moves already",
    "unsettled": "it is being built, switched or deleted",
    "host_silent": "its host does not answer",
    "local_volume": "it has volumes, which cannot move",
    "no_eligible_host": "its request allows no other host that takes VMs now",
    "no_host_large_enough": "it fits no other host, even an empty one",
    "cut": "the plan's budget was spent before its turn",
}


@app.command("evacuate")
@pass_session
def plan_evacuation(
    session: Session,
    hosts: HostsArgument,
    approve: ApproveOption = False,
    wait: WaitOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Plan the moves that empty hosts."""
    propose_plan(
        session, {"kind": "evacuate", "hosts": hosts}, approve, wait=wait, timeout_s=timeout
    )


def _add_plan_command(kind: str, about: str) -> None:
    """Add a command that proposes a plan of a kind without arguments."""

    @app.command(kind, help=about)
    @pass_session
    def _propose(
        session: Session,
        approve: ApproveOption = False,
        wait: WaitOption = False,
        timeout: TimeoutOption = TIMEOUT_S,
    ) -> None:
        propose_plan(session, {"kind": kind}, approve, wait=wait, timeout_s=timeout)


_add_plan_command(
    "repair", "Plan the moves that keep broken rules again and relieve hosts over their capacity."
)
_add_plan_command("balance", "Plan the moves that level the load of hosts.")
_add_plan_command("pack", "Plan the moves that empty as many hosts as possible.")


@app.command("room")
@pass_session
def plan_room(
    session: Session,
    request: Annotated[str, typer.Argument(metavar="REQUEST", help="Request that waits")],
    approve: ApproveOption = False,
    wait: WaitOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Plan the fewest GiB of moves that let a request in."""
    body = {"kind": "room", "request": find_request(session.api, request)["id"]}
    propose_plan(session, body, approve, wait=wait, timeout_s=timeout)


@app.command("list")
@list_command
def list_plans(
    session: Session,
    last: Annotated[int, typer.Option("--last", "-n", help="Number of newest plans", min=1)] = 100,
) -> None:
    """List plans, newest last."""
    found = list(session.api.items("plans", max_items=last))[::-1]
    session.show(found, COLUMNS, empty="no plans yet. `fuga plan balance` proposes one.")


@app.command("show")
@pass_session
def show_plan(session: Session, plan: IdArgument) -> None:
    """Show a plan: what it gains, each move, and what stays."""
    print_plan(session, find_plan(session, plan))


@app.command("approve")
@pass_session
def approve_plan(
    session: Session, plan: IdArgument, wait: WaitOption = False, timeout: TimeoutOption = TIMEOUT_S
) -> None:
    """Carry out a proposed plan."""
    found = session.api.post(f"plans/{find_plan(session, plan)['id']}/approve", {})
    if wait:
        wait_until_carried_out(session, found, timeout_s=timeout)
    else:
        session.answer(found, f"plan {found['id']} is approved: {found['moves']} moves")


@app.command("cancel")
@pass_session
def cancel_plan(session: Session, plan: IdArgument) -> None:
    """End a plan. Moves under way go on."""
    found = session.api.post(f"plans/{find_plan(session, plan)['id']}/cancel", {})
    left = found["moves"] - found["ended"]
    session.answer(found, f"plan {found['id']} is cancelled; {left} of its moves were not over")


@app.command("replay")
@pass_session
def replay_plan(session: Session, plan: IdArgument) -> None:
    """Decide a stored plan again and compare bit for bit."""
    found = session.api.replay_plan(find_plan(session, plan)["id"])
    if not found["identical"]:
        if session.json:
            print_json(found)
        raise CliError(f"plan {found['plan']}: the replay DIFFERS from the stored plan")
    session.answer(found, f"plan {found['plan']}: identical, in {found['seconds']:.3f} s")


def propose_plan(
    session: Session, body: Mapping[str, Any], approve: bool, *, wait: bool, timeout_s: float
) -> None:
    """Request a plan and show it; with ``approve`` also carry it out."""
    plan = session.api.post("plans", {**body, "approve": approve})
    decided = wait_until_decided(session.api, plan, quiet=session.json)
    if wait and approve:
        wait_until_carried_out(session, decided, timeout_s=timeout_s)
    else:
        print_plan(session, decided)


def wait_until_carried_out(session: Session, plan: Mapping[str, Any], *, timeout_s: float) -> None:
    """Wait until a plan ends, show a progress bar, and print the result."""
    done = wait_for_plan(session.api, plan, timeout_s=timeout_s, quiet=session.json)
    moved = done["ended"] - done["failed"]
    session.answer(
        done, f"plan {done['id']} is {done['state']}: {moved} VM{'s' * (moved != 1)} moved"
    )
    if done["state"] == "cancelled":
        left = done["moves"] - done["ended"]
        why = f"{done['last_error']}; " if done.get("last_error") else ""
        raise CliError(
            f"{why}{left} of its moves were not over: those under way go on, no others begin"
        )
    troubles = _failure_lines(session, done)
    if troubles:
        raise CliError("\n".join(troubles))


def _failure_lines(session: Session, plan: Mapping[str, Any]) -> list[str]:
    """Return a line for each VM of a plan that did not move, with the reason.

    VMs that were deleted, or are on another host by now, are left out: they left all the same.
    """
    lines, more = [], []
    if plan["failed"]:
        failed = [
            each
            for each in session.api.get(f"plans/{plan['id']}/moves")["items"]
            if each["refused"] or each["state"] in ("failed", "cancelled")
        ]
        if len(failed) > _MAX_FAILED_SHOWN:
            more = [
                f"  {len(failed) - _MAX_FAILED_SHOWN} more moves failed:"
                f" `fuga plan show {plan['id']}` lists all"
            ]
        for each in failed[:_MAX_FAILED_SHOWN]:
            vm = session.api.get(f"vms/{each['vm_id']}")
            if vm["desired"] == "deleted" or vm.get("host") not in (None, each["from_host"]):
                continue
            why = each["refused"] or session.api.get(f"moves/{each['move_id']}")["last_error"]
            lines.append(f"  {each['vm_name']} stays on {each['from_host']}: {why}")
    lines += [f"  {_staying_vm_text(session, each)}" for each in plan["not_moved"]]
    several = (
        "1 VM stays where it is" if len(lines) == 1 else f"{len(lines)} VMs stay where they are"
    )
    return [*([f"{several}:", *lines] if lines else []), *more]


def print_plan(session: Session, plan: Mapping[str, Any]) -> None:
    """Print a plan, its measures and its moves."""
    moves = session.api.get(f"plans/{plan['id']}/moves")["items"]
    if session.json:
        print_json({**plan, "planned": moves})
        return
    echo(f"plan {plan['id']}: {plan['kind']}, {plan['state']}")
    if plan["state"] == "failed":
        raise CliError(str(plan["last_error"]))
    if plan["last_error"]:
        echo(str(plan["last_error"]))
    admitted = plan["admitted"]
    if admitted is not None:
        echo(_admitted_hosts_text(admitted, failed_moves=plan["failed"]))
    if not moves and not plan["not_moved"]:
        if admitted is None:
            echo(_no_moves_text(plan["before"]))
        elif plan["state"] == "proposed" and admitted["hosts"]:
            echo(f"room is kept for it after `fuga plan approve {plan['id']}`")
        return
    if plan["before"]:
        _print_measures(plan)
    _print_moves(moves)
    if plan["not_moved"]:
        echo("")
        echo("These VMs have no place:")
        for each in plan["not_moved"]:
            echo(f"  {_staying_vm_text(session, each)}")
    if plan["state"] == "proposed" and moves:
        echo("")
        echo(f"nothing moves before `fuga plan approve {plan['id']}`")


def _print_measures(plan: Mapping[str, Any]) -> None:
    """Print the measures of a plan before and after its moves, and its gain."""
    rows = [
        {
            "measure": label,
            "before": _measure_text(plan["before"], *how),
            "after": _measure_text(plan["after"], *how),
        }
        for key, label, form in _MEASURES
        for how in [(key, form)]
    ]
    echo("")
    if plan["failed"] and plan["ended_at"]:
        echo(f"As proposed; {plan['failed']} of {plan['moves']} moves failed:")
    columns = (field("measure"), field("before", right=True), field("after", right=True))
    print_table(columns, rows, empty="")
    if plan["gain"] is not None:
        echo(f"gain {number_text(plan['gain'], 6)}")
    if plan.get("effect"):  # an older API has none
        echo("")
        echo_lines(textwrap.fill(plan["effect"], terminal_width() or 100))


def _print_moves(moves: Sequence[Mapping[str, Any]]) -> None:
    """Print moves in order, with the reasons of refusals."""
    echo("")
    print_table(
        (
            Column("wave", lambda row: row["wave"] + 1, right=True),
            field("vm_name", "vm", prose=True),
            field("tenant", spare=2),
            field("from_host", "from", prose=True),
            field("to_host", "to", prose=True),
            field("why", spare=1),
            Column(
                "GiB", lambda row: number_text(row["transfer_mib"] / 1024, 1), right=True, spare=1
            ),
            Column("state", lambda row: "refused" if row["refused"] else row["state"]),
        ),
        moves,
        empty="no useful move",
    )
    if refused := [each for each in moves if each["refused"]]:
        echo("")
        echo("These moves were refused:")
        for each in refused:
            echo(f"  {each['vm_name']} to {each['to_host']}: {each['refused']}")


def _no_moves_text(before: Mapping[str, Any] | None) -> str:
    """Return the message for a plan without moves, with the VMs that were not considered."""
    resting = (before or {}).get("resting", 0)
    if not resting:
        return "no useful move"
    vms = "1 VM" if resting == 1 else f"{resting} VMs"
    return f"no useful move; {vms} moved within FUGA_PLAN_REST_S, or could not, and were left alone"


def _admitted_hosts_text(admitted: Mapping[str, Any], *, failed_moves: int) -> str:
    """Return a sentence that names the hosts with new room for a request's VMs.

    After failed moves that room is not there: the sentence says what was intended.
    """
    hosts = ", ".join(f"{each['count']} on {each['host']}" for each in admitted["hosts"])
    if not hosts:
        parts = ["no moves let this request in"]
    elif failed_moves:
        failed = "1 of its moves" if failed_moves == 1 else f"{failed_moves} of its moves"
        parts = [f"was to let in {hosts}", f"{failed} failed, so no room is kept for the request"]
    else:
        parts = [f"lets in {hosts}"]
    if admitted["still_waits"]:
        left = admitted["still_waits"]
        wait = "1 VM waits" if left["count"] == 1 else f"{left['count']} VMs wait"
        parts.append(f"{wait} as before ({left['reason'].replace('_', ' ')})")
    stay = admitted.get("in_the_way")  # plans of earlier versions do not say it
    if stay:
        lines = [
            f"{count} {_IN_THE_WAY.get(why, why.replace('_', ' '))}" for why, count in stay.items()
        ]
        parts.append(f"of the VMs on the hosts where it could be, {', '.join(lines)}")
    return "; ".join(parts)


def _measure_text(measures: Mapping[str, Any], key: str, form: Callable[[Any], str]) -> str:
    value = measures.get(key)
    return "-" if value is None else form(value)


def _staying_vm_text(session: Session, stays: Mapping[str, Any]) -> str:
    """Return why a VM of a plan stays on its host, with what the nearest other host lacks."""
    name = stays.get("name") or _vm_name(session, stays["vm"])
    reason = str(stays["obstacle"] or stays["why"])
    why = _STAYS.get(reason, reason.replace("_", " "))
    missing = stays["missing"]
    if not missing:
        return f"{name}: {why}"
    amounts = ", ".join(f"{amount} {name}" for name, amount in missing["amounts"].items())
    return f"{name}: {why}; on {missing['host']}, which lacks least, {amounts} more"


def _vm_name(session: Session, vm: str) -> str:
    """Return the name of a VM of a plan; plans of earlier versions hold only its id."""
    try:
        return str(session.api.get(f"vms/{vm}")["name"])
    except ApiProblemError as problem:
        if problem.http_status != _NOT_FOUND:
            raise
        return vm  # it was deleted long ago


def find_plan(session: Session, typed: str) -> Mapping[str, Any]:
    """Find a plan by its id, or by the beginning or end of the id."""
    if len(typed) == _WHOLE:
        return dict(session.api.get(f"plans/{typed}"))
    plans = session.api.items("plans", max_items=_SEARCHED)
    found = [each for each in plans if is_part_of_id(typed, each["id"])]
    if len(found) != 1:
        several = "several plans" if found else "no plan"
        raise BadInputError(f"{several} with an id like {typed!r}; see `fuga plan list`")
    return dict(found[0])
