"""`fuga rounds`, `replay`: list, show and replay rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import typer

from controller.cli.operating.pause import pause_notice
from controller.cli.operating.shadow import print_comparison
from controller.session.round_texts import decided_by_text, duration_s, shares_text
from controller.session.session import Session, list_command, pass_session
from controller.terminal.columns import Column, field
from controller.terminal.errors import BadInputError, CliError
from controller.terminal.output import echo, percent_text, print_json, print_table
from controller.terminal.pairs import parse_parameters
from controller.terminal.times import clock
from plain_text import plain

app = typer.Typer(
    name="rounds",
    invoke_without_command=True,
    help="Rounds: every decision with its shares, bound and duration.",
)

NumberArgument = Annotated[int, typer.Argument(metavar="N", help="Round number", min=1)]


def _bound_text(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _price_of_fairness(prices: Mapping[str, Any] | None) -> float | None:
    """Return the price of fairness, as a fraction of what could be placed without it."""
    if not prices or prices["of_fairness"] is None:
        return None
    return prices["of_fairness"] / prices["most"] if prices["most"] else 0.0


def _duration_text(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f} s"


COLUMNS = (
    field("number", "round", right=True),
    Column("slot", lambda row: clock(row.get("slot_start_at"))),
    field("policy"),
    Column("decided by", decided_by_text),
    field("placed", right=True),
    field("left_out", right=True),
    field("dropped", right=True),
    Column("shares", shares_text, spare=3),
    Column("bound", lambda row: _bound_text(row.get("bound")), right=True),
    Column("distance from fair", lambda row: percent_text(row.get("fair_distance")), right=True),
    Column(
        "price of fairness",
        lambda row: percent_text(_price_of_fairness(row.get("prices"))),
        right=True,
    ),
    Column("took", lambda row: _duration_text(duration_s(row)), right=True),
)


_CERTIFIED = {True: "yes", False: "no", None: "not checked"}
_OF_SPOT = (field("vm"), Column("for", lambda row: f"{row['tenant']}/{row['request']}"))
_OF_RESERVATIONS = (
    field("reservation"),
    field("tenant"),
    field("wanted", right=True),
    field("drawn", right=True),
    field("kept", right=True),
    field("missing", right=True),
)
_OF_GAMES = (
    field("game", right=True),
    field("players", "hosts", right=True),
    field("vms", "VMs", right=True),
    field("solved"),
    Column("subgames", lambda row: str(row["subgames"] or "-"), right=True),
    Column(
        "sweeps", lambda row: "-" if row["solved"] == "exact" else str(row["sweeps"]), right=True
    ),
    Column("certified", lambda row: _CERTIFIED[row["certified"]]),
)


@app.callback()
@list_command
def rounds(
    session: Session,
    last: Annotated[int, typer.Option("--last", "-n", help="Number of newest rounds", min=1)] = 100,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Show all rounds")] = False,
) -> None:
    """List rounds, newest last."""
    if session.before_another:
        return
    found = list(session.api.items("rounds", max_items=None if everything else last + 1))
    more = not everything and len(found) > last
    rows = (found if everything else found[:last])[::-1]
    session.show(rows, COLUMNS, empty="no rounds yet. Slots without work leave no round.")
    if more:
        session.print_message(f"newest {last} rounds; use --all for all")
    if not session.json and (notice := pause_notice(session)):
        session.print_message(notice)


@app.command("show")
@pass_session
def show_round(session: Session, number: NumberArgument) -> None:
    """Show one round in full."""
    found = session.api.get(f"rounds/{number}")
    if session.json:
        print_json(found)
        return
    for label, value in (
        ("round", found["number"]),
        ("slot", clock(found["slot_start_at"])),
        ("policy", found["policy"]),
        ("decided by", decided_by_text(found)),
        ("fallback because", found.get("fallback_reason")),
        ("placed", found["placed"]),
        ("not placed", found["left_out"]),
        ("dropped", found["dropped"]),
        ("work", f"{found.get('work')} of {found.get('budget_units') or 'unlimited'} units"),
        ("seed", found.get("seed")),
        ("engine", found.get("engine_version")),
        ("inputs digest", found.get("inputs_digest")),
        ("bound", _bound_text(found.get("bound"))),
        ("distance from fair", percent_text(found.get("fair_distance"))),
        ("inputs", None if found.get("replayable", True) else "purged: cannot be replayed"),
    ):
        if value is not None:
            echo(f"{label:18}{value}")
    for step, seconds in (found.get("timings") or {}).items():
        echo(f"{step.removesuffix('_seconds') + ' took':18}{seconds:.4f} s")
    echo("")
    _print_shares(found.get("shares") or (), empty="no shares recorded")
    if games := found.get("games"):
        echo()
        echo("games between hosts:")
        print_table(_OF_GAMES, games, empty="")
    for each in found.get("comparisons") or ():
        echo(f"compared with filling alone: {plain(each['sentence'])}")
    if endings := found.get("spot_preemptions"):
        echo()
        echo("spot and borrowed VMs that it ends:")
        print_table(_OF_SPOT, endings, empty="")
    if reservations := found.get("reservations"):
        echo()
        echo("reservations that it kept room for:")
        print_table(_OF_RESERVATIONS, reservations, empty="")
    if groups := found.get("group_shares"):
        echo()
        echo("groups of tenants:")
        _print_shares(groups, empty="")
    if prices := found.get("prices"):
        _print_prices(prices)
    if shadow := found.get("shadow"):
        print_comparison(shadow)
    echo()
    echo("VMs of this round that still exist:")
    placed = [vm for vm in session.api.items("vms") if vm["round"] == number]
    columns = (field("name"), field("tenant"), field("vm_type", "type"), field("host"))
    print_table(columns, placed, empty="none")


@app.command("game")
@pass_session
def show_game(
    session: Session,
    number: NumberArgument,
    steps: Annotated[int, typer.Option(help="Most steps to show", min=1, max=2000)] = 500,
) -> None:
    """Show a round step by step, computed again from what is stored (operators).

    Hosts in the order in which they play, how many combinations each weighed and which it
    took, with v(A), skewness and the distance from fair shares after each step.
    """
    from controller.cli.operating.games import print_game  # noqa: PLC0415
    from controller.session.polling import progress  # noqa: PLC0415

    with progress(quiet=session.json) as show_line:
        show_line(f"computing round {number} again")
        found = session.api.game(number, steps)
    print_json(found) if session.json else print_game(found)


def _print_shares(rows: Sequence[Mapping[str, Any]], *, empty: str) -> None:
    names = list(dict.fromkeys(key for row in rows for key in row))
    columns = [field(name, right=name not in ("tenant", "group", "parent")) for name in names]
    print_table(columns, rows, empty=empty)


def _print_prices(prices: Mapping[str, Any]) -> None:
    """Print what a round could have placed, the price of fairness, and each resource's price."""
    echo()
    if prices["error"] is not None:
        echo(f"no prices: {plain(prices['error'])}")
        return
    resource = prices["resource"]
    echo(f"could be placed   {prices['most']:g} {resource}")
    echo(f"within fair share {prices['fair']:g} {resource}")
    cost = f"{prices['of_fairness']:g} {resource}, {percent_text(_price_of_fairness(prices))}"
    echo(f"price of fairness {cost}")
    if not prices["classes"]:
        echo("no resource had a price: what waited had room")
        return
    echo(f"{resource} that one more of each would have let in, by class of hosts:")
    names = list(prices["classes"][0]["price"])
    columns = (
        Column("labels", lambda row: ", ".join(row["labels"]) or "-"),
        field("hosts", right=True),
        *(Column(_price_unit(name), partial(_price_text, name), right=True) for name in names),
    )
    print_table(columns, prices["classes"], empty="none")
    if left := prices["classes_left_out"]:
        echo(f"and {left} classes more")


def _price_unit(resource: str) -> str:
    """Return the unit of a price: a GiB rather than a MiB."""
    return resource.removesuffix("_mib") + "_gib" if resource.endswith("_mib") else resource


def _price_text(resource: str, row: Mapping[str, Any]) -> str:
    units = 1 if _price_unit(resource) == resource else 1024
    return f"{row['price'][resource] * units:.3g}"


@pass_session
def replay(
    session: Session,
    number: NumberArgument,
    policy: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Let another policy decide it, without effect"),
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            "--parameter",
            "-p",
            metavar="NAME=VALUE",
            help="Parameter of --policy (see fuga solve --list); repeatable",
        ),
    ] = None,
) -> None:
    """Recompute a stored round in a new process and compare bit for bit.

    With --policy, show what another policy would have decided, too.
    """
    from controller.session.polling import progress  # noqa: PLC0415

    if policy is not None:
        _print_second_policy(session, number, policy, parameter or ())
        return
    if parameter:
        raise BadInputError("--parameter needs --policy")
    with progress(quiet=session.json) as show_line:
        show_line(f"replaying round {number}")
        answer = session.api.replay(number)
    if answer["identical"]:
        session.answer(
            answer,
            f"round {number}: identical, decided by {answer['decided_by']} with policy "
            f"{answer['policy']} in {answer['seconds']:.3f} s",
        )
        return
    if session.json:
        print_json(answer)
    differences = "\n".join(plain(f"  {each}") for each in answer.get("differences") or ())
    raise CliError(f"round {number}: the replay DIFFERS from the stored round\n{differences}")


def _print_second_policy(
    session: Session, number: int, policy: str, parameters: Sequence[str]
) -> None:
    """Decide a stored round by another policy, and print the comparison."""
    from controller.cli.operating.games import print_shadow_game  # noqa: PLC0415
    from controller.session.polling import progress  # noqa: PLC0415

    body = {"policy": policy, "parameters": parse_parameters("--parameter", parameters)}
    with progress(quiet=session.json) as show_line:
        show_line(f"deciding round {number} by {policy}")
        found = session.api.second_policy(number, body)
    print_json(found) if session.json else print_shadow_game(found)
