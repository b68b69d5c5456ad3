"""`fuga doctor --hosts`: where hosts are not as the ledger says, and an operator's word on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from controller.calling.session import Session
from controller.client.errors import ProblemError
from controller.terminal.errors import CliError
from controller.terminal.output import echo, field, print_json, print_table
from plain_text import plain


def tell_differences(session: Session, *, repair: bool, yes: bool) -> None:
    """Print every difference with what is done about it; with ``repair`` ask about some."""
    found = list(session.api.items("differences"))
    asking = [each for each in found if each["answer"] == "ask"]
    if not repair:
        if session.json:
            print_json(found)
        else:
            _print(found)
        if asking:
            raise CliError(
                f"{len(asking)} of {len(found)} differences wait for an operator's word:"
                " `fuga doctor --hosts --repair`"
            )
        return
    done = [each for each in asking if _is_wanted(each, yes=yes) and _repair(session, each)]
    if session.json:
        print_json(done)
    else:
        echo(f"{len(done)} of {len(asking)} are being repaired")
    if len(done) < len(asking):
        raise CliError(f"{len(asking) - len(done)} differences stay as they are")


def _print(found: list[dict[str, Any]]) -> None:
    columns = [field(name) for name in ("host", "difference", "answer", "what", "action", "why")]
    print_table(columns, found, empty="hosts are as the ledger says")
    for each in found:
        if each["on_word"] is not None:
            echo(f"{each['host']}, {each['subject']}: if you say so, {each['on_word']}")


def _is_wanted(difference: Mapping[str, Any], *, yes: bool) -> bool:
    if yes:
        return True
    echo(f"{difference['host']}: {difference['what']}", err=True)
    echo(f"  {difference['why']}", err=True)
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
