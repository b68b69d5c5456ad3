"""Volumes of VMs whose domains are gone: nobody has them any more."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, select, update

from registry.audit.changes import VOLUME
from registry.db.bulk import chunks, is_any_of
from registry.db.row_leases import VOLUMES
from registry.db.schema import tenants, volumes
from registry.lifecycle import VolumeEvent


def release_volumes(
    connection: Connection, assignment_ids: Collection[UUID], *, now: datetime, actor: str
) -> list[dict[str, Any]]:
    """Take volumes from assignments that are released; return the event rows.

    The volumes keep their files, and what they hold on their hosts.
    """
    history: list[dict[str, Any]] = []
    for some in chunks(sorted(assignment_ids)):
        query = (
            select(volumes, tenants.c.name.label("tenant"))
            .join(tenants, tenants.c.id == volumes.c.tenant_id)
            .where(is_any_of(connection, volumes.c.assignment_id, some))
            .order_by(volumes.c.id)
            .with_for_update(of=volumes, key_share=True)
        )
        for row in connection.execute(query).all():
            step = VOLUME.step(row.state, VolumeEvent.VM_GONE)
            values = {**VOLUMES.none, "vm_id": None, "assignment_id": None, "due_at": now}
            connection.execute(
                update(volumes)
                .where(volumes.c.id == row.id)
                .values(state=step.after.value, sent_at=None, attempts=0, **values)
            )
            data = {"name": row.name, "vm": str(row.vm_id)}
            history.append(step.row(now, actor, row.id, tenant=row.tenant, data=data))
    return history
