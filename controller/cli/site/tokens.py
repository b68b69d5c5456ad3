"""`fuga token`: who may use the API, as whom, and until when."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import typer

from controller.session.credentials import FILE_NAME, Credentials, state_dir
from controller.session.name_lookup import is_part_of_id
from controller.session.session import Session, list_command, pass_session
from controller.terminal.columns import Column, field
from controller.terminal.errors import BadInputError
from controller.terminal.output import short_id
from controller.terminal.times import parse_end, time_since, time_until
from plain_text import suggest_names

ENDS_SOON: Final = timedelta(days=14)
_RENEWED: Final = re.compile(r"-\d{8}-\d{6}$")

app = typer.Typer(name="token", no_args_is_help=True, help="Access tokens of the API.")

ExpiresOption = Annotated[
    str | None,
    typer.Option(
        "--expires",
        metavar="TIME",
        help="Lifetime: 90d, 12h or never (operators' tokens expire by default)",
    ),
]
ReadOnlyOption = Annotated[bool, typer.Option("--read-only", help="Allow reading only")]


@app.command("list")
@list_command
def list_tokens(session: Session) -> None:
    """List tokens and the hour of their last use. Secrets are never shown again."""
    columns = (
        Column("id", lambda row: short_id(row["id"])),
        field("name"),
        field("role"),
        field("tenant"),
        field("read_only"),
        Column("age", lambda row: time_since(row["created_at"]), right=True),
        Column("last used", lambda row: time_since(row["last_used_at"]), right=True),
        Column("ends in", lambda row: time_until(row["expires_at"]), right=True),
        Column("state", _state_text),
    )
    session.show(session.api.items("tokens"), columns, empty="no tokens")


@app.command("create")
@pass_session
def create_token(
    session: Session,
    *,
    tenant: Annotated[
        str | None, typer.Option(help="Tenant that the token acts for (default: operator token)")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the token")] = None,
    expires: ExpiresOption = None,
    read_only: ReadOnlyOption = False,
    save: Annotated[
        bool, typer.Option("--save", help="Save it in the state folder, for `--as TENANT`")
    ] = False,
) -> None:
    """Create a token and print its secret once."""
    if save and tenant is None:
        raise BadInputError("--save needs --tenant")
    role = "operator" if tenant is None else "tenant"
    body: dict[str, Any] = {"role": role, "tenant": tenant, "name": name or tenant or role}
    if read_only:
        body["read_only"] = True
    if expires is not None:
        body["ttl_s"] = parse_end(expires)
    path = state_dir(os.environ) / FILE_NAME
    found = Credentials.load(path) if save else None
    if save and found is None:
        raise BadInputError(f"{path} does not exist; `fuga up` writes it")
    if found is not None and found.url.rstrip("/") != session.connection.url:
        raise BadInputError(
            f"{path} is of {found.url}: it keeps no token of {session.connection.url}"
        )
    made = session.api.post("tokens", body)
    if found is not None and tenant is not None:
        Credentials(
            url=found.url,
            operator=found.operator,
            tenants={**found.tenants, tenant: made["secret"]},
        ).save(path)
    session.answer(made, made["secret"])


app.command("add", hidden=True)(create_token)


@app.command("renew")
@pass_session
def renew_token(
    session: Session,
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="Token name, id or end of the id")],
    *,
    expires: ExpiresOption = None,
) -> None:
    """Create the successor of a token, with the same rights and lifetime; print its secret once.

    The old token stays valid until it expires or is revoked.
    """
    before = _find_valid_token(session, token)
    body = {each: before[each] for each in ("role", "tenant", "read_only")}
    stem = _RENEWED.sub("", before["name"])
    body["name"] = f"{stem[:50]}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    if expires is not None:
        body["ttl_s"] = parse_end(expires)
    elif before.get("expires_at") is not None:
        body["ttl_s"] = round(_token_lifetime(before).total_seconds())
    made = session.api.post("tokens", body)
    session.answer(made, made["secret"])


@app.command("revoke")
@pass_session
def revoke_token(
    session: Session,
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="Token name, id or end of the id")],
) -> None:
    """Revoke a token."""
    living = _find_valid_token(session, token)
    answer = session.api.delete(f"tokens/{living['id']}")
    session.answer(answer, f"token {living['name']} is revoked")


def _find_valid_token(session: Session, token: str) -> Mapping[str, Any]:
    """Find a token that is neither revoked nor expired by its name or a part of its id."""
    good = [
        each for each in session.api.items("tokens") if _state_text(each) in {"good", "ends soon"}
    ]
    living = [each for each in good if each["name"] == token or is_part_of_id(token, each["id"])]
    if len(living) != 1:
        what = "several tokens are" if living else "no valid token is"
        suggestion = None if living else suggest_names(token, [each["name"] for each in good])
        raise BadInputError(
            f"{what} called {token!r}; {suggestion or '`fuga token list` shows them'}"
        )
    return living[0]


def _state_text(token: Mapping[str, Any]) -> str:
    """Return the state of a token: good, ends soon, expired or revoked."""
    if token["revoked_at"]:
        return "revoked"
    ends = token.get("expires_at")
    if ends is None:
        return "good"
    left = datetime.fromisoformat(ends) - datetime.now(UTC)
    if left <= timedelta(0):
        return "expired"
    # A token made for hours is not expected to last weeks.
    return "ends soon" if left < min(ENDS_SOON, _token_lifetime(token) / 4) else "good"


def _token_lifetime(token: Mapping[str, Any]) -> timedelta:
    """Return the lifetime of a token that expires."""
    ends, made = (datetime.fromisoformat(token[at]) for at in ("expires_at", "created_at"))
    return ends - made
