"""What borrowed VMs hold, by tenant: for metrics and `fuga status`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, func, select

from registry.db.schema import (
    assignment_resources,
    assignments,
    spot_preemptions,
    tenants,
    unreleased,
    vms,
)

#: As `ix_vms_id_borrowed` has it.
_LIVE: Final = (vms.c.borrowed, vms.c.deleted_at.is_(None))


@dataclass(frozen=True, slots=True, kw_only=True)
class BorrowedTotals:
    """The borrowed VMs of a tenant."""

    tenant: str
    vms: int
    ending: int  #: of these, VMs whose end is announced
    first_end_at: datetime | None  #: the first announced end
    amounts: Mapping[str, int]  #: by resource, what their assignments hold


def read_borrowed_totals(connection: Connection) -> tuple[BorrowedTotals, ...]:
    """Return the totals of each tenant that has borrowed VMs, by name."""
    count = (
        select(
            tenants.c.name,
            func.count().label("vms"),
            func.count(spot_preemptions.c.vm_id).label("ending"),
            func.min(spot_preemptions.c.ends_at).label("first_end_at"),
        )
        .select_from(vms)
        .join(tenants, tenants.c.id == vms.c.tenant_id)
        .outerjoin(spot_preemptions, spot_preemptions.c.vm_id == vms.c.id)
        .where(*_LIVE)
        .group_by(tenants.c.name)
        .order_by(tenants.c.name)
    )
    found = connection.execute(count).all()
    amounts: defaultdict[str, dict[str, int]] = defaultdict(dict)
    if found:
        resource = assignment_resources.c.resource
        held = (
            select(tenants.c.name, resource, func.sum(assignment_resources.c.amount).label("held"))
            .select_from(vms)
            .join(tenants, tenants.c.id == vms.c.tenant_id)
            .join(assignments, assignments.c.vm_id == vms.c.id)
            .join(assignment_resources, assignment_resources.c.assignment_id == assignments.c.id)
            .where(*_LIVE, unreleased)
            .group_by(tenants.c.name, resource)
        )
        for row in connection.execute(held):
            amounts[row.name][row.resource] = int(row.held)
    return tuple(
        BorrowedTotals(
            tenant=row.name,
            vms=row.vms,
            ending=row.ending,
            first_end_at=row.first_end_at,
            amounts=amounts[row.name],
        )
        for row in found
    )
