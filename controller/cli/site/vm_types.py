"""`fuga type`: the VM types on offer."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from controller.cli.site.hosts import parse_amounts
from controller.session.session import Session, list_command, pass_session
from controller.terminal.columns import Column, field

#: Not resources: what a VM may take of its host at most.
_LIMITS: Final = ("disk_iops", "disk_mib_s", "net_mbps")
_AMOUNTS: Final = (
    "Resources, such as vcpus=2 memory_mib=4096 disk_gib=20; limits: disk_iops, disk_mib_s"
    " (for all disks together), net_mbps (each way)"
)

types = typer.Typer(name="type", no_args_is_help=True, help="VM types: named resource vectors.")


@types.command("list")
@list_command
def list_vm_types(session: Session) -> None:
    """List VM types."""
    rows = list(session.api.vm_types.list())
    names = dict.fromkeys(name for row in rows for name in row["resources"])
    columns = [field("name"), field("revision", right=True)]
    columns += [Column(name, _amount_cell(name), right=True) for name in names]
    limited = dict.fromkeys(name for row in rows for name in row.get("limits", {}))
    columns += [Column(name, _limit_cell(name), right=True) for name in limited]
    session.show(rows, columns, empty="no VM types. Add one with `fuga type add`.")


def _amount_cell(resource: str) -> Any:
    return lambda row: row["resources"].get(resource, 0)


def _limit_cell(name: str) -> Any:
    return lambda row: row.get("limits", {}).get(name, "-")


@types.command("add")
@pass_session
def add_vm_type(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the VM type")],
    amounts: Annotated[list[str], typer.Argument(metavar="RESOURCE=AMOUNT...", help=_AMOUNTS)],
) -> None:
    """Add a VM type. A VM type cannot be changed later."""
    given = parse_amounts("RESOURCE=AMOUNT", amounts)
    limits = {name: given.pop(name) for name in _LIMITS if name in given}
    body = {"name": name, "resources": given}
    made = session.api.post("vm-types", body | ({"limits": limits} if limits else {}))
    session.answer(made, f"VM type {name} added")
