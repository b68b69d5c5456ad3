"""`fuga tenant`: tenants that share the cluster, and groups of tenants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from controller.session.completion import complete_tenant
from controller.session.session import Session, list_command, pass_session
from controller.terminal.columns import Column, field
from controller.terminal.output import echo, percent_text, print_json, print_table

app = typer.Typer(
    name="tenant",
    no_args_is_help=True,
    help="Tenants that share the cluster, and groups of tenants.",
)

NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Tenant or group (see `fuga tenant list`)",
        autocompletion=complete_tenant,
    ),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show the effect on shares, change nothing")
]
TOP = "/"  #: what a command line writes for no group


@app.command("list")
@list_command
def list_tenants(session: Session) -> None:
    """List tenants below their groups: weight, share and entitlement."""
    shares = session.api.get("shares")["items"]
    if session.json:
        of_name = {each["name"]: each for each in shares}
        print_json([{**of_name.get(t["name"], {}), **t} for t in session.api.items("tenants")])
        return
    print_table(
        [
            Column("name", _indented_name_cell(shares)),
            Column("kind", _kind_text),
            field("weight", right=True),
            Column("share", lambda row: percent_text(row["share"]), right=True),
            Column("entitled to", lambda row: percent_text(row["entitlement"]), right=True),
        ],
        shares,
        empty="no tenants. Create one with `fuga tenant create NAME`.",
    )


@app.command("show")
@pass_session
def show_tenant(session: Session, name: NameArgument) -> None:
    """Show one tenant or group: its group, weight, share and entitlement."""
    found = {**_shares_of(session, name), **session.api.get(f"tenants/{name}")}
    if session.json:
        print_json(found)
        return
    for label, value in (
        ("name", found["name"]),
        ("kind", _kind_text(found)),
        ("group", found["parent"] or "-"),
        ("weight", found["weight"]),
        ("share", percent_text(found.get("share"))),
        ("entitled to", percent_text(found.get("entitlement"))),
    ):
        echo(f"{label:14}{value}")


@app.command("create")
@pass_session
def create_tenant(
    session: Session,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the tenant or group")],
    weight: Annotated[float, typer.Option(help="Weight relative to its siblings")] = 1.0,
    parent: Annotated[str | None, typer.Option(help="Parent group")] = None,
    group: Annotated[
        bool, typer.Option("--group", help="Create a group, which contains tenants")
    ] = False,
    dry_run: DryRunOption = False,
) -> None:
    """Create a tenant, which may request VMs, or a group of tenants."""
    body = {"name": name, "weight": weight, "parent": parent, "is_group": group}
    if dry_run:
        _show_effects(session, session.api.post("tenants", body, dry_run=True))
        return
    made = session.api.post("tenants", body)
    if group:
        session.answer(made, f"group {name} created. Move tenants into it with `fuga tenant move`.")
    else:
        session.answer(
            made, f"tenant {name} created. Give it access with `fuga token create --tenant {name}`."
        )


app.command("add", hidden=True)(create_tenant)


@app.command("set")
@pass_session
def set_weight(
    session: Session,
    name: NameArgument,
    weight: Annotated[float, typer.Option(help="Weight relative to its siblings")],
    dry_run: DryRunOption = False,
) -> None:
    """Change a weight, effective from the next round."""
    _print_change(session, name, {"weight": weight}, dry_run, f"{name} has weight {weight:g}")


@app.command("move")
@pass_session
def move_tenant(
    session: Session,
    name: NameArgument,
    to: Annotated[
        str, typer.Option("--to", metavar="GROUP", help=f"New parent group; {TOP} for none")
    ],
    dry_run: DryRunOption = False,
) -> None:
    """Move a tenant, or a group with its members, into another group."""
    parent = None if to == TOP else to
    where = "in no group" if parent is None else f"in group {parent}"
    _print_change(session, name, {"parent": parent}, dry_run, f"{name} is {where}")


@app.command("remove")
@pass_session
def remove_tenant(session: Session, name: NameArgument) -> None:
    """Remove an unused tenant or group. Its history is kept."""
    answer = session.api.delete(f"tenants/{name}")
    session.answer(answer, f"{_kind_text(answer)} {name} is removed")


def _print_change(
    session: Session, name: str, body: Mapping[str, Any], dry_run: bool, done: str
) -> None:
    if dry_run:
        _show_effects(session, session.api.patch(f"tenants/{name}", body, dry_run=True))
    else:
        session.answer(session.api.patch(f"tenants/{name}", body), done)


def _show_effects(session: Session, answer: Mapping[str, Any]) -> None:
    """Print how a change of the tree of tenants affects tenants and groups."""
    if session.json:
        print_json(answer)
        return
    rows = answer["tenants"]
    touched = [each for each in rows if _is_affected(each)]
    print_table(
        [
            field("name"),
            Column("kind", _kind_text),
            Column("group", _group_change_text),
            Column("share now", lambda row: percent_text(row["share"]), right=True),
            Column("entitled to", _change_cell("entitlement"), right=True),
            Column("fair next round", _change_cell("target"), right=True),
        ],
        touched,
        empty="no share would change",
    )
    echo(f"nothing changed; {len(rows) - len(touched)} others would keep their shares")


def _is_affected(row: Mapping[str, Any]) -> bool:
    return row["parent_before"] != row["parent_after"] or any(
        percent_text(row[f"{what}_before"]) != percent_text(row[f"{what}_after"])
        for what in ("entitlement", "target")
    )


def _group_change_text(row: Mapping[str, Any]) -> str:
    before, after = (row[f"parent_{when}"] or TOP for when in ("before", "after"))
    return str(after) if before == after else f"{before} → {after}"


def _change_cell(what: str) -> Any:
    """Return a cell function for a percentage before and after a change."""

    def render(row: Mapping[str, Any]) -> str:
        before, after = (percent_text(row[f"{what}_{when}"]) for when in ("before", "after"))
        return after if before == after else f"{before} → {after}"

    return render


def _shares_of(session: Session, name: str) -> Mapping[str, Any]:
    """Return share and entitlement of a tenant or group; empty if it has none yet."""
    shares = session.api.get("shares")["items"]
    return next((each for each in shares if each["name"] == name), {})


def _kind_text(row: Mapping[str, Any]) -> str:
    return "group" if row["is_group"] else "tenant"


def _indented_name_cell(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return a cell function that indents a tenant's name by its depth in the tree."""
    parent_of = {row["name"]: row["parent"] for row in rows}

    def name(row: Mapping[str, Any]) -> str:
        depth, above = 0, row["parent"]
        while above in parent_of and depth < len(parent_of):  # a server may send a circle
            depth, above = depth + 1, parent_of[above]
        return "  " * depth + str(row["name"])

    return name
