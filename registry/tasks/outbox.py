"""Resend due work: each row is a message until a worker completes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    Select,
    Subquery,
    and_,
    func,
    literal_column,
    or_,
    select,
    true,
    union_all,
)

from registry.consoles.session_rows import end_silent_sessions
from registry.db.row_leases import (
    ASSIGNMENTS,
    COPIES,
    FENCES,
    IMPORTS,
    LEFTOVERS,
    MOVES,
    POWER,
    VOLUMES,
    RowLease,
)
from registry.db.schema import (
    assignments,
    host_fences,
    hosts,
    image_copies,
    images,
    is_moving,
    is_vm_place,
    leftovers,
    power_actions,
    unreleased,
    vms,
    volumes,
)
from registry.images.holds import is_not_held
from registry.images.host_copies import lacks_image
from registry.ledger.fences import OPEN
from registry.ledger.placeable import ABSENT
from registry.lifecycle import (
    OPEN_MOVES,
    OUT_OF_REACH,
    WITH_DOMAIN,
    AssignmentState,
    CopyState,
    HostAdmin,
    HostHealth,
    ImageState,
)
from registry.records.work import Due
from registry.tasks.next_moves import waiting_moves
from registry.tasks.queues import (
    CHANGE_VOLUME,
    CREATE,
    DELETE,
    FENCE_HOST,
    IMPORT_IMAGE,
    MOVE_VM,
    QUEUE_OF,
    REMOVE_IMAGE,
    REMOVE_LEFTOVER,
    SWITCH_POWER,
    UPLOAD_IMAGE,
    WorkQueue,
)
from registry.tasks.volume_steps import WORK_STATES, is_vm_ready

_UNBUILT: Final = (AssignmentState.RESERVED.value, AssignmentState.CREATING.value)
#: A build goes on until its VM is seen to run.
_BUILDING: Final = (*_UNBUILT, AssignmentState.ACTIVE.value)
_REMOVING: Final = (
    AssignmentState.RELEASING.value,
    AssignmentState.QUARANTINED.value,
    AssignmentState.LEAVING.value,
)
#: Messages that may wait in a queue however little is in hand.
_ALWAYS: Final = 32
_OPEN_MOVES: Final = tuple(state.value for state in OPEN_MOVES)
_GOING: Final = (CopyState.REMOVING.value,)
_COMING: Final = (CopyState.ABSENT.value, CopyState.UPLOADING.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OutboxSweep:
    """The time of a sweep's read of due work, and the host to which it is restricted."""

    now: datetime
    stale: datetime  #: rows sent after this time are not sent again
    host_id: UUID | None = None  #: None: everywhere

    def on_reachable_hosts(
        self,
        query: Select[Any],
        table: Any,
        *,
        or_returning: bool = False,
        needs_pool: ColumnElement[bool] | None = None,
    ) -> Select[Any]:
        """Return the query of due rows restricted to hosts that workers can reach now."""
        within_reach: ColumnElement[bool] = hosts.c.health.not_in(OUT_OF_REACH)
        if needs_pool is not None:
            silent = hosts.c.pool_silent_since.is_not(None)
            within_reach = and_(within_reach, ~and_(silent, needs_pool))
        if or_returning:
            within_reach = or_(within_reach, hosts.c.returning_since.is_not(None))
        found = query.join(hosts, hosts.c.id == table.c.host_id).where(
            within_reach, hosts.c.admin != HostAdmin.RETIRED.value
        )
        return found if self.host_id is None else found.where(table.c.host_id == self.host_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TaskKind:
    """A kind of task, with the table whose rows need it."""

    task: str
    claims: RowLease
    waiting: Callable[[_OutboxSweep], Select[Any]]
    states: Sequence[str] = ()  #: of rows that ask for it, where the table has others' too
    anywhere: bool = False  #: their hosts take no part

    def send_due_rows(self, connection: Connection, limit: int, sweep: _OutboxSweep) -> list[Due]:
        """Return due tasks of this kind without a worker, and mark them as sent."""
        if self.anywhere and sweep.host_id is not None:
            return []
        query = self.waiting(sweep).where(self.claims.is_due(sweep.now, sweep.stale))
        keys = self.claims.mark_sent(connection, query, limit, now=sweep.now)
        return [Due(task=self.task, id=key) for key in keys]

    def count_claimed(self, connection: Connection, now: datetime) -> int:
        """Return the number of tasks of this kind that workers have claimed."""
        ours = self.claims.table.c.state.in_(self.states) if self.states else true()
        return self.claims.count_claimed(connection, ours, now)


def _fence_query(sweep: _OutboxSweep) -> Select[Any]:
    """Return the query for requested fencings of hosts that are down."""
    query = select(host_fences).join(hosts, hosts.c.id == host_fences.c.host_id)
    down = and_(hosts.c.health == HostHealth.DOWN.value, hosts.c.admin != HostAdmin.RETIRED.value)
    return query.where(host_fences.c.state.in_(OPEN), down)


def _power_query(sweep: _OutboxSweep) -> Select[Any]:
    """Return the query for pending power changes of VMs on reachable hosts."""
    # Looked up for each pending one: a join may begin with the places of all.
    held = assignments.alias()
    its_place = (
        select(held.c.id)
        .where(held.c.vm_id == power_actions.c.vm_id, is_vm_place(held))
        .correlate(power_actions)
        .scalar_subquery()
    )
    seen = select(vms.c.id).where(
        vms.c.id == power_actions.c.vm_id, vms.c.observed.in_(WITH_DOMAIN)
    )
    query = select(power_actions).select_from(
        power_actions.join(assignments, assignments.c.id == its_place)
    )
    return sweep.on_reachable_hosts(query, assignments).where(
        power_actions.c.due_at <= sweep.now,
        assignments.c.state == AssignmentState.ACTIVE.value,
        ASSIGNMENTS.is_unclaimed(sweep.now),
        seen.correlate(power_actions).exists(),
        ~is_moving(power_actions.c.vm_id),
    )


def _removal_query(sweep: _OutboxSweep) -> Select[Any]:
    """Return the query for assignments whose domain is to be removed or proven absent."""
    return sweep.on_reachable_hosts(select(assignments), assignments).where(
        unreleased, assignments.c.state.in_(_REMOVING)
    )


def _volume_query(sweep: _OutboxSweep) -> Select[Any]:
    """Return the query for volumes that a worker has to change on reachable hosts."""
    return sweep.on_reachable_hosts(select(volumes), volumes, needs_pool=true()).where(
        volumes.c.state.in_(WORK_STATES), volumes.c.due_at <= sweep.now, is_vm_ready(sweep.now)
    )


def _leftover_query(sweep: _OutboxSweep) -> Select[Any]:
    """Return the query for leftover domains and volumes on reachable hosts."""
    return sweep.on_reachable_hosts(
        select(leftovers), leftovers, or_returning=True, needs_pool=true()
    )


def _copy_removal_query(sweep: _OutboxSweep) -> Select[Any]:
    """Return the query for image copies to remove from reachable hosts."""
    return sweep.on_reachable_hosts(select(image_copies), image_copies, needs_pool=true()).where(
        image_copies.c.state.in_(_GOING)
    )


def _build_query(sweep: _OutboxSweep) -> Select[Any]:
    """Return the query for builds that have their image, and active VMs not yet observed.

    The latter still have to be resumed. No more builds are returned than each host has room for,
    as workers would refuse the others. Builds that have begun come first, as their time is
    limited.
    """
    unbuilt = assignments.c.state.in_(_UNBUILT)
    started = and_(assignments.c.state == AssignmentState.ACTIVE.value, ABSENT)
    reserved = assignments.c.state == AssignmentState.RESERVED.value
    nth = func.row_number().over(
        partition_by=assignments.c.host_id,
        order_by=(reserved, assignments.c.sent_at.nulls_first(), assignments.c.id),
    )
    busy = _builds_per_host(sweep)
    query = select(
        assignments.c.id,
        nth.label("nth"),
        (hosts.c.max_builds - func.coalesce(busy.c.builds, 0)).label("room"),
    ).join(vms, vms.c.id == assignments.c.vm_id)
    waiting = (
        sweep.on_reachable_hosts(query, assignments, needs_pool=unbuilt)
        .outerjoin(busy, busy.c.host_id == assignments.c.host_id)
        .where(
            assignments.c.id.in_(_unseen_assignments()),
            unreleased,
            or_(and_(unbuilt, ~lacks_image(assignments.c.host_id, vms.c.request_id)), started),
            ASSIGNMENTS.is_due(sweep.now, sweep.stale),
        )
        .subquery()
    )
    return (
        select(assignments)
        .join(waiting, waiting.c.id == assignments.c.id)
        .where(waiting.c.nth <= waiting.c.room)
        .order_by(reserved)
    )


def _unseen_assignments() -> CompoundSelect[Any]:
    """Return the assignments of VMs that are to be built, or were not observed since.

    The query avoids the many VMs that run. It finds unobserved VMs one by one, as a join could
    begin with the places of all VMs.
    """
    held = assignments.alias()
    query = select(held.c.id).where(held.c.state != literal_column("'released'"))
    active = held.c.state == AssignmentState.ACTIVE.value
    its_own = (
        query.where(held.c.vm_id == vms.c.id, active, is_vm_place(held))
        .correlate(vms)
        .scalar_subquery()
    )
    unseen = select(its_own).where(ABSENT, vms.c.generation > 0)
    return union_all(query.where(held.c.state.in_(_UNBUILT)), unseen)


def _builds_per_host(sweep: _OutboxSweep) -> Subquery:
    """Return the number of builds of each host that are claimed or were sent just now."""
    in_hand = and_(assignments.c.state.in_(_BUILDING), assignments.c.lease_until > sweep.now)
    on_its_way = and_(assignments.c.state.in_(_UNBUILT), assignments.c.sent_at > sweep.stale)
    query = select(assignments.c.host_id, func.count().label("builds")).where(
        unreleased, or_(in_hand, on_its_way)
    )
    return query.group_by(assignments.c.host_id).subquery()


def _move_query(sweep: _OutboxSweep) -> Select[Any]:
    """Return the query for moves that may begin or that a worker has to end."""
    return waiting_moves()


def _import_query(sweep: _OutboxSweep) -> Select[Any]:
    """Return the query for images to import."""
    return select(images).where(images.c.state == ImageState.IMPORTING.value)


def _upload_query(sweep: _OutboxSweep) -> Select[Any]:
    """Return the query for image copies to upload to reachable hosts."""
    return sweep.on_reachable_hosts(select(image_copies), image_copies, needs_pool=true()).where(
        image_copies.c.state.in_(_COMING), is_not_held(image_copies.c.image_id)
    )


_ALL: Final = (
    _TaskKind(task=FENCE_HOST, claims=FENCES, waiting=_fence_query, anywhere=True),
    _TaskKind(task=SWITCH_POWER, claims=POWER, waiting=_power_query),
    _TaskKind(task=CHANGE_VOLUME, claims=VOLUMES, waiting=_volume_query),
    _TaskKind(task=DELETE, claims=ASSIGNMENTS, waiting=_removal_query, states=_REMOVING),
    _TaskKind(task=REMOVE_LEFTOVER, claims=LEFTOVERS, waiting=_leftover_query),
    _TaskKind(task=REMOVE_IMAGE, claims=COPIES, waiting=_copy_removal_query, states=_GOING),
    _TaskKind(task=MOVE_VM, claims=MOVES, waiting=_move_query, states=_OPEN_MOVES, anywhere=True),
    _TaskKind(task=CREATE, claims=ASSIGNMENTS, waiting=_build_query, states=_BUILDING),
    _TaskKind(task=IMPORT_IMAGE, claims=IMPORTS, waiting=_import_query, anywhere=True),
    _TaskKind(task=UPLOAD_IMAGE, claims=COPIES, waiting=_upload_query, states=_COMING),
)
_KINDS: Final[Mapping[WorkQueue, tuple[_TaskKind, ...]]] = MappingProxyType(
    {queue: tuple(each for each in _ALL if QUEUE_OF[each.task] == queue) for queue in WorkQueue}
)


def send_due_tasks(
    connection: Connection,
    limit: int,
    resend_after_s: float,
    *,
    now: datetime,
    host_id: UUID | None = None,
    waiting: Mapping[WorkQueue, int] | None = None,
) -> tuple[Due, ...]:
    """Return due tasks of workers, and mark them as sent.

    Each queue gets at most ``limit`` tasks, the most urgent first, and no more than workers soon
    take in addition to those ``waiting`` there. Each kind of task has a share of its queue, and
    what the kinds before it left unused. Tasks sent less than ``resend_after_s`` ago are left out.
    Tasks that were never sent come first, then those sent longest ago.

    Tasks on hosts out of reach or retired are left out, except the cleaning of hosts that were
    down and answer again. ``host_id`` restricts the tasks to one host; without it, unused console
    sessions are ended too.
    """
    sweep = _OutboxSweep(now=now, stale=now - timedelta(seconds=resend_after_s), host_id=host_id)
    if host_id is None:
        end_silent_sessions(connection, now=now)
    found: list[Due] = []
    for queue, kinds in _KINDS.items():
        left = limit
        if waiting is not None:
            left = min(limit, _queue_room(connection, kinds, waiting.get(queue, 0), now))
        if left <= 0:
            continue
        for after, kind in zip(reversed(range(len(kinds))), kinds, strict=True):
            sent = kind.send_due_rows(connection, max(1, left // (after + 1)), sweep)
            left -= len(sent)
            found += sent
    return tuple(found)


def _queue_room(
    connection: Connection, kinds: Sequence[_TaskKind], waiting: int, now: datetime
) -> int:
    """Return how many messages may be added to a queue that has ``waiting`` messages.

    A queue has at most as many messages as workers hold claims, so that no message waits much
    longer than a task takes; otherwise it would be sent again. The queue is refilled when it is
    half empty.
    """
    max_waiting = max(_ALWAYS, sum(kind.count_claimed(connection, now) for kind in kinds))
    return 0 if waiting > max_waiting // 2 else max_waiting - waiting
