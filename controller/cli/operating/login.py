"""`fuga login`: into the web console by a link that is good once."""

from __future__ import annotations

from typing import Annotated

import typer

from controller.calling.links import LINKS, link_of
from controller.calling.session import Session, with_session
from controller.terminal.errors import BadInputError
from controller.terminal.output import until


@with_session
def login(
    session: Session,
    *,
    link: Annotated[
        bool, typer.Option("--link", help="Print a link that logs a browser in, once")
    ] = False,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="With --link: that login may only read")
    ] = False,
) -> None:
    """Log a browser in with the rights of your token."""
    if not link:
        raise BadInputError("give --link")
    made = session.api.post(LINKS, {"read_only": read_only})
    address = link_of(session.api.url, made)
    session.answer({**made, "link": address}, address)
    session.say(f"It logs in once, within {until(made['expires_at'])}.")
