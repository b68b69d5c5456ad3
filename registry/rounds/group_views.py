"""VM groups and spreads of requests as rounds and plans see them: which hosts have their VMs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, func, or_, select

from registry.db.bulk import chunks, is_any_of
from registry.db.schema import (
    assignments,
    hosts,
    is_arriving,
    request_groups,
    stands,
    tenants,
    vm_groups,
    vms,
)
from registry.lifecycle import HostAdmin
from registry.records.cluster import SpreadView, VmGroupView
from registry.records.requests import MembershipRule
from registry.requests.rules import rules_allow, rules_of, zone_of


def vm_group_views(
    connection: Connection, request_ids: Sequence[UUID], *, leaving: UUID | None = None
) -> tuple[VmGroupView, ...]:
    """Return the VM groups of requests, by creation, with the hosts of their VMs.

    One VM on the host ``leaving`` is not counted, as it moves away from there.
    """
    members: defaultdict[UUID, list[UUID]] = defaultdict(list)
    for some in chunks(request_ids):
        query = select(request_groups).where(
            is_any_of(connection, request_groups.c.request_id, some)
        )
        for row in connection.execute(query):
            members[row.group_id].append(row.request_id)
    places = count_group_vms_by_host(connection, members)
    if leaving is not None:
        for group_id in members:
            places[group_id] -= Counter([leaving])
    views = []
    for some in chunks(sorted(members)):
        rows = connection.execute(
            select(vm_groups)
            .where(is_any_of(connection, vm_groups.c.id, some))
            .order_by(vm_groups.c.id)
        )
        views += [
            VmGroupView(
                id=row.id,
                name=row.name,
                apart=row.apart,
                hard=row.hard,
                requests=tuple(sorted(members[row.id])),
                hosts=tuple(sorted(places[row.id])),
            )
            for row in rows
        ]
    return tuple(views)


def hosts_of_group(
    connection: Connection, tenant: str | None, rule: MembershipRule | None
) -> tuple[UUID, ...]:
    """Return the hosts on which VMs of a tenant's VM group hold capacity."""
    if tenant is None or rule is None:
        return ()
    group_ids = connection.scalars(
        select(vm_groups.c.id)
        .join(tenants, tenants.c.id == vm_groups.c.tenant_id)
        .where(tenants.c.name == tenant, vm_groups.c.name == rule.group)
    ).all()
    return tuple(
        sorted(
            {
                host
                for each in count_group_vms_by_host(connection, group_ids).values()
                for host in each
            }
        )
    )


def count_group_vms_by_host(
    connection: Connection, group_ids: Collection[UUID], *, of: Collection[UUID] | None = None
) -> defaultdict[UUID, Counter[UUID]]:
    """Return the number of VMs of each VM group by host; with ``of``, only of these VMs.

    VMs of anti-affinity groups count at both ends of a move, VMs of affinity groups only at the
    destination: a VM placed on the source would be left there alone.
    """
    moving = select(assignments.c.vm_id).where(is_arriving)
    found: defaultdict[UUID, Counter[UUID]] = defaultdict(Counter)
    for some in chunks(sorted(group_ids)):
        query = (
            select(request_groups.c.group_id, assignments.c.host_id, func.count().label("vms"))
            .select_from(request_groups)
            .join(vm_groups, vm_groups.c.id == request_groups.c.group_id)
            .join(vms, vms.c.request_id == request_groups.c.request_id)
            .join(assignments, assignments.c.vm_id == vms.c.id)
            .where(
                is_any_of(connection, request_groups.c.group_id, some),
                stands,
                or_(vm_groups.c.apart, is_arriving, vms.c.id.not_in(moving)),
            )
            .group_by(request_groups.c.group_id, assignments.c.host_id)
        )
        if of is not None:
            query = query.where(is_any_of(connection, vms.c.id, sorted(of)))
        for row in connection.execute(query):
            found[row.group_id][row.host_id] = row.vms
    return found


def spread_views(connection: Connection, rows: Sequence[Any]) -> Mapping[UUID, SpreadView]:
    """Return the VMs that each zone may hold and holds, for requests that are spread.

    ``rows`` are of `requests`. A zone counts even if none of its hosts takes VMs now: its VMs wait
    for it.
    """
    spread = [row for row in rows if row.spread is not None]
    if not spread:
        return {}
    known = connection.execute(
        select(hosts.c.id, hosts.c.name, hosts.c.labels, hosts.c.admin).order_by(hosts.c.name)
    ).all()
    zone_of_host = {row.id: zone_of(row.labels) for row in known}
    placed = _count_request_vms_by_host(connection, [row.id for row in spread])
    views = {}
    for row in spread:
        rules = rules_of(row, {})
        zones = sorted(
            {
                zone
                for host in known
                if (zone := zone_of_host[host.id]) is not None
                and host.admin != HostAdmin.RETIRED.value
                and rules_allow(rules, row.requires, row.hosts, host=host.name, labels=host.labels)
            }
        )
        in_zone: Counter[str] = Counter()
        for host_id, count in placed[row.id].items():
            zone = zone_of_host.get(host_id)
            if zone is not None:
                in_zone[zone] += count
        wanted = row._mapping["count"]
        views[row.id] = SpreadView(
            most=-(-wanted // len(zones)) if zones else 0,
            placed=tuple((zone, in_zone[zone]) for zone in zones),
        )
    return views


def _count_request_vms_by_host(
    connection: Connection, request_ids: Sequence[UUID]
) -> defaultdict[UUID, Counter[UUID]]:
    """Return the number of VMs of each request by host."""
    found: defaultdict[UUID, Counter[UUID]] = defaultdict(Counter)
    for some in chunks(request_ids):
        query = (
            select(vms.c.request_id, assignments.c.host_id, func.count().label("vms"))
            .join(assignments, assignments.c.vm_id == vms.c.id)
            .where(is_any_of(connection, vms.c.request_id, some), stands)
            .group_by(vms.c.request_id, assignments.c.host_id)
        )
        for row in connection.execute(query):
            found[row.request_id][row.host_id] = row.vms
    return found
