"""`fuga doctor --hosts`: differences between hosts and ledger, and their repair."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from controller.client.errors import ProblemError
from controller.session.session import Session
from controller.terminal.errors import CliError
from controller.terminal.output import echo, field, print_json, print_table
from plain_text import plain


def tell_differences(session: Session, *, repair: bool, yes: bool) -> None:
    """Print every difference with its answer; with ``repair`` ask before repairing."""
    found = list(session.api.items("differences"))
    asking = [each for each in found if each["answer"] == "ask"]
    if not repair:
        if session.json:
            print_json(found)
        else:
            _print(found)
        if asking:
            raise CliError(
                f"{len(asking)} of {len(found)} differences need an operator's decision:"
                " `fuga doctor --hosts --repair`"
            )
        return
    done = [each for each in asking if _is_wanted(each, yes=yes) and _repair(session, each)]
    if session.json:
        print_json(done)
    else:
        echo(f"{len(done)} of {len(asking)} differences are being repaired")
    if len(done) < len(asking):
        raise CliError(f"{len(asking) - len(done)} differences remain")


def _print(found: list[dict[str, Any]]) -> None:
    columns = [field(name) for name in ("host", "difference", "answer", "what", "action", "why")]
    print_table(columns, found, empty="no differences between hosts and ledger")
    for each in found:
        if each["on_word"] is not None:
            echo(f"{each['host']}, {each['subject']}: on repair, {each['on_word']}")


def _is_wanted(difference: Mapping[str, Any], *, yes: bool) -> bool:
    echo(f"{difference['host']}: {difference['what']}", err=True)
    echo(f"  {difference['why']}", err=True)
    if yes:
        echo(f"  {difference['on_word']}", err=True)
        return True
    return typer.confirm(plain(f"  {difference['on_word']}?"), err=True)


def _repair(session: Session, difference: Mapping[str, Any]) -> bool:
    body = {key: difference[key] for key in ("difference", "subject")}
    try:
        session.api.post(f"hosts/{difference['host']}/repair", body)
    except ProblemError as problem:
        if problem.http_status != 409:
            raise
        echo(f"{difference['host']}, {difference['subject']}: {problem}", err=True)
        return False
    return True
