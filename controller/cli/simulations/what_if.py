"""`fuga what-if`: simulates the live site with something changed, and as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from controller.session.completion import complete_host
from controller.session.name_lookup import is_part_of_id
from controller.session.plan_progress import progress_bar
from controller.session.polling import poll_attempts
from controller.session.session import Session, list_command, pass_session
from controller.terminal.columns import Column, field
from controller.terminal.errors import BadInputError, CliError, WaitExpiredError
from controller.terminal.output import (
    amounts_text,
    echo,
    percent_text,
    print_json,
    print_table,
    short_id,
)
from controller.terminal.pairs import parse_pairs, parse_parameters
from controller.terminal.times import duration_text, time_since

app = typer.Typer(
    name="what-if",
    no_args_is_help=True,
    help="Simulate the live site with something changed (operators).",
)

IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="Id of a what-if, its beginning or its end")
]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait for the report and print it")]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="S", help="Maximum time to wait", min=1)
]
_TIMEOUT_S: Final = 3600.0
_SEARCHED: Final = 100
_WHOLE: Final = 36  #: characters of an id
_ROWS: Final = 10  #: of tenants, and of what waits; -o json has all

COLUMNS = (
    Column("what-if", lambda row: short_id(row["id"])),
    Column("state", lambda row: row["state"]),
    Column("over", lambda row: percent_text(row["progress"]), right=True),
    Column("changed", lambda row: change_summary(row["arguments"]), spare=2),
    Column("age", lambda row: time_since(row["requested_at"]), right=True),
    Column("requested by", lambda row: row["requested_by"], spare=1),
    Column("last error", lambda row: row["last_error"], spare=3),
)


@app.command("run")
@pass_session
def run_what_if(  # noqa: PLR0917 - options of a command line
    session: Session,
    hours: Annotated[
        int, typer.Option("--hours", metavar="N", help="Let the requests of the last N come again")
    ] = 24,
    add_hosts: Annotated[
        int | None, typer.Option("--add-hosts", metavar="N", help="Add this many hosts")
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(
            "--like", metavar="HOST", help="A host they are like", autocompletion=complete_host
        ),
    ] = None,
    capacity: Annotated[
        list[str] | None,
        typer.Option("--capacity", metavar="RESOURCE=N", help="What one offers; repeatable"),
    ] = None,
    zone: Annotated[
        str | None, typer.Option("--zone", metavar="ZONE", help="Zone of the added hosts")
    ] = None,
    remove_host: Annotated[
        list[str] | None,
        typer.Option(
            "--remove-host",
            metavar="HOST",
            help="Take away a host, or label=LABEL; repeatable",
            autocompletion=complete_host,
        ),
    ] = None,
    policy: Annotated[
        str | None, typer.Option("--policy", metavar="POLICY", help="Let this policy decide")
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option("-p", "--parameter", metavar="NAME=VALUE", help="Of that policy; repeatable"),
    ] = None,
    weight: Annotated[
        list[str] | None,
        typer.Option("--weight", metavar="TENANT=N", help="Weight of a tenant; repeatable"),
    ] = None,
    fairness_memory: Annotated[
        int | None,
        typer.Option(
            "--fairness-memory",
            metavar="SECONDS",
            help="Half-life of what tenants held before; 0: what they hold alone counts",
            min=0,
        ),
    ] = None,
    wait: WaitOption = False,
    timeout: TimeoutOption = _TIMEOUT_S,
) -> None:
    """Simulate the next hours as the site is, and with something changed. Changes nothing."""
    body: dict[str, Any] = {"hours": hours}
    if add_hosts is not None:
        amounts = {
            name: _parse_integer(name, n) for name, n in parse_pairs("--capacity", capacity).items()
        }
        added = {"count": add_hosts, "like": like, "capacity": amounts or None, "zone": zone}
        body["add_hosts"] = {name: value for name, value in added.items() if value is not None}
    elif like or capacity or zone:
        raise BadInputError("--like, --capacity and --zone are of hosts that --add-hosts N adds")
    if remove_host:
        body["remove_hosts"] = remove_host
    if policy is not None:
        body["policy"] = policy
        body["parameters"] = parse_parameters("-p", parameter or ())
    elif parameter:
        raise BadInputError("-p is of the policy that --policy names")
    if weight:
        body["weights"] = {
            name: _parse_float(name, value)
            for name, value in parse_pairs("--weight", weight).items()
        }
    if fairness_memory is not None:
        body["fairness_memory_s"] = fairness_memory
    what_if = session.api.post("what-ifs", body)
    if wait:
        print_what_if(session, _wait_until_ended(session, what_if, timeout))
        return
    session.answer(
        what_if,
        f"what-if {what_if['id']} is requested; `fuga what-if show {what_if['id']}` shows it",
    )


@app.command("list")
@list_command
def list_what_ifs(session: Session) -> None:
    """List what-ifs, newest last."""
    found = list(session.api.items("what-ifs", max_items=_SEARCHED))[::-1]
    session.show(found, COLUMNS, empty="no what-ifs yet. `fuga what-if run --help` explains how.")


@app.command("show")
@pass_session
def show_what_if(
    session: Session,
    what_if: IdArgument,
    wait: WaitOption = False,
    timeout: TimeoutOption = _TIMEOUT_S,
) -> None:
    """Show a what-if and its report."""
    found = find_what_if(session, what_if)
    print_what_if(session, _wait_until_ended(session, found, timeout) if wait else found)


@app.command("cancel")
@pass_session
def cancel_what_if(session: Session, what_if: IdArgument) -> None:
    """End a what-if that waits or runs."""
    found = session.api.post(f"what-ifs/{find_what_if(session, what_if)['id']}/cancel", {})
    session.answer(found, f"what-if {found['id']} is cancelled")


def find_what_if(session: Session, typed: str) -> Mapping[str, Any]:
    """Find a what-if by its id, or by the beginning or end of the id."""
    if len(typed) != _WHOLE:
        known = session.api.items("what-ifs", max_items=_SEARCHED)
        found = [each for each in known if is_part_of_id(typed, each["id"])]
        if len(found) != 1:
            several = "several what-ifs" if found else "no what-if"
            raise BadInputError(f"{several} with an id like {typed!r}; see `fuga what-if list`")
        typed = found[0]["id"]
    return dict(session.api.get(f"what-ifs/{typed}"))


def change_summary(changes: Mapping[str, Any]) -> str:
    """Return the changes of a what-if in one line."""
    parts = []
    if added := changes["add_hosts"]:
        size = f" like {added['like']}" if added["like"] else ""
        zone = f" in {added['zone']}" if added["zone"] else ""
        parts.append(f"+{added['count']} hosts{size}{zone}")
    if changes["remove_hosts"]:
        parts.append(f"-{', -'.join(changes['remove_hosts'])}")
    if changes["policy"]:
        parts.append(changes["policy"])
    if changes["weights"]:
        parts.append(", ".join(f"{name}={weight:g}" for name, weight in changes["weights"].items()))
    if (memory_s := changes.get("fairness_memory_s")) is not None:
        parts.append(f"fairness memory {memory_s} s")
    return "; ".join(parts)


def print_what_if(session: Session, what_if: Mapping[str, Any]) -> None:
    """Print a what-if and its report; raise `CliError` if it ended without a report."""
    if session.json:
        print_json(what_if)
        return
    echo(f"what-if {what_if['id']}: {change_summary(what_if['arguments'])}, {what_if['state']}")
    report = what_if["report"]
    if report is None:
        if what_if["ended_at"] is not None:
            by = f"by {what_if['cancelled_by']}" if what_if["cancelled_by"] else None
            raise CliError(str(what_if["last_error"] or f"it was cancelled {by}"))
        echo(f"{100 * what_if['progress']:.0f} % of it is over")
        return
    _print_inputs(report["inputs"])
    for line in report["cut"]:
        echo(line)
    before, after = report["as_it_is"], report["what_if"]
    echo("")
    rows = [
        {"measure": name, "before": _of(before), "after": _of(after)}
        for name, _of in _report_rows(before)
    ]
    columns = (
        field("measure", ""),
        field("before", "as it is", right=True),
        field("after", "what if", right=True),
    )
    print_table(columns, rows, empty="")
    _print_tenants(before, after)
    for name, of in (("as it is", before), ("what if", after)):
        if of["waiting"]:
            echo("")
            echo(f"at the end, {name}, these wait:")
            print_table(_WAITING, of["waiting"][:_ROWS], empty="")


_WAITING = (
    field("tenant"),
    field("vms", "VMs", right=True),
    Column("of", lambda row: amounts_text(row["demand"])),
    Column("longest", lambda row: duration_text(row["longest_wait_s"]), right=True),
)


def _print_inputs(inputs: Mapping[str, Any]) -> None:
    echo(
        f"{inputs['hosts']} hosts, {inputs['vms_running']} VMs run and {inputs['vms_waiting']}"
        f" wait; {inputs['vms_repeated']} VMs of the last {inputs['hours']} h come again"
    )
    echo(f"decided by {inputs['policy']} in slots of {inputs['slot_length_s']:g} s")
    if not inputs["lifetimes_known"]:
        echo("too few VMs have ended to say how long others live: what runs is taken to run on")


def _report_rows(run: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the measures of a simulation as labels with cell functions."""

    def wait_cell(name: str) -> Any:
        return lambda of: _span_of(of["wait_s"].get(name))

    return [
        ("policy", lambda of: of["policy"]),
        ("hosts", lambda of: of["hosts"]),
        ("VMs requested", lambda of: of["vms"]["asked"]),
        ("VMs placed", lambda of: of["vms"]["placed"]),
        ("of those requested", lambda of: percent_text(of["placed_part"])),
        ("of those by size", lambda of: percent_text(of.get("placed_by_size"))),
        ("wait at the end", lambda of: of["vms"]["waiting"]),
        ("mean wait so far", wait_cell("mean_so_far")),
        ("of VMs placed: mean", wait_cell("mean")),
        ("median", wait_cell("p50")),
        ("90 % at most", wait_cell("p90")),
        ("mean of all by size", lambda of: _span_of(of.get("waiting_by_size_s"))),
        ("distance from fair", lambda of: percent_text(of["fair_distance"])),
        *(
            (f"{name} in use", lambda of, name=name: percent_text(of["used"].get(name)))
            for name in run["used"]
        ),
    ]


def _span_of(seconds: float | None) -> str:
    return "-" if seconds is None else duration_text(seconds)


def _print_tenants(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Print the shares and placed VMs of tenants, without and with the changes."""
    known = {each["tenant"]: each for each in before["tenants"]}
    rows = [
        {"tenant": each["tenant"], "before": known.get(each["tenant"]), "after": each}
        for each in after["tenants"][:_ROWS]
    ]
    if not rows:
        return

    def placed_cell(side: str) -> Any:
        return lambda row: (
            f"{row[side]['placed']}/{row[side]['asked']}" if row[side] is not None else "-"
        )

    def share_cell(side: str) -> Any:
        return lambda row: percent_text(row[side]["share"]) if row[side] is not None else "-"

    echo("")
    print_table(
        (
            field("tenant"),
            Column("share", share_cell("before"), right=True),
            Column("what if", share_cell("after"), right=True),
            Column("placed", placed_cell("before"), right=True),
            Column("what if", placed_cell("after"), right=True),
        ),
        rows,
        empty="",
    )


def _wait_until_ended(
    session: Session, what_if: Mapping[str, Any], timeout_s: float
) -> Mapping[str, Any]:
    """Wait until a what-if ends, and return it."""
    seen = dict(what_if)
    with progress_bar(quiet=session.json, of="% over") as show_:
        for look in poll_attempts(timeout_s):
            with look:
                seen = session.api.get(f"what-ifs/{what_if['id']}")
                show_(int(100 * seen["progress"]), 100, seen["state"])
                if seen["ended_at"] is not None:
                    return seen
    raise WaitExpiredError(
        f"what-if {seen['id']} is {seen['state']} after {timeout_s:g} s, {seen['progress']:.0%} of"
        f" it is over. It goes on: `fuga what-if show {seen['id']} --wait` waits for it,"
        f" `fuga what-if cancel {seen['id']}` ends it."
    )


def _parse_integer(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise BadInputError(f"--capacity {name}={text}: expected a whole number")
    return int(text[:20])


def _parse_float(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadInputError(f"--weight {name}={text}: expected a number") from None
