"""`fuga login`, `fuga logout`: a token of hours from the provider, or a link for a browser."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controller.client.connection import ApiConnection
from controller.session.links import LINKS, login_url
from controller.session.logins import StoredLogins, change_logins, logins_file
from controller.session.session import Session, pass_session
from controller.terminal.errors import BadInputError, CliError
from controller.terminal.output import echo_lines
from controller.terminal.times import time_until

if TYPE_CHECKING:
    from controller.client.http import Client


@pass_session
def login(
    session: Session,
    *,
    link: Annotated[
        bool, typer.Option("--link", help="Print a link that logs a browser in, once")
    ] = False,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="With --link: that login may only read")
    ] = False,
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="As which tenant, if you are of several")
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Open none; paste where yours ended")
    ] = False,
) -> None:
    """Log in at the site's provider; or, with your token, log a browser in.

    The token of the login lasts for hours, and is kept for this user in ~/.config/fuga.
    """
    if link:
        made = session.api.post(LINKS, {"read_only": read_only})
        address = login_url(session.api.url, made)
        session.answer({**made, "link": address}, address)
        session.print_message(f"It logs in once, within {time_until(made['expires_at'])}.")
        return
    if read_only:
        raise BadInputError("--read-only needs --link")
    found = session.connection
    anonymous = _api_client(found, None)
    try:
        way = _login_provider(anonymous)
        made = anonymous.post("login", _obtain_code(way, tenant, no_browser=no_browser))
    finally:
        anonymous.close()
    path = _logins_path()
    before = StoredLogins.load(path).tokens.get(found.url)
    elsewhere = found.token is not None and found.token != before
    secret = made["secret"]
    change_logins(path, lambda logins: logins.with_login(found.urls, secret))
    made["secret"] = None
    whom = "an operator" if made["tenant"] is None else f"tenant {made['tenant']}"
    only = ", read-only" if made["read_only"] else ""
    session.answer(
        made, f"logged in at {found.url} as {whom}{only}, for {time_until(made['expires_at'])}"
    )
    if elsewhere:
        echo_lines(
            "fuga: note: commands here go on with the token of FUGA_TOKEN, the settings or the"
            " state folder",
            err=True,
        )


@pass_session
def logout(session: Session) -> None:
    """End your login, here and at the API."""
    path, found = _logins_path(), session.connection
    token = StoredLogins.load(path).tokens.get(found.url)
    if token is None:
        raise BadInputError(f"there is no login at {found.url} on this machine")
    # First here: what the API does not hear ends by itself within hours.
    change_logins(path, lambda logins: logins.without_login(found.urls))
    api = _api_client(found, token)
    try:
        ended = api.delete("token")
    finally:
        api.close()
    session.answer(ended, f"logged out at {found.url}")


def _api_client(found: ApiConnection, token: str | None) -> Client:
    from controller.client.http import Client  # noqa: PLC0415 - slow, and `--help` makes no call

    return Client(
        ApiConnection(url=found.url, others=found.others, token=token, ca=found.ca),
        agent="fuga-cli",
    )


def _login_provider(api: Client) -> Mapping[str, Any]:
    """Return the login provider of the site; raise `CliError` if it has none that works."""
    way = api.get("login")["provider"]
    if way is None:
        raise CliError(
            f"{api.url} has no provider to log in at: set FUGA_TOKEN to a token that an"
            " operator gave you"
        )
    if way["authorization_endpoint"] is None:
        raise CliError(way["problem"])
    found: Mapping[str, Any] = way
    return found


def _obtain_code(way: Mapping[str, Any], tenant: str | None, *, no_browser: bool) -> dict[str, Any]:
    """Log in at the provider in a browser; return the body that exchanges its code for a token."""
    # Slow to import, and `--link` needs none of it.
    import webbrowser  # noqa: PLC0415

    from controller.session.provider_login import (  # noqa: PLC0415
        CallbackListener,
        LoginAttempt,
        remote_redirect_uri,
    )

    if no_browser:
        attempt = LoginAttempt.begin(way, remote_redirect_uri())
        echo_lines(f"Open in a browser:\n\n  {attempt.address}\n", err=True)
        typed = typer.prompt(
            "It ends at a page that does not load. Its address", hide_input=True, err=True
        )
        return attempt.exchange_body(typed, tenant)
    listener = CallbackListener()
    attempt = LoginAttempt.begin(way, listener.redirect_uri)
    with listener.listening(attempt.state):
        echo_lines(f"Log in here, if no browser opens:\n\n  {attempt.address}\n", err=True)
        webbrowser.open(attempt.address)
        return attempt.exchange_body(listener.wait_for_answer(), tenant)


def _logins_path() -> Path:
    path = logins_file(os.environ)
    if path is None:
        raise BadInputError("HOME is not set: there is nowhere to keep a login")
    return path
