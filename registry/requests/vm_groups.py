"""The tenants' view of VM groups, whose VMs keep apart or together."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy import Connection, and_, func, select

from registry.db.bulk import chunks
from registry.db.engine import Database
from registry.db.pages import DEFAULT_LIMIT, Page, check_limit, cursor_uuid, page_of
from registry.db.row_conversion import record_of
from registry.db.schema import (
    assignments,
    hosts,
    is_place,
    request_groups,
    requests,
    tenants,
    vm_groups,
    vms,
)
from registry.lifecycle import FINISHED, VmDesired
from registry.records.requests import VmGroup

_LIVE = requests.c.state.not_in([state.value for state in FINISHED])


@dataclass(slots=True)
class _GroupMembers:
    """The open requests and VMs of a VM group, and on which hosts the VMs are."""

    requests: list[str] = field(default_factory=list)
    wanted: int = 0
    hosts: Counter[str] = field(default_factory=Counter)


class VmGroups:
    """Reads VM groups, which the rules of requests create."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def list(
        self, *, tenant: str | None = None, limit: int = DEFAULT_LIMIT, cursor: str | None = None
    ) -> Page[VmGroup]:
        """Return a page of VM groups with a request that is not over, oldest first."""
        members = (
            select(request_groups.c.group_id)
            .join(requests, requests.c.id == request_groups.c.request_id)
            .where(_LIVE)
        )
        query = (
            select(vm_groups, tenants.c.name.label("tenant"))
            .join(tenants, tenants.c.id == vm_groups.c.tenant_id)
            .where(vm_groups.c.id.in_(members))
            .order_by(vm_groups.c.id)
            .limit(check_limit(limit) + 1)
        )
        if tenant is not None:
            query = query.where(tenants.c.name == tenant)
        if cursor is not None:
            query = query.where(vm_groups.c.id > cursor_uuid(cursor))
        with self._database.read() as connection:
            rows = connection.execute(query).all()
            found = _read_group_members(connection, (row.id for row in rows))
        groups = [
            record_of(
                VmGroup,
                row,
                rule="anti_affinity" if row.apart else "affinity",
                soft=not row.hard,
                requests=tuple(found[row.id].requests),
                vms=found[row.id].wanted,
                hosts=dict(sorted(found[row.id].hosts.items())),
            )
            for row in rows
        ]
        return page_of(groups, limit, lambda group: (group.id.hex,))


def _read_group_members(
    connection: Connection, keys: Iterable[UUID]
) -> defaultdict[UUID, _GroupMembers]:
    """Return the open requests, VMs and hosts of VM groups, by group."""
    found: defaultdict[UUID, _GroupMembers] = defaultdict(_GroupMembers)
    for some in chunks(sorted(keys)):
        of_some = request_groups.c.group_id.in_(some)
        open_requests = (
            select(request_groups.c.group_id, requests.c.name)
            .join(requests, requests.c.id == request_groups.c.request_id)
            .where(of_some, _LIVE)
            .order_by(requests.c.id)
        )
        for row in connection.execute(open_requests):
            found[row.group_id].requests.append(row.name)
        counted = (
            select(request_groups.c.group_id, hosts.c.name, func.count(vms.c.id).label("vms"))
            .join(vms, vms.c.request_id == request_groups.c.request_id)
            .outerjoin(assignments, and_(assignments.c.vm_id == vms.c.id, is_place))
            .outerjoin(hosts, hosts.c.id == assignments.c.host_id)
            .where(of_some, vms.c.desired != VmDesired.DELETED.value)
            .group_by(request_groups.c.group_id, hosts.c.name)
        )
        for row in connection.execute(counted):
            found[row.group_id].wanted += row.vms
            if row.name is not None:
                found[row.group_id].hosts[row.name] = row.vms
    return found
