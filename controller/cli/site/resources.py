"""`fuga resource`: what hosts offer, and what each VM takes beyond its type."""

from __future__ import annotations

from typing import Annotated

import typer

from controller.session.session import Session, pass_session
from controller.terminal.columns import field

app = typer.Typer(
    name="resource",
    no_args_is_help=True,
    help="Resources that hosts offer and VMs hold (operators).",
)


@app.command("list")
@pass_session
def list_resources(session: Session) -> None:
    """List resources with unit and overhead per VM."""
    columns = [field("name"), field("unit"), field("overhead_per_vm", right=True)]
    session.show(session.api.items("resources"), columns, empty="no resources")


@app.command("add")
@pass_session
def add_resource(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Resource name, such as gpu")],
    unit: Annotated[str, typer.Option(help="Unit of its amounts, such as GPUs")] = "units",
) -> None:
    """Add a resource. A resource cannot be removed later."""
    made = session.api.post("resources", {"name": name, "unit": unit})
    session.answer(
        made,
        f"resource {name} added. Hosts offer none of it yet:"
        f" fuga host set HOST --override {name}=AMOUNT",
    )


@app.command("set")
@pass_session
def set_resource_overhead(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Resource name, such as memory_mib")],
    overhead: Annotated[
        int,
        typer.Option(help="Amount each VM holds beyond its type, in the resource's unit", min=0),
    ],
) -> None:
    """Set the overhead per VM, for VMs placed from now on."""
    changed = session.api.patch(f"resources/{name}", {"overhead_per_vm": overhead})
    session.answer(changed, f"each VM placed from now on holds {overhead} {name} beyond its type")
