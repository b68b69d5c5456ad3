"""Placement rules of requests: labels, zones, VM groups and spreads.

A round keeps these rules by what it read. Between its read and its commit another
may have placed VMs of the same group, so the commit looks again, under the lock of
the group (`without_violations`); what does not hold any more is decided again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, func, insert, or_, select, update

from registry.db.bulk import among, chunks, insert_if_absent
from registry.db.ids import uuid7
from registry.db.locks import lock_groups
from registry.db.names import check_labels, check_name
from registry.db.schema import (
    assignments,
    hosts,
    is_arriving,
    request_groups,
    requests,
    stands,
    tenants,
    vm_groups,
    vms,
)
from registry.errors import ConflictError, InvalidError
from registry.lifecycle import FINISHED, HostAdmin
from registry.records.requests import MembershipRule, Rules
from registry.records.rounds import SpreadView, VmGroupView

ZONE_LABEL: Final = "zone="
SPREADS: Final = ("zone",)
NO_RULES: Final = Rules()


def zone_of(labels: Iterable[str]) -> str | None:
    """Return the zone of a host: its label ``zone=NAME``, of several the first."""
    named = (label.removeprefix(ZONE_LABEL) for label in labels if label.startswith(ZONE_LABEL))
    return next(named, None)


def check_rules(rules: Rules, count: int) -> Rules:
    """Return the rules with labels in order, or raise `InvalidError`."""
    if rules.zone is not None:
        check_labels("rules.zone", [f"{ZONE_LABEL}{rules.zone}"])
    for field, rule in (("anti_affinity", rules.anti_affinity), ("affinity", rules.affinity)):
        if rule is not None:
            check_name(f"rules.{field}.group", rule.group)
    if rules.spread is not None and rules.spread not in SPREADS:
        raise InvalidError("rules.spread", rules.spread, f"one of {', '.join(SPREADS)}")
    hard_together = rules.affinity is not None and not rules.affinity.soft
    hard_apart = rules.anti_affinity is not None and not rules.anti_affinity.soft
    if hard_together and hard_apart and count > 1:
        raise InvalidError(
            "rules.affinity",
            "with anti_affinity",
            "one of both, or a soft one, for more than one VM",
        )
    if hard_together and rules.spread is not None:
        raise InvalidError("rules.spread", rules.spread, "nothing with affinity, which is one host")
    if rules.spread is not None and rules.zone is not None:
        raise InvalidError("rules.spread", rules.spread, "nothing with zone, which is a single one")
    if (
        rules.affinity is not None
        and rules.anti_affinity is not None
        and rules.affinity.group == rules.anti_affinity.group
    ):
        raise InvalidError(
            "rules.affinity.group", rules.affinity.group, "another than anti_affinity's"
        )
    return Rules(
        forbids=check_labels("rules.forbids", rules.forbids),
        prefers=check_labels("rules.prefers", rules.prefers),
        zone=rules.zone,
        anti_affinity=rules.anti_affinity,
        affinity=rules.affinity,
        spread=rules.spread,
    )


def check_combination(rules: Rules, requires: Sequence[str]) -> None:
    """Raise `InvalidError` where no host can ever satisfy two rules of one request."""
    if both := set(requires) & set(rules.forbids):
        label = min(both)
        raise InvalidError("rules.forbids", label, "a label that is not required as well")
    if both := set(rules.prefers) & set(rules.forbids):
        raise InvalidError("rules.prefers", min(both), "a label that is not forbidden as well")
    zones = {label for label in requires if label.startswith(ZONE_LABEL)}
    if rules.zone is not None:
        zones.add(f"{ZONE_LABEL}{rules.zone}")
        if zones & set(rules.forbids):
            raise InvalidError("rules.zone", rules.zone, "a zone whose label is not forbidden")
    if len(zones) > 1:
        raise InvalidError("requires", ", ".join(sorted(zones)), "one zone: a host has one")
    if zones and rules.spread is not None:
        allowed = "nothing with a required zone, which is a single one"
        raise InvalidError("rules.spread", rules.spread, allowed)


def check_hosts_suffice(rules: Rules, hosts: Sequence[str] | None, count: int) -> None:
    """Raise `InvalidError` if VMs that keep apart outnumber the only hosts they may have."""
    apart = rules.anti_affinity
    if hosts is None or apart is None or apart.soft:
        return
    if count > (most := len(set(hosts))):
        allowed = f"at most {most}: the VMs keep apart and may be on {most} hosts alone"
        raise InvalidError("count", count, allowed)


def join_groups(
    connection: Connection, tenant_id: UUID, request_id: UUID, rules: Rules, now: datetime
) -> None:
    """Make a request a member of the groups that its rules name; a new name makes a group."""
    for apart, rule in ((True, rules.anti_affinity), (False, rules.affinity)):
        if rule is not None:
            group_id = _lock_group(connection, tenant_id, rule, apart=apart, now=now)
            connection.execute(
                insert(request_groups).values(request_id=request_id, group_id=group_id)
            )


def _lock_group(
    connection: Connection, tenant_id: UUID, rule: MembershipRule, *, apart: bool, now: datetime
) -> UUID:
    """Lock and return the tenant's group with a name; its members decide its kind."""
    insert_if_absent(
        connection,
        vm_groups,
        id=uuid7(),
        tenant_id=tenant_id,
        name=rule.group,
        apart=apart,
        hard=not rule.soft,
        created_at=now,
    )
    found = connection.execute(
        select(vm_groups)
        .where(vm_groups.c.tenant_id == tenant_id, vm_groups.c.name == rule.group)
        .with_for_update()
    ).one()
    group_id: UUID = found.id
    if (found.apart, found.hard) == (apart, not rule.soft):
        return group_id
    in_use = connection.scalar(
        select(func.count())
        .select_from(request_groups)
        .join(requests, requests.c.id == request_groups.c.request_id)
        .where(
            request_groups.c.group_id == group_id,
            requests.c.state.not_in([state.value for state in FINISHED]),
        )
    )
    if in_use:
        raise ConflictError(
            f"group {rule.group} is one of {_rule_name(found.apart, found.hard)}, requested is "
            f"{_rule_name(apart, not rule.soft)}: use that, or another name"
        )
    connection.execute(
        update(vm_groups).where(vm_groups.c.id == group_id).values(apart=apart, hard=not rule.soft)
    )
    return group_id


def _rule_name(apart: bool, hard: bool) -> str:
    return f"{'' if hard else 'soft '}{'anti-affinity' if apart else 'affinity'}"


def memberships(
    connection: Connection, request_ids: Iterable[UUID]
) -> Mapping[UUID, Mapping[bool, MembershipRule]]:
    """Return the group rules of requests, keyed by whether the group keeps apart."""
    found: defaultdict[UUID, dict[bool, MembershipRule]] = defaultdict(dict)
    for some in chunks(sorted(set(request_ids))):
        query = (
            select(
                request_groups.c.request_id, vm_groups.c.name, vm_groups.c.apart, vm_groups.c.hard
            )
            .join(vm_groups, vm_groups.c.id == request_groups.c.group_id)
            .where(among(connection, request_groups.c.request_id, some))
        )
        for row in connection.execute(query):
            found[row.request_id][row.apart] = MembershipRule(group=row.name, soft=not row.hard)
    return found


def rules_of(row: Any, of_groups: Mapping[bool, MembershipRule]) -> Rules:
    """Return the rules of a request from its row and its groups."""
    return Rules(
        forbids=tuple(row.forbids),
        prefers=tuple(row.prefers),
        zone=row.zone,
        anti_affinity=of_groups.get(True),
        affinity=of_groups.get(False),
        spread=row.spread,
    )


def rules_allow(
    rules: Rules,
    requires: Collection[str],
    hosts_named: Collection[str] | None,
    *,
    host: str,
    labels: Collection[str],
) -> bool:
    """Return whether the rules allow a host, regardless of its VMs and its health."""
    return (
        set(requires) <= set(labels)
        and not set(rules.forbids) & set(labels)
        and (rules.zone is None or f"{ZONE_LABEL}{rules.zone}" in labels)
        and (hosts_named is None or host in hosts_named)
        and (rules.spread is None or zone_of(labels) is not None)
    )


def vm_group_views(
    connection: Connection, request_ids: Sequence[UUID], *, leaving: UUID | None = None
) -> tuple[VmGroupView, ...]:
    """Return the VM groups of requests, by creation, with the hosts of their VMs.

    ``leaving`` is a host that one VM of them leaves: there it does not count.
    """
    members: defaultdict[UUID, list[UUID]] = defaultdict(list)
    for some in chunks(request_ids):
        query = select(request_groups).where(among(connection, request_groups.c.request_id, some))
        for row in connection.execute(query):
            members[row.group_id].append(row.request_id)
    places = _group_places(connection, members)
    if leaving is not None:
        for group_id in members:
            places[group_id] -= Counter([leaving])
    views = []
    for some in chunks(sorted(members)):
        rows = connection.execute(
            select(vm_groups)
            .where(among(connection, vm_groups.c.id, some))
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
    """Return the hosts on which VMs of a tenant's group hold capacity."""
    if tenant is None or rule is None:
        return ()
    group_ids = connection.scalars(
        select(vm_groups.c.id)
        .join(tenants, tenants.c.id == vm_groups.c.tenant_id)
        .where(tenants.c.name == tenant, vm_groups.c.name == rule.group)
    ).all()
    return tuple(
        sorted({host for each in _group_places(connection, group_ids).values() for host in each})
    )


def _group_places(
    connection: Connection, group_ids: Collection[UUID], *, of: Collection[UUID] | None = None
) -> defaultdict[UUID, Counter[UUID]]:
    """Return the number of VMs of each group by host; with ``of``, only of these VMs.

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
                among(connection, request_groups.c.group_id, some),
                stands,
                or_(vm_groups.c.apart, is_arriving, vms.c.id.not_in(moving)),
            )
            .group_by(request_groups.c.group_id, assignments.c.host_id)
        )
        if of is not None:
            query = query.where(among(connection, vms.c.id, sorted(of)))
        for row in connection.execute(query):
            found[row.group_id][row.host_id] = row.vms
    return found


def spread_views(connection: Connection, rows: Sequence[Any]) -> Mapping[UUID, SpreadView]:
    """Return the VMs that each zone may hold and holds, for requests that are spread.

    ``rows`` are of `requests`. A zone counts whether its hosts take VMs now or not:
    the part of a zone that is down waits for it.
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
    found: defaultdict[UUID, Counter[UUID]] = defaultdict(Counter)
    for some in chunks(request_ids):
        query = (
            select(vms.c.request_id, assignments.c.host_id, func.count().label("vms"))
            .join(assignments, assignments.c.vm_id == vms.c.id)
            .where(among(connection, vms.c.request_id, some), stands)
            .group_by(vms.c.request_id, assignments.c.host_id)
        )
        for row in connection.execute(query):
            found[row.request_id][row.host_id] = row.vms
    return found


# ---- commits ----------------------------------------------------------------


def lock_groups_of(connection: Connection, request_ids: Collection[UUID]) -> None:
    """Lock the VM groups of requests, so that no other transaction places VMs of them."""
    group_ids: set[UUID] = set()
    for some in chunks(sorted(request_ids)):
        group_ids.update(
            connection.scalars(
                select(request_groups.c.group_id).where(
                    among(connection, request_groups.c.request_id, some)
                )
            )
        )
    lock_groups(connection, group_ids)


def without_violations(
    connection: Connection,
    chosen: Sequence[tuple[Any, UUID]],
    *,
    leaving: Sequence[Collection[UUID]] = (),
    following: Collection[UUID] = (),
) -> tuple[list[tuple[Any, UUID]], Counter[tuple[UUID, UUID]]]:
    """Return the (VM, host) pairs that keep every hard rule, and counts of the others.

    ``leaving`` are the hosts of each VM on which it does not count: the one that it leaves, and
    the one where room is held for it already. VMs that are ``following`` to the same host do not
    keep their groups where they are now.

    The groups and the VMs are locked. What holds capacity now counts, then pair
    after pair as they stand; of the others the VMs of each request and host are
    counted.
    """
    request_ids = sorted({vm.request_id for vm, _ in chosen})
    groups = _hard_groups(connection, request_ids)
    rows: list[Any] = []
    for some in chunks(request_ids):
        query = select(requests).where(
            among(connection, requests.c.id, some), requests.c.spread.is_not(None)
        )
        rows += connection.execute(query).all()
    if not groups and not rows:
        return list(chosen), Counter()
    places = _group_places(connection, {group for each in groups.values() for group, _ in each})
    spreads = spread_views(connection, rows)
    zones = _zones_of_hosts(connection, {host for _, host in chosen}) if rows else {}
    in_zone = {key: dict(view.placed) for key, view in spreads.items()}
    for (vm, _), own in zip(chosen, leaving, strict=False):
        its_groups = [group for group, _ in groups.get(vm.request_id, ())]
        for group, there in _group_places(connection, its_groups, of=[vm.id]).items():
            places[group] -= there
        if vm.request_id in spreads:
            its = Counter(_zones_of_hosts(connection, own).values())
            counted = in_zone[vm.request_id].items()
            in_zone[vm.request_id] = {zone: count - its[zone] for zone, count in counted}
    if following:
        together = {group for each in groups.values() for group, apart in each if not apart}
        for group, there in _group_places(connection, together, of=following).items():
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
    found: defaultdict[UUID, list[tuple[UUID, bool]]] = defaultdict(list)
    for some in chunks(request_ids):
        query = (
            select(request_groups.c.request_id, vm_groups.c.id, vm_groups.c.apart)
            .join(vm_groups, vm_groups.c.id == request_groups.c.group_id)
            .where(among(connection, request_groups.c.request_id, some), vm_groups.c.hard)
            .order_by(vm_groups.c.id)
        )
        for row in connection.execute(query):
            found[row.request_id].append((row.id, row.apart))
    return found


def _zones_of_hosts(
    connection: Connection, host_ids: Collection[UUID]
) -> Mapping[UUID, str | None]:
    found: dict[UUID, str | None] = {}
    for some in chunks(sorted(host_ids)):
        query = select(hosts.c.id, hosts.c.labels).where(among(connection, hosts.c.id, some))
        found |= {row.id: zone_of(row.labels) for row in connection.execute(query)}
    return found
