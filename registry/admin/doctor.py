"""Consistency checks of the register center, independent of the code that writes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Select, and_, case, func, or_, select

from registry.admin.clock_steps import current_step_ahead
from registry.admin.references import (
    OPEN,
    check_keys_enforced,
    live_reference_checks,
    reference_checks,
)
from registry.audit import changes
from registry.db.bulk import is_any_of
from registry.db.clock import db_now
from registry.db.schema import (
    assignment_resources,
    assignments,
    events,
    hosts,
    inventories,
    is_place,
    request_groups,
    requests,
    reservation_holds,
    reservations,
    resources,
    slot_loop,
    spot_preemptions,
    spot_room_holds,
    unreleased,
    vm_groups,
    vms,
    volumes,
)
from registry.hosts.validation import fence_target_key
from registry.ledger.request_progress import request_event, vm_tally_query
from registry.ledger.triggers import TRIGGERS
from registry.lifecycle import (
    FINISHED,
    REQUEST_TRANSITIONS,
    STANDING,
    VM_OBSERVED_TRANSITIONS,
    HostAdmin,
    RequestState,
    ReservationState,
    VmDesired,
    VmObserved,
)
from registry.networks.isolation import check_isolation
from registry.networks.overlaps import check_subnets
from registry.networks.stray_addresses import check_addresses
from registry.tenancy.reservation_use import IS_STANDING

#: kinds of events that are rows of a state machine
MACHINES: Final[Mapping[str, Mapping[Any, StrEnum]]] = {
    **{machine.kind: machine.table for machine in changes.MACHINES},
    "vm_missing": VM_OBSERVED_TRANSITIONS,
}
TRIGGERS_FOUND: Final = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger'",
    "postgresql": """
        SELECT tgname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
        WHERE NOT tgisinternal AND tgenabled IN ('O', 'A') AND pg_table_is_visible(pg_class.oid)
    """,
}
#: Rows of one page, few enough that the database looks each up by its key.
PAGE: Final = 500
EVENTS: Final = 50_000
#: Age at which due work counts as overdue: an active control centre handles it within seconds.
OVERDUE: Final = timedelta(minutes=15)

#: Opens a read-only transaction.
Reading = Callable[[], AbstractContextManager[Connection]]


def find_inconsistencies(reading: Reading, *, history: bool) -> Iterator[str]:
    """Check the register center, and yield a sentence for each inconsistency.

    Each check is a transaction of its own; checks of many rows use one transaction for each page.
    Without ``history`` deleted rows and older events are skipped, so the cost depends on living
    rows only.
    """
    for each in _WHOLE:
        yield from _run_check(reading, each)
    yield from _check_pages(reading, partial(_vms_query, history=history), _check_vms)
    yield from _check_pages(reading, partial(_requests_query, history=history), _check_requests)
    yield from _check_transitions(reading, history=history)
    with reading() as connection:
        dialect = connection.dialect.name
    more: Iterable[Callable[[Connection], Iterable[str]]]
    if history:
        more = reference_checks(dialect)
    else:
        more = (_check_deleted_vms, _check_finished_requests, *live_reference_checks(dialect))
    for each in more:
        yield from _run_check(reading, each)


def _run_check(reading: Reading, one_check: Callable[[Connection], Iterable[str]]) -> list[str]:
    """Run one of the doctor's checks in its own transaction and return its findings."""
    with reading() as connection:
        return list(one_check(connection))


def _check_pages(
    reading: Reading,
    keys_from: Callable[[UUID | None], Select[UUID]],
    one_check: Callable[[Connection, Sequence[UUID]], Iterable[str]],
) -> Iterator[str]:
    """Run one of the doctor's checks on pages of rows, each page in its own transaction."""
    after: UUID | None = None
    while True:
        with reading() as connection:
            some = connection.scalars(keys_from(after).limit(PAGE)).all()
            found = list(one_check(connection, some)) if some else []
        yield from found
        if len(some) < PAGE:
            return
        after = some[-1]


def _check_triggers(connection: Connection) -> Iterator[str]:
    """Check that the database has all triggers that guard the ledger."""
    dialect = connection.dialect.name
    found = set(connection.exec_driver_sql(TRIGGERS_FOUND[dialect]).scalars())
    for name in sorted(TRIGGERS[dialect].keys() - found):
        yield f"the trigger {name} is missing: the ledger is not guarded"


def _check_committed(connection: Connection) -> Iterator[str]:
    """Check that each host's committed amounts are the sums of its assignments and volumes."""
    of_volumes = (
        select(volumes.c.host_id, func.sum(volumes.c.size_gib).label("size_gib"))
        .where(volumes.c.host_id.is_not(None))
        .group_by(volumes.c.host_id)
        .subquery()
    )
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
    on_disk = case((inventories.c.resource == "disk_gib", of_volumes.c.size_gib))
    amount = func.coalesce(held.c.amount, 0) + func.coalesce(on_disk, 0)
    query = (
        select(
            hosts.c.name, inventories.c.resource, inventories.c.committed, amount.label("amount")
        )
        .select_from(inventories)
        .join(hosts, hosts.c.id == inventories.c.host_id)
        .outerjoin(
            held,
            and_(
                held.c.host_id == inventories.c.host_id, held.c.resource == inventories.c.resource
            ),
        )
        .outerjoin(of_volumes, of_volumes.c.host_id == inventories.c.host_id)
        .where(inventories.c.committed != amount)
        .order_by(hosts.c.name, inventories.c.resource)
    )
    for row in connection.execute(query):
        yield (
            f"host {row.name}: committed {row.resource} is {row.committed},"
            f" its assignments and volumes hold {row.amount}"
        )


def _check_inventories(connection: Connection) -> Iterator[str]:
    """Check that each host has an inventory of each resource."""
    query = (
        select(hosts.c.name, resources.c.name.label("resource"))
        .select_from(hosts)
        .join(resources, and_(True))
        .outerjoin(
            inventories,
            and_(inventories.c.host_id == hosts.c.id, inventories.c.resource == resources.c.name),
        )
        .where(inventories.c.host_id.is_(None))
        .order_by(hosts.c.name, resources.c.position)
    )
    for row in connection.execute(query):
        yield f"host {row.name} has no inventory of {row.resource}"


def _check_assignments(connection: Connection) -> Iterator[str]:
    """Check unreleased assignments: they hold amounts on hosts in use, one place per VM."""
    bare = (
        select(assignments.c.id)
        .outerjoin(assignment_resources, assignment_resources.c.assignment_id == assignments.c.id)
        .where(unreleased, assignment_resources.c.resource.is_(None))
    )
    for key in connection.scalars(bare):
        yield f"assignment {key} is not released and holds nothing"
    twice = (
        select(assignments.c.vm_id, func.count().label("number"))
        .where(is_place)
        .group_by(assignments.c.vm_id)
        .having(func.count() > 1)
    )
    for row in connection.execute(twice):
        yield f"VM {row.vm_id} has {row.number} places"
    homeless = (
        select(assignments.c.id, hosts.c.name)
        .select_from(assignments)
        .join(hosts, hosts.c.id == assignments.c.host_id)
        .where(unreleased, hosts.c.admin == HostAdmin.RETIRED.value)
    )
    for row in connection.execute(homeless):
        yield f"assignment {row.id} is not released and on the retired host {row.name}"


def _vms_query(after: UUID | None, *, history: bool) -> Select[UUID]:
    """Return a query for ids of VMs in order, from one id on; without ``history`` existing ones."""
    query = select(vms.c.id).order_by(vms.c.id)
    if not history:
        query = query.where(vms.c.deleted_at.is_(None))
    return query if after is None else query.where(vms.c.id > after)


def _check_vms(connection: Connection, vm_ids: Sequence[UUID]) -> Iterator[str]:
    """Check the states and generations of some VMs against their assignments."""
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
        .where(is_any_of(connection, vms.c.id, vm_ids))
        .group_by(vms.c.id)
        .order_by(vms.c.id)
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


def _check_deleted_vms(connection: Connection) -> Iterator[str]:
    """Check that deleted VMs hold no capacity, starting from held assignments."""
    query = (
        select(vms.c.id)
        .join(assignments, assignments.c.vm_id == vms.c.id)
        .where(unreleased, vms.c.deleted_at.is_not(None))
        .order_by(vms.c.id)
    )
    for key in connection.scalars(query):
        yield f"VM {key} is not gone, but deleted_at disagrees"


def _requests_query(after: UUID | None, *, history: bool) -> Select[UUID]:
    """Return a query for ids of requests in order, after one id; without ``history`` open ones."""
    query = select(requests.c.id).order_by(requests.c.id)
    if not history:
        query = query.where(requests.c.state.in_(OPEN))
    return query if after is None else query.where(requests.c.id > after)


def _check_requests(connection: Connection, request_ids: Sequence[UUID]) -> Iterator[str]:
    """Check the states of some requests against the states of their VMs."""
    these = select(requests.c.id, requests.c.name, requests.c.state).where(
        is_any_of(connection, requests.c.id, request_ids)
    )
    states = {row.id: row for row in connection.execute(these)}
    for row in connection.execute(
        vm_tally_query(is_any_of(connection, vms.c.request_id, request_ids))
    ):
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


def _check_finished_requests(connection: Connection) -> Iterator[str]:
    """Check that finished requests want no VMs, starting from existing VMs."""
    query = (
        select(requests.c.name, requests.c.id, requests.c.state, func.count().label("wanted"))
        .select_from(vms)
        # An outer one, and so written that it stays one: SQLite would begin with the requests.
        .outerjoin(requests, requests.c.id == vms.c.request_id)
        .where(
            vms.c.deleted_at.is_(None),
            vms.c.desired != VmDesired.DELETED.value,
            func.coalesce(requests.c.state, RequestState.PENDING.value).not_in(OPEN),
        )
        .group_by(requests.c.id)
        .order_by(requests.c.id)
    )
    for row in connection.execute(query):
        yield f"request {row.name} ({row.id}) is {row.state}, and {row.wanted} VMs are wanted"


def _check_groups(connection: Connection) -> Iterator[str]:
    """Check hard VM groups of open requests: one VM per host, or all VMs on one host."""
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
            vm_groups.c.hard, requests.c.state.not_in([state.value for state in FINISHED]), is_place
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


def _check_spot(connection: Connection) -> Iterator[str]:
    """Check announced ends of spot VMs and the room kept for requests; neither has foreign keys.

    An end is late if it was due well before the last decided slot. While no slot is decided, no
    end is late.
    """
    last = connection.scalar(select(slot_loop.c.last_slot_at))
    ends = (
        select(spot_preemptions.c.vm_id, spot_preemptions.c.ends_at, vms.c.id)
        .outerjoin(vms, vms.c.id == spot_preemptions.c.vm_id)
        .order_by(spot_preemptions.c.ends_at, spot_preemptions.c.vm_id)
    )
    for row in connection.execute(ends):
        if row.id is None:
            yield f"spot VM {row.vm_id} is to end, and is not found"
        elif last is not None and row.ends_at < last - OVERDUE:
            yield f"spot VM {row.vm_id} was to end at {row.ends_at:%Y-%m-%d %H:%M:%S} UTC"
    rooms = (
        select(
            spot_room_holds.c.request_id,
            spot_room_holds.c.host_id,
            spot_room_holds.c.until,
            requests.c.id.label("request"),
            hosts.c.name.label("host"),
        )
        .outerjoin(requests, requests.c.id == spot_room_holds.c.request_id)
        .outerjoin(hosts, hosts.c.id == spot_room_holds.c.host_id)
        .order_by(spot_room_holds.c.request_id, spot_room_holds.c.host_id)
    )
    for room in connection.execute(rooms):
        where = room.host or room.host_id
        if room.request is None:
            yield f"room is kept on host {where} for request {room.request_id}, which is not found"
        elif room.host is None:
            yield f"room is kept on host {where}, which is not found"
        elif last is not None and room.until < last - OVERDUE:
            yield (
                f"room is kept on host {where} for request {room.request_id} beyond its time,"
                f" {room.until:%Y-%m-%d %H:%M:%S} UTC"
            )


def _check_transitions(reading: Reading, *, history: bool) -> Iterator[str]:
    """Check changes of state on record against the tables of `lifecycle`, page by page."""
    with reading() as connection:
        newest = connection.scalar(select(func.max(events.c.id))) or 0
        first = connection.scalar(select(func.min(events.c.id))) or 1
    wrong: Counter[tuple[str, str, str | None, str]] = Counter()
    for start in range(first if history else max(first, newest - EVENTS + 1), newest + 1, EVENTS):
        with reading() as connection:
            for row in connection.execute(_transition_counts(start, start + EVENTS)):
                if MACHINES[row.kind].get((row.from_state, row.event)) != row.to_state:
                    wrong[row.kind, row.from_state, row.event, row.to_state] += row.number
    for (kind, before, event, after), number in wrong.items():
        yield (
            f"{number} events {kind} go from {before} by {event}"
            f" to {after}, the table says {MACHINES[kind].get((before, event))}"
        )


def _transition_counts(start: int, end: int) -> Select[Any]:
    """Return a query that counts recorded changes of state in a range of event ids."""
    how = (events.c.kind, events.c.from_state, events.c.event, events.c.to_state)
    return (
        select(*how, func.count().label("number"))
        .where(
            events.c.id >= start,
            events.c.id < end,
            events.c.kind.in_(list(MACHINES)),
            events.c.from_state.is_not(None),
        )
        .group_by(*how)
    )


def _check_reservations(connection: Connection) -> Iterator[str]:
    """Check reservations that are not over, and where room is kept for them."""
    now = db_now(connection)
    late = ends_late = now - OVERDUE
    step = current_step_ahead(connection)  # reservations end by the time without it
    if step is not None:
        ends_late -= timedelta(seconds=step.ahead_s)
    is_pending = reservations.c.state == ReservationState.PENDING.value
    begins = reservations.c.state == ReservationState.ACCEPTED.value
    for which, what in (
        (and_(is_pending, reservations.c.created_at < late), "is not decided"),
        (and_(begins, reservations.c.starts_at < late), "did not begin"),
        (and_(IS_STANDING, reservations.c.ends_at < ends_late), "did not end"),
    ):
        for name in connection.scalars(select(reservations.c.name).where(which)):
            yield f"reservation {name} {what}: does a control centre lead?"
    kept = (
        select(
            reservation_holds.c.reservation_id, func.sum(reservation_holds.c["count"]).label("kept")
        )
        .group_by(reservation_holds.c.reservation_id)
        .subquery()
    )
    query = (
        select(kept.c.reservation_id, kept.c.kept, reservations.c["count"], reservations.c.state)
        .select_from(kept)
        .outerjoin(reservations, reservations.c.id == kept.c.reservation_id)
    )
    standing = {state.value for state in STANDING}
    for key, number, count, state in connection.execute(query):
        if state not in standing:
            yield f"room is kept for reservation {key}, which is {state or 'not there'}"
        elif number > count:
            yield f"room for {number} VMs is kept for reservation {key} of {count}"
    gone = (
        select(reservation_holds.c.reservation_id, reservation_holds.c.host_id)
        .outerjoin(hosts, hosts.c.id == reservation_holds.c.host_id)
        .where(or_(hosts.c.id.is_(None), hosts.c.admin == HostAdmin.RETIRED.value))
    )
    for key, host in connection.execute(gone):
        yield f"room is kept for reservation {key} on host {host}, which is gone"


def _check_fence_targets(connection: Connection) -> Iterator[str]:
    """Yield a sentence for each fence target of several hosts, which earlier releases accepted."""
    target = fence_target_key(hosts.c.fence_target).label("target")
    query = (
        select(target, func.min(hosts.c.name), func.max(hosts.c.name))
        .where(hosts.c.fence_target.is_not(None), hosts.c.admin != HostAdmin.RETIRED.value)
        .group_by(target)
        .having(func.count() > 1)
        .order_by(target)
    )
    for found, one, other in connection.execute(query):
        yield f"hosts {one} and {other} have one fence target, {found}: neither is fenced"


#: Checks of live rows that need one or two statements.
_WHOLE: Final[Sequence[Callable[[Connection], Iterable[str]]]] = (
    _check_triggers,
    check_keys_enforced,
    _check_committed,
    _check_inventories,
    _check_assignments,
    _check_groups,
    _check_spot,
    check_addresses,
    check_isolation,
    check_subnets,
    _check_fence_targets,
    _check_reservations,
)
