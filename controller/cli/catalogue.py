"""`fuga type`: what is on offer."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from controller.cli.hosts import parse_amounts
from controller.cli.output import Column, field
from controller.cli.session import Session, listing, with_session

types = typer.Typer(name="type", no_args_is_help=True, help="VM types: named resource vectors.")


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
