"""`fuga token`: who may speak to the API, for what, and until when."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from controller.cli.changes import parse_ttl
from controller.cli.credentials import FILE_NAME, Credentials, state_dir
from controller.cli.errors import BadInputError
from controller.cli.output import Column, age, field, short_id, until
from controller.cli.session import Session, listing, with_session
from controller.cli.targets import is_part_of_id

app = typer.Typer(name="token", no_args_is_help=True, help="Who may speak to the API.")

ExpiresOption = Annotated[
    str | None, typer.Option("--expires", metavar="TIME", help="As 90d or 12h: it ends then.")
]
ReadOnlyOption = Annotated[
    bool, typer.Option("--read-only", help="Sees what it would see, and changes nothing.")
]


@app.command("list")
@listing
def list_tokens(session: Session) -> None:
    """List tokens, and to the hour when each was last used; secrets are never shown again."""
    columns = (
        Column("id", lambda row: short_id(row["id"])),
        field("name"),
        field("role"),
        field("tenant"),
        field("read_only"),
        Column("age", lambda row: age(row["created_at"]), right=True),
        Column("last used", lambda row: age(row["last_used_at"]), right=True),
        Column("ends in", lambda row: until(row["expires_at"]), right=True),
        Column("state", _state),
    )
    session.show(session.api.items("tokens"), columns, empty="no tokens")


@app.command("create")
@with_session
def create_token(
    session: Session,
    *,
    tenant: Annotated[
        str | None, typer.Option(help="May act for that tenant; without it: an operator.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="To tell it from others.")] = None,
    expires: ExpiresOption = None,
    read_only: ReadOnlyOption = False,
    save: Annotated[
        bool, typer.Option("--save", help="Keep it in the state folder, for `--as TENANT`.")
    ] = False,
) -> None:
    """Create a token and print its secret, once."""
    if save and tenant is None:
        raise BadInputError("--save keeps tenants' tokens: name one with --tenant")
    role = "operator" if tenant is None else "tenant"
    body: dict[str, Any] = {"role": role, "tenant": tenant, "name": name or tenant or role}
    if read_only:
        body["read_only"] = True
    if expires is not None:
        body["ttl_s"] = parse_ttl(expires, "--expires")
    made = session.api.post("tokens", body)
    if save and tenant is not None:
        path = state_dir(os.environ) / FILE_NAME
        found = Credentials.load(path)
        if found is None:
            raise BadInputError(f"{path} is not there: `fuga up` writes it")
        Credentials(
            url=found.url,
            operator=found.operator,
            tenants={**found.tenants, tenant: made["secret"]},
        ).save(path)
    session.answer(made, made["secret"])


app.command("add", hidden=True)(create_token)


@app.command("revoke")
@with_session
def revoke_token(
    session: Session,
    token: Annotated[
        str, typer.Argument(metavar="TOKEN", help="Its name or id, or the end of that.")
    ],
) -> None:
    """Let a token open nothing any more."""
    found = [
        each
        for each in session.api.items("tokens")
        if each["name"] == token or is_part_of_id(token, each["id"])
    ]
    living = [each for each in found if _state(each) == "good"]
    if len(living) != 1:
        what = "several tokens are" if living else "no token in force is"
        raise BadInputError(f"{what} called {token!r}: `fuga token list` shows them")
    answer = session.api.delete(f"tokens/{living[0]['id']}")
    session.answer(answer, f"token {living[0]['name']} is revoked")


def _state(token: Mapping[str, Any]) -> str:
    if token["revoked_at"]:
        return "revoked"
    ends = token.get("expires_at")
    over = ends is not None and datetime.fromisoformat(ends) <= datetime.now(UTC)
    return "expired" if over else "good"
