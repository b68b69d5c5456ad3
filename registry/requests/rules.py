"""Placement rules of requests: labels, zones, VM groups and spreads.

A request states its rules when it is made. `registry.rounds.group_views` has the VMs that count for
them, and `registry.rounds.rule_violations` checks placements against them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, func, insert, select, update

from registry.db.bulk import chunks, insert_if_absent, is_any_of
from registry.db.ids import uuid7
from registry.db.locks import lock_groups
from registry.db.names import check_labels, check_name
from registry.db.schema import request_groups, requests, vm_groups
from registry.errors import ConflictError, InvalidError
from registry.lifecycle import FINISHED
from registry.records.requests import MembershipRule, Rules

ZONE_LABEL: Final = "zone="
SPREADS: Final = ("zone",)
NO_RULES: Final = Rules()


def zone_of(labels: Iterable[str]) -> str | None:
    """Return the zone of a host: its label ``zone=NAME``, of several the first."""
    named = (label.removeprefix(ZONE_LABEL) for label in labels if label.startswith(ZONE_LABEL))
    return next(named, None)


def check_rules(rules: Rules, count: int) -> Rules:
    """Return a request's placement rules with labels in order, or raise `InvalidError`."""
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
    """Raise `InvalidError` where no host can ever satisfy two placement rules of one request."""
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
    """Make a request a member of the VM groups that its rules name; a new name makes a group."""
    for apart, rule in ((True, rules.anti_affinity), (False, rules.affinity)):
        if rule is not None:
            group_id = _lock_group(connection, tenant_id, rule, apart=apart, now=now)
            connection.execute(
                insert(request_groups).values(request_id=request_id, group_id=group_id)
            )


def _lock_group(
    connection: Connection, tenant_id: UUID, rule: MembershipRule, *, apart: bool, now: datetime
) -> UUID:
    """Lock and return a tenant's VM group by name; its members decide its kind."""
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
    """Return the name of a VM group's rule, such as ``soft anti-affinity``."""
    return f"{'' if hard else 'soft '}{'anti-affinity' if apart else 'affinity'}"


def memberships(
    connection: Connection, request_ids: Iterable[UUID]
) -> Mapping[UUID, Mapping[bool, MembershipRule]]:
    """Return the VM groups of requests as rules, keyed by whether the group keeps apart."""
    found: defaultdict[UUID, dict[bool, MembershipRule]] = defaultdict(dict)
    for some in chunks(sorted(set(request_ids))):
        query = (
            select(
                request_groups.c.request_id, vm_groups.c.name, vm_groups.c.apart, vm_groups.c.hard
            )
            .join(vm_groups, vm_groups.c.id == request_groups.c.group_id)
            .where(is_any_of(connection, request_groups.c.request_id, some))
        )
        for row in connection.execute(query):
            found[row.request_id][row.apart] = MembershipRule(group=row.name, soft=not row.hard)
    return found


def rules_of(row: Any, of_groups: Mapping[bool, MembershipRule]) -> Rules:
    """Return the placement rules of a request from its row and its VM groups."""
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
    """Return whether a request's placement rules allow a host, regardless of its VMs and health."""
    return (
        set(requires) <= set(labels)
        and not set(rules.forbids) & set(labels)
        and (rules.zone is None or f"{ZONE_LABEL}{rules.zone}" in labels)
        and (hosts_named is None or host in hosts_named)
        and (rules.spread is None or zone_of(labels) is not None)
    )


def lock_groups_of(connection: Connection, request_ids: Collection[UUID]) -> None:
    """Lock the VM groups of requests, so that no other transaction places VMs of them."""
    group_ids: set[UUID] = set()
    for some in chunks(sorted(request_ids)):
        group_ids.update(
            connection.scalars(
                select(request_groups.c.group_id).where(
                    is_any_of(connection, request_groups.c.request_id, some)
                )
            )
        )
    lock_groups(connection, group_ids)
