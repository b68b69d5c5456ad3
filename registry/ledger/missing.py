"""VMs that are gone from a host which is up: lost until somebody has them built anew."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Row, update

from registry.ground.schema import assignments, vms
from registry.journal.events import assignment_row, record
from registry.lifecycle import (
    ASSIGNMENT_TRANSITIONS,
    AssignmentEvent,
    AssignmentState,
    VmDesired,
    next_state,
)
from registry.records.hosts import Host

#: A label of hosts: VMs that go missing there are built anew without asking.
REBUILD_LABEL: Final = "on_missing=rebuild"


def is_rebuilt(host: Host, row: Row[Any]) -> bool:
    """Tell whether a missing VM is built anew without asking."""
    return REBUILD_LABEL in host.labels and row.desired == VmDesired.RUNNING.value


def clear_missing(
    connection: Connection, host: Host, rows: Iterable[Row[Any]], *, now: datetime, actor: str
) -> None:
    """Have workers clear the places of missing VMs; proven absent, they are decided anew."""
    history = []
    reason = f"host {host.name} lost it; what was on its disk is lost"
    for row in rows:
        before, event = AssignmentState(row.state), AssignmentEvent.MISSING
        after = next_state(ASSIGNMENT_TRANSITIONS, before, event)
        connection.execute(
            update(assignments)
            .where(assignments.c.id == row.id)
            .values(state=after.value, last_error=reason, sent_at=None)
        )
        connection.execute(update(vms).where(vms.c.id == row.vm_id).values(last_error=reason))
        history.append(
            assignment_row(
                now,
                actor,
                row.id,
                vm_id=row.vm_id,
                tenant=row.tenant,
                change=(before, after),
                event=event,
                reason=reason,
                host=host.name,
            )
        )
    record(connection, history)
