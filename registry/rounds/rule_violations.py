"""Placements that would violate rules of VM groups and spreads, dropped under the groups' locks.

A round applies the rules to what it read. Before its commit another round or a move may place VMs
of the same group, so the commit checks the rules again; so does the creation of a move.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, select

from registry.db.bulk import chunks, is_any_of
from registry.db.schema import hosts, request_groups, requests, vm_groups
from registry.requests.rules import zone_of
from registry.rounds.group_views import count_group_vms_by_host, spread_views


def drop_rule_violations(
    connection: Connection,
    chosen: Sequence[tuple[Any, UUID]],
    *,
    leaving: Sequence[Collection[UUID]] = (),
    following: Collection[UUID] = (),
) -> tuple[list[tuple[Any, UUID]], Counter[tuple[UUID, UUID]]]:
    """Drop (VM, host) pairs that violate a hard rule; return the others, and counts of these.

    The groups and the VMs are locked. VMs that hold capacity count first, then the pairs, in their
    order. Dropped VMs are counted by request and host.

    ``leaving`` has the hosts on which each VM is not counted: the one that it leaves, and the one
    that holds room for it already. VMs that are ``following`` to the same host are not counted
    where they are now.
    """
    request_ids = sorted({vm.request_id for vm, _ in chosen})
    groups = _hard_groups(connection, request_ids)
    rows: list[Any] = []
    for some in chunks(request_ids):
        query = select(requests).where(
            is_any_of(connection, requests.c.id, some), requests.c.spread.is_not(None)
        )
        rows += connection.execute(query).all()
    if not groups and not rows:
        return list(chosen), Counter()
    places = count_group_vms_by_host(
        connection, {group for each in groups.values() for group, _ in each}
    )
    spreads = spread_views(connection, rows)
    zones = _zones_of_hosts(connection, {host for _, host in chosen}) if rows else {}
    in_zone = {key: dict(view.placed) for key, view in spreads.items()}
    for (vm, _), own in zip(chosen, leaving, strict=False):
        its_groups = [group for group, _ in groups.get(vm.request_id, ())]
        for group, there in count_group_vms_by_host(connection, its_groups, of=[vm.id]).items():
            places[group] -= there
        if vm.request_id in spreads:
            its = Counter(_zones_of_hosts(connection, own).values())
            counted = in_zone[vm.request_id].items()
            in_zone[vm.request_id] = {zone: count - its[zone] for zone, count in counted}
    if following:
        together = {group for each in groups.values() for group, apart in each if not apart}
        for group, there in count_group_vms_by_host(connection, together, of=following).items():
            places[group] -= there
    kept: list[tuple[Any, UUID]] = []
    dropped: Counter[tuple[UUID, UUID]] = Counter()
    for vm, host in chosen:
        request = vm.request_id
        fine = all(
            not places[group][host] if apart else not places[group] or host in places[group]
            for group, apart in groups.get(request, ())
        )
        zone = zones.get(host)
        if request in spreads:
            here = in_zone[request].get(zone) if zone is not None else None
            fine = fine and here is not None and here < spreads[request].most
        if not fine:
            dropped[request, host] += 1
            continue
        kept.append((vm, host))
        for group, _ in groups.get(request, ()):
            places[group][host] += 1
        if request in spreads and zone is not None:
            in_zone[request][zone] += 1
    return kept, dropped


def _hard_groups(
    connection: Connection, request_ids: Sequence[UUID]
) -> Mapping[UUID, list[tuple[UUID, bool]]]:
    """Return the hard VM groups of each request, and whether each keeps its VMs apart."""
    found: defaultdict[UUID, list[tuple[UUID, bool]]] = defaultdict(list)
    for some in chunks(request_ids):
        query = (
            select(request_groups.c.request_id, vm_groups.c.id, vm_groups.c.apart)
            .join(vm_groups, vm_groups.c.id == request_groups.c.group_id)
            .where(is_any_of(connection, request_groups.c.request_id, some), vm_groups.c.hard)
            .order_by(vm_groups.c.id)
        )
        for row in connection.execute(query):
            found[row.request_id].append((row.id, row.apart))
    return found


def _zones_of_hosts(
    connection: Connection, host_ids: Collection[UUID]
) -> Mapping[UUID, str | None]:
    """Return the zone of each host; None for a host without one."""
    found: dict[UUID, str | None] = {}
    for some in chunks(sorted(host_ids)):
        query = select(hosts.c.id, hosts.c.labels).where(is_any_of(connection, hosts.c.id, some))
        found |= {row.id: zone_of(row.labels) for row in connection.execute(query)}
    return found
