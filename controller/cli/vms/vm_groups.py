"""`fuga vm-groups`: which VMs stay apart or together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from controller.session.session import Session, list_command
from controller.terminal.columns import Column, field


def _rule_text(group: Mapping[str, Any]) -> str:
    words = str(group["rule"]).replace("_", "-")
    return f"{words}, soft" if group["soft"] else words


def _hosts_text(group: Mapping[str, Any]) -> str:
    places = (name if vms == 1 else f"{name} ({vms})" for name, vms in group["hosts"].items())
    return ", ".join(places) or "-"


_COLUMNS = (
    field("name"),
    field("tenant"),
    Column("rule", _rule_text),
    Column("requests", lambda row: ", ".join(row["requests"])),
    field("vms", right=True),
    Column("hosts", _hosts_text),
)


@list_command
def vm_groups(
    session: Session,
    tenant: Annotated[str | None, typer.Option(help="Show only groups of this tenant")] = None,
) -> None:
    """List VM groups (affinity and anti-affinity) and the hosts of their VMs."""
    session.show(
        session.api.items("vm-groups", tenant=tenant),
        _COLUMNS,
        empty="no VM groups. Create one with `fuga request --affinity NAME` or `--anti-affinity`.",
    )
