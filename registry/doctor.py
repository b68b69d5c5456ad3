"""Does the register center hold what it promises? Independent of the code that writes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import Connection, and_, func, select

from registry.lifecycle import (
    ASSIGNMENT_TRANSITIONS,
    FENCE_TRANSITIONS,
    FINISHED,
    HOST_ADMIN_TRANSITIONS,
    HOST_HEALTH_TRANSITIONS,
    POWER_TRANSITIONS,
    REQUEST_TRANSITIONS,
    SLOT_LOOP_TRANSITIONS,
    VM_DESIRED_TRANSITIONS,
    VM_OBSERVED_TRANSITIONS,
    HostAdmin,
    RequestState,
    VmDesired,
    VmObserved,
)
from registry.progress import request_event, tally
from registry.schema import (
    assignment_resources,
    assignments,
    events,
    hosts,
    inventories,
    metadata,
    request_groups,
    requests,
    resources,
    unreleased,
    vm_groups,
    vms,
)
from registry.stray_addresses import check_addresses

#: kinds of events that are rows of a state machine
MACHINES: Final[Mapping[str, Mapping[Any, StrEnum]]] = {
    "assignment_state": ASSIGNMENT_TRANSITIONS,
    "host_admin": HOST_ADMIN_TRANSITIONS,
    "host_fence": FENCE_TRANSITIONS,
    "host_health": HOST_HEALTH_TRANSITIONS,
    "request_state": REQUEST_TRANSITIONS,
    "vm_desired": VM_DESIRED_TRANSITIONS,
    "vm_observed": VM_OBSERVED_TRANSITIONS,
    "vm_missing": VM_OBSERVED_TRANSITIONS,
    "vm_power": POWER_TRANSITIONS,
    "slot_loop": SLOT_LOOP_TRANSITIONS,
}
#: the triggers that the ledger rests on
_TRIGGERS: Final = frozenset(
    {
        "ledger_commit",
        "ledger_release",
        "ledger_committed_is_the_sum",
        "ledger_committed_starts_as_the_sum",
        "ledger_inventory_stays",
        "ledger_inventory_is_kept",
        "ledger_inventory_outlives_amounts",
        "ledger_amounts_are_immutable",
        "ledger_amounts_are_kept",
        "ledger_released_is_final",
        "ledger_assignment_is_immutable",
        "ledger_assignment_is_kept",
        "ledger_assignment_outlives_amounts",
        "vm_type_is_immutable",
        "version_by_assignment",
        "version_by_capacity",
        "version_by_host",
        "version_only_rises",
    }
)
#: INSERT OR REPLACE is SQLite's, TRUNCATE and ids that are given early PostgreSQL's.
TRIGGERS: Final[Mapping[str, frozenset[str]]] = {
    "sqlite": _TRIGGERS | {"ledger_refuse_over_capacity", "ledger_one_assignment_per_vm"},
    "postgresql": _TRIGGERS
    | {
        "ledger_inventories_are_not_emptied",
        "ledger_assignments_are_not_emptied",
        "ledger_amounts_are_not_emptied",
        "events_hold_readers_back",
    },
}
TRIGGERS_FOUND: Final = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger'",
    "postgresql": """
        SELECT tgname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
        WHERE NOT tgisinternal AND tgenabled IN ('O', 'A') AND pg_table_is_visible(pg_class.oid)
    """,
}


def check(connection: Connection) -> list[str]:
    """Return what is wrong, a sentence each; empty when all is well."""
    return [
        *_triggers(connection),
        *_references(connection),
        *_committed(connection),
        *_inventories(connection),
        *_assignments(connection),
        *_vms(connection),
        *_requests(connection),
        *_groups(connection),
        *check_addresses(connection),
        *_transitions(connection),
    ]


def _triggers(connection: Connection) -> Iterator[str]:
    dialect = connection.dialect.name
    found = set(connection.exec_driver_sql(TRIGGERS_FOUND[dialect]).scalars())
    for name in sorted(TRIGGERS[dialect] - found):
        yield f"the trigger {name} is missing: the ledger is not guarded"


def _references(connection: Connection) -> Iterator[str]:
    if connection.dialect.name == "sqlite":
        for row in connection.exec_driver_sql("PRAGMA foreign_key_check"):
            yield f"table {row[0]}: row {row[1]} refers to a row of {row[2]} that does not exist"
        return
    for table in metadata.sorted_tables:
        for constraint in table.foreign_key_constraints:
            child = table.alias("child")
            parent = constraint.referred_table.alias("parent")
            pairs = [
                (child.c[key.parent.name], parent.c[key.column.name]) for key in constraint.elements
            ]
            orphans = (
                select(func.count())
                .select_from(child)
                .outerjoin(parent, and_(*(ours == theirs for ours, theirs in pairs)))
                .where(pairs[0][1].is_(None), *(ours.is_not(None) for ours, _ in pairs))
            )
            if number := connection.execute(orphans).scalar_one():
                yield (
                    f"table {table.name}: {number} rows refer to a row of"
                    f" {constraint.referred_table.name} that does not exist"
                )


def _committed(connection: Connection) -> Iterator[str]:
    held = (
        select(
            assignment_resources.c.host_id,
            assignment_resources.c.resource,
            func.sum(assignment_resources.c.amount).label("amount"),
        )
        .select_from(assignment_resources)
        .join(assignments, assignments.c.id == assignment_resources.c.assignment_id)
        .where(unreleased)
        .group_by(assignment_resources.c.host_id, assignment_resources.c.resource)
        .subquery()
    )
    query = (
        select(hosts.c.name, inventories.c.resource, inventories.c.committed, held.c.amount)
        .select_from(inventories)
        .join(hosts, hosts.c.id == inventories.c.host_id)
        .outerjoin(
            held,
            and_(
                held.c.host_id == inventories.c.host_id,
                held.c.resource == inventories.c.resource,
            ),
        )
        .where(inventories.c.committed != func.coalesce(held.c.amount, 0))
        .order_by(hosts.c.name, inventories.c.resource)
    )
    for row in connection.execute(query):
        yield (
            f"host {row.name}: committed {row.resource} is {row.committed},"
            f" its assignments hold {row.amount or 0}"
        )


def _inventories(connection: Connection) -> Iterator[str]:
    query = (
        select(hosts.c.name, resources.c.name.label("resource"))
        .select_from(hosts)
        .join(resources, and_(True))
        .outerjoin(
            inventories,
            and_(
                inventories.c.host_id == hosts.c.id,
                inventories.c.resource == resources.c.name,
            ),
        )
        .where(inventories.c.host_id.is_(None))
        .order_by(hosts.c.name, resources.c.position)
    )
    for row in connection.execute(query):
        yield f"host {row.name} has no inventory of {row.resource}"


def _assignments(connection: Connection) -> Iterator[str]:
    bare = (
        select(assignments.c.id)
        .outerjoin(assignment_resources, assignment_resources.c.assignment_id == assignments.c.id)
        .where(unreleased, assignment_resources.c.resource.is_(None))
    )
    for key in connection.scalars(bare):
        yield f"assignment {key} is not released and holds nothing"
    twice = (
        select(assignments.c.vm_id, func.count().label("number"))
        .where(unreleased)
        .group_by(assignments.c.vm_id)
        .having(func.count() > 1)
    )
    for row in connection.execute(twice):
        yield f"VM {row.vm_id} has {row.number} assignments that are not released"
    homeless = (
        select(assignments.c.id, hosts.c.name)
        .select_from(assignments)
        .join(hosts, hosts.c.id == assignments.c.host_id)
        .where(unreleased, hosts.c.admin == HostAdmin.RETIRED.value)
    )
    for row in connection.execute(homeless):
        yield f"assignment {row.id} is not released and on the retired host {row.name}"


def _vms(connection: Connection) -> Iterator[str]:
    query = (
        select(
            vms.c.id,
            vms.c.desired,
            vms.c.observed,
            vms.c.deleted_at,
            vms.c.generation,
            func.count(assignments.c.id).label("attempts"),
            func.max(assignments.c.generation).label("latest"),
            func.count(assignments.c.id).filter(unreleased).label("held"),
        )
        .select_from(vms)
        .outerjoin(assignments, assignments.c.vm_id == vms.c.id)
        .group_by(vms.c.id)
    )
    for row in connection.execute(query):
        purged = row.deleted_at is not None and not row.attempts
        if row.generation != (row.latest or 0) and not purged:
            yield f"VM {row.id} is of generation {row.generation}, its latest is {row.latest}"
        gone = row.desired == VmDesired.DELETED.value and not row.held
        if gone != (row.deleted_at is not None):
            yield f"VM {row.id} is {'' if gone else 'not '}gone, but deleted_at disagrees"
        if not row.held and row.observed != VmObserved.ABSENT.value:
            yield f"VM {row.id} is {row.observed}, but no assignment holds a place for it"


def _requests(connection: Connection) -> Iterator[str]:
    states = {
        row.id: row
        for row in connection.execute(select(requests.c.id, requests.c.name, requests.c.state))
    }
    for row in connection.execute(tally()):
        found = states.pop(row.request_id)
        event = request_event(row)
        if event is None:
            continue
        state = RequestState(found.state)
        after = REQUEST_TRANSITIONS.get((state, event))
        is_final = not any(before == state for before, _ in REQUEST_TRANSITIONS)
        if after != state and not (is_final and row.wanted == 0):
            yield f"request {found.name} ({row.request_id}) is {state}, its VMs say {event}"
    for key, found in states.items():
        yield f"request {found.name} ({key}) has no VMs"


def _groups(connection: Connection) -> Iterator[str]:
    """Hard groups of requests that live: one VM on a host, or all VMs on one."""
    held = (
        select(
            vm_groups.c.name,
            vm_groups.c.apart,
            vm_groups.c.id,
            assignments.c.host_id,
            func.count().label("vms"),
        )
        .select_from(vm_groups)
        .join(request_groups, request_groups.c.group_id == vm_groups.c.id)
        .join(requests, requests.c.id == request_groups.c.request_id)
        .join(vms, vms.c.request_id == requests.c.id)
        .join(assignments, assignments.c.vm_id == vms.c.id)
        .where(
            vm_groups.c.hard,
            requests.c.state.not_in([state.value for state in FINISHED]),
            unreleased,
        )
        .group_by(vm_groups.c.id, assignments.c.host_id)
        .order_by(vm_groups.c.id, assignments.c.host_id)
    )
    on_hosts: Counter[Any] = Counter()
    for row in connection.execute(held):
        on_hosts[row.id] += 1
        if row.apart and row.vms > 1:
            yield f"group {row.name} keeps apart, host {row.host_id} holds {row.vms} VMs of it"
        if not row.apart and on_hosts[row.id] == 2:
            yield f"group {row.name} keeps together and is on several hosts"


def _transitions(connection: Connection) -> Iterator[str]:
    """Check every change of state on record against the tables of `lifecycle`."""
    query = (
        select(
            events.c.kind,
            events.c.from_state,
            events.c.event,
            events.c.to_state,
            func.count().label("number"),
        )
        .where(events.c.kind.in_(list(MACHINES)), events.c.from_state.is_not(None))
        .group_by(events.c.kind, events.c.from_state, events.c.event, events.c.to_state)
    )
    for row in connection.execute(query):
        expected = MACHINES[row.kind].get((row.from_state, row.event))
        if expected != row.to_state:
            yield (
                f"{row.number} events {row.kind} go from {row.from_state} by {row.event}"
                f" to {row.to_state}, the table says {expected}"
            )
