"""`fuga type`, `fuga token`: what is on offer, and for whom."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from controller.cli.credentials import FILE_NAME, Credentials, state_dir
from controller.cli.errors import BadInputError
from controller.cli.hosts import parse_amounts
from controller.cli.output import Column, age, field, short_id
from controller.cli.session import Session, listing, with_session
from controller.cli.targets import is_part_of_id

types = typer.Typer(name="type", no_args_is_help=True, help="VM types: named resource vectors.")
tokens = typer.Typer(name="token", no_args_is_help=True, help="Who may speak to the API.")


@types.command("list")
@listing
def list_types(session: Session) -> None:
    """List VM types."""
    rows = list(session.api.vm_types.list())
    names = dict.fromkeys(name for row in rows for name in row["resources"])
    columns = [field("name"), field("revision", right=True)]
    columns += [Column(name, _amount(name), right=True) for name in names]
    session.show(rows, columns, empty="no VM types. `fuga type add` makes one.")


def _amount(resource: str) -> Any:
    return lambda row: row["resources"].get(resource, 0)


@types.command("add")
@with_session
def add_type(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    amounts: Annotated[
        list[str],
        typer.Argument(metavar="RESOURCE=AMOUNT...", help="vcpus=2 memory_mib=4096 disk_gib=20"),
    ],
) -> None:
    """Offer a VM type; used once, it never changes."""
    made = session.api.post(
        "vm-types", {"name": name, "resources": parse_amounts("RESOURCE=AMOUNT", amounts)}
    )
    session.answer(made, f"VM type {name} is on offer")


@tokens.command("list")
@listing
def list_tokens(session: Session) -> None:
    """List tokens; secrets are never shown again."""
    columns = (
        Column("id", lambda row: short_id(row["id"])),
        field("name"),
        field("role"),
        field("tenant"),
        Column("age", lambda row: age(row["created_at"]), right=True),
        Column("revoked", lambda row: bool(row["revoked_at"])),
    )
    session.show(session.api.items("tokens"), columns, empty="no tokens")


@tokens.command("create")
@with_session
def create_token(
    session: Session,
    tenant: Annotated[
        str | None, typer.Option(help="May act for that tenant; without it: an operator.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="To tell it from others.")] = None,
    save: Annotated[
        bool, typer.Option("--save", help="Keep it in the state folder, for `--as TENANT`.")
    ] = False,
) -> None:
    """Create a token and print its secret, once."""
    if save and tenant is None:
        raise BadInputError("--save keeps tenants' tokens: name one with --tenant")
    role = "operator" if tenant is None else "tenant"
    made = session.api.post(
        "tokens", {"role": role, "tenant": tenant, "name": name or tenant or role}
    )
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


@tokens.command("revoke")
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
    living = [each for each in found if not each["revoked_at"]]
    if len(living) != 1:
        what = "several tokens are" if living else "no token in force is"
        raise BadInputError(f"{what} called {token!r}: `fuga token list` shows them")
    answer = session.api.delete(f"tokens/{living[0]['id']}")
    session.answer(answer, f"token {living[0]['name']} is revoked")
