"""`fuga doctor --hosts`: the differences between hosts and ledger, and their repair."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from controller.client.errors import ApiProblemError
from controller.session.session import Session
from controller.terminal.columns import Column, field
from controller.terminal.errors import CliError
from controller.terminal.output import echo, print_json, print_table
from plain_text import plain


def print_differences(session: Session, *, repair: bool, yes: bool) -> None:
    """Print the differences between hosts and ledger; with ``repair``, ask and repair them."""
    found = list(session.api.items("differences"))
    undecided = [each for each in found if each["remedy"] == "confirm"]
    if not repair:
        if session.json:
            print_json(found)
        else:
            _print_difference_table(found)
        if undecided:
            raise CliError(
                f"{len(undecided)} of {len(found)} differences need an operator's decision:"
                " `fuga doctor --hosts --repair`"
            )
        return
    done = [
        each
        for each in undecided
        if _confirm_repair(each, yes=yes) and _repair_difference(session, each)
    ]
    if session.json:
        print_json(done)
    else:
        echo(f"{len(done)} of {len(undecided)} differences are being repaired")
    if len(done) < len(undecided):
        raise CliError(f"{len(undecided) - len(done)} differences remain")


def _print_difference_table(found: list[dict[str, Any]]) -> None:
    """Print differences between hosts and ledger, and what a repair would do."""
    columns = [
        *(field(name) for name in ("host", "difference", "remedy")),
        Column("answer", lambda row: f"{row['action']}: {row['why']}", prose=True),
        field("what", prose=True),  # last: it gets the rest of the line
    ]
    print_table(columns, found, empty="no differences between hosts and ledger")
    for each in found:
        if each["on_confirmation"] is not None:
            echo(f"{each['host']}, {each['subject']}: on repair, {each['on_confirmation']}")


def _confirm_repair(difference: Mapping[str, Any], *, yes: bool) -> bool:
    """Ask the operator whether to repair a difference; ``yes``: repair it without a question."""
    echo(f"{difference['host']}: {difference['what']}", err=True)
    echo(f"  {difference['why']}", err=True)
    if yes:
        echo(f"  {difference['on_confirmation']}", err=True)
        return True
    return typer.confirm(plain(f"  {difference['on_confirmation']}?"), err=True)


def _repair_difference(session: Session, difference: Mapping[str, Any]) -> bool:
    """Repair a difference through the API; print why and return False if it refuses."""
    body = {key: difference[key] for key in ("difference", "subject")}
    try:
        session.api.post(f"hosts/{difference['host']}/repair", body)
    except ApiProblemError as problem:
        if problem.http_status != 409:
            raise
        echo(f"{difference['host']}, {difference['subject']}: {problem}", err=True)
        return False
    return True
