"""`fuga counts`: how many VMs and requests there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from controller.session.session import Session, pass_session
from controller.terminal.columns import Column, field
from controller.terminal.output import echo, print_json, print_table


@pass_session
def counts(
    session: Session,
    tenant: Annotated[str | None, typer.Option(help="Count only those of this tenant")] = None,
) -> None:
    """Count VMs by type and state, and requests in force, however many there are."""
    found = session.api.get("counts", tenant=tenant)
    if session.json:
        print_json(found)
        return
    columns = (
        field("vm_type", "type"),
        Column("state", _state_text),
        field("count", "VMs", right=True),
    )
    print_table(columns, found["vms"], empty="no VMs.")
    echo("")
    state = Column("requests", lambda row: row["state"].replace("_", " "))
    print_table(
        (state, field("count", right=True)), found["requests"], empty="no requests in force."
    )


def _state_text(row: Mapping[str, Any]) -> str:
    state = "waiting" if row["state"] == "absent" and not row["placed"] else row["state"]
    if row.get("borrowed"):
        return f"{state}, borrowed"
    return f"{state}, spot" if row["spot"] else state
