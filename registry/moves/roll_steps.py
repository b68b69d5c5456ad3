"""The steps of a roll's hosts, which follow from the driver's reports and from hosts' states.

A turn begins when the one before it is over. After a failure, or a request to stop the driver, no
turn and no command begins; hosts on which the command ran are still reactivated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, Select, func, select, update

from registry.db.locks import lock_hosts
from registry.db.row_conversion import record_of
from registry.db.schema import (
    assignments,
    hosts,
    moves,
    plan_moves,
    plans,
    roll_hosts,
    unreleased,
    vms,
)
from registry.errors import IllegalTransitionError
from registry.hosts.admin import change_admin
from registry.hosts.stored_reports import latest_report
from registry.lifecycle import (
    AssignmentState,
    HostAdmin,
    HostAdminEvent,
    HostHealth,
    MoveState,
    PlanState,
    RollEvent,
    RollPhase,
)
from registry.moves.plans import create_plan
from registry.records.moves import PlanKind
from registry.records.rolls import RollHost, StepReport

#: Number of plans for a host whose VMs did not all move, as VMs that are being built or
#: switched cannot move for a while. The first pause is this long, and each further one doubles.
TRIES: Final = 5
RETRY_DELAY_S: Final = 10.0
_NAMED: Final = 3
_OVER: Final = (RollPhase.DONE.value, RollPhase.SKIPPED.value)
_NOT_BEGUN: Final = (RollPhase.WAITING.value, RollPhase.SKIPPED.value)
_GOES: Final = (AssignmentState.RELEASING.value, AssignmentState.LEAVING.value)
_BACK: Final = {
    HostAdmin.ACTIVE: HostAdminEvent.ACTIVATE,
    HostAdmin.DRAINING: HostAdminEvent.DRAIN,
    HostAdmin.MAINTENANCE: HostAdminEvent.MAINTAIN,
}
_ROWS: Final[Select[Any]] = (
    select(roll_hosts, hosts.c.name, hosts.c.admin, hosts.c.health)
    .join(hosts, hosts.c.id == roll_hosts.c.host_id)
    .order_by(roll_hosts.c.position)
)


def record_step(
    connection: Connection, roll: Row[Any], report: StepReport, *, now: datetime, actor: str
) -> tuple[RollEvent | None, str | None]:
    """Advance a locked roll by its driver's report; return the event that ends it, and why."""
    turn = current_turn(connection, roll.id)
    if report.begun:  # other changes of these hosts came before, or wait for these locks
        lock_hosts(connection, *(each.host_id for each in turn if each.name in report.begun))
        turn = current_turn(connection, roll.id)
    _record_report(connection, turn, report, now)
    turn = current_turn(connection, roll.id)
    halts = report.stop or roll.cancelled_by or any(each.error for each in turn)
    if not halts and all(each.phase in _OVER for each in turn):
        return _begin_next_turn(connection, roll, now=now, actor=actor)
    if not halts:
        _plan_evacuation(connection, roll, turn, now=now, actor=actor)
    for each in turn:
        if each.phase == RollPhase.RETURNING.value and each.error is None:
            _reactivate_host(connection, roll, each, now=now, actor=actor)
    turn = current_turn(connection, roll.id)
    failed = [f"host {each.name}: {each.error}" for each in turn if each.error]
    going = (RollPhase.RUNNING.value, RollPhase.RETURNING.value)
    waits = not report.leave and any(each.phase in going and not each.error for each in turn)
    if not (halts or failed) or waits:
        return None, None
    why = "; ".join([*failed, report.stop] if report.stop else failed)
    return (RollEvent.CANCELLED if roll.cancelled_by else RollEvent.STOPPED), why or None


def current_turn(connection: Connection, roll_id: UUID) -> Sequence[Row[Any]]:
    """Return the hosts of a roll's turn that began last; () before the first."""
    begun = select(func.max(roll_hosts.c.turn)).where(
        roll_hosts.c.roll_id == roll_id, roll_hosts.c.phase.not_in(_NOT_BEGUN)
    )
    which = (roll_hosts.c.roll_id == roll_id, roll_hosts.c.turn == begun.scalar_subquery())
    return connection.execute(_ROWS.where(*which)).all()


def roll_host_rows(
    connection: Connection, roll_id: UUID, *, after: int = -1, limit: int | None = None
) -> Sequence[Row[Any]]:
    """Return the rows of a roll's hosts after a position, in order."""
    query = _ROWS.where(roll_hosts.c.roll_id == roll_id, roll_hosts.c.position > after)
    return connection.execute(query.limit(limit)).all()


def write_roll_host(connection: Connection, row: Row[Any], **values: Any) -> None:
    """Update the row of a roll's host, which is locked."""
    its = (roll_hosts.c.roll_id == row.roll_id, roll_hosts.c.position == row.position)
    connection.execute(update(roll_hosts).where(*its).values(**values))


def to_roll_host(row: Row[Any]) -> RollHost:
    """Return the record of a roll's host from its row."""
    return record_of(RollHost, row, host=row.name)


def _record_report(
    connection: Connection, turn: Sequence[Row[Any]], report: StepReport, now: datetime
) -> None:
    """Record the reported steps of a roll's driver. A step that is reported twice is recorded once.

    A host may have received VMs after the driver learned that it is empty, if it was opened while
    the API did not answer. Such a host is emptied again before the command runs.
    """
    ended = {each.host: each for each in report.ended}
    begins = [each for each in turn if each.phase == RollPhase.EMPTY.value]
    begins = [each for each in begins if each.name in report.begun]
    held = _vms_on_hosts(connection, [each.host_id for each in begins]) if begins else {}
    for row in turn:
        if row in begins:
            stays_empty = row.admin == HostAdmin.MAINTENANCE.value and not held.get(row.host_id)
            phase = RollPhase.RUNNING if stays_empty else RollPhase.EMPTYING
            write_roll_host(connection, row, phase=phase.value, since=now)
        elif row.name in ended and row.phase == RollPhase.RUNNING.value and not row.error:
            error = ended[row.name].error
            if error is None:
                write_roll_host(connection, row, phase=RollPhase.RETURNING.value, since=now)
            else:
                write_roll_host(connection, row, error=error)


def _begin_next_turn(
    connection: Connection, roll: Row[Any], *, now: datetime, actor: str
) -> tuple[RollEvent | None, str | None]:
    """Set the hosts of a roll's next turn to maintenance; without one the roll is done."""
    waiting = (roll_hosts.c.roll_id == roll.id, roll_hosts.c.phase == RollPhase.WAITING.value)
    turn = connection.scalar(select(func.min(roll_hosts.c.turn)).where(*waiting))
    if turn is None:
        return RollEvent.DONE, None
    for row in connection.execute(_ROWS.where(*waiting, roll_hosts.c.turn == turn)).all():
        begun = {"phase": RollPhase.EMPTYING.value, "since": now}
        write_roll_host(connection, row, admin_before=row.admin, **begun)
        _set_maintenance(connection, row, actor)
    return None, None


def _set_maintenance(connection: Connection, row: Row[Any], actor: str) -> bool:
    """Set a roll's host to maintenance; return False if it is retired."""
    reason = f"roll {row.roll_id}"
    try:
        change_admin(connection, row.host_id, HostAdminEvent.MAINTAIN, actor=actor, reason=reason)
    except IllegalTransitionError:
        write_roll_host(connection, row, error="it is retired")
        return False
    return True


def _plan_evacuation(
    connection: Connection, roll: Row[Any], turn: Sequence[Row[Any]], *, now: datetime, actor: str
) -> None:
    """Create one plan that moves the VMs away from all hosts of a roll's turn."""
    rows = [each for each in turn if each.phase == RollPhase.EMPTYING.value]
    rows = [each for each in rows if _set_maintenance(connection, each, actor)]
    held = _vms_on_hosts(connection, [each.host_id for each in rows])
    to_plan = []
    for row in rows:
        on_host = held.get(row.host_id, ())
        stay = [each for each in on_host if each.state not in _GOES]
        if not on_host:
            write_roll_host(connection, row, phase=RollPhase.EMPTY.value, since=now)
        elif now - row.since > timedelta(seconds=roll.empty_within_s):
            problem = f"{len(on_host)} VMs are still there after {roll.empty_within_s} s"
            write_roll_host(connection, row, error=problem)
        elif stay and _may_plan_evacuation(connection, row, stay, now):
            to_plan.append(row)
    if to_plan:
        names = {"hosts": sorted(row.name for row in to_plan)}
        plan = create_plan(connection, PlanKind.EVACUATE, names, approve=True, actor=actor)
        for row in to_plan:
            write_roll_host(connection, row, plan_id=plan, plans=row.plans + 1)


def _may_plan_evacuation(
    connection: Connection, row: Row[Any], stay: Sequence[Row[Any]], now: datetime
) -> bool:
    """Return whether another plan may move a host's remaining VMs; else record why not."""
    if row.plan_id is None:
        return True
    columns = (plans.c.state, plans.c.stays, plans.c.ended_at, plans.c.last_error)
    query: Select[Any] = select(*columns).where(plans.c.id == row.plan_id)
    plan = connection.execute(query).one_or_none()
    if plan is None:
        return True
    if plan.ended_at is None:
        return False
    if plan.state == PlanState.CANCELLED.value:
        write_roll_host(connection, row, error=f"plan {row.plan_id} was cancelled")
        return False
    if row.plans < TRIES:
        return bool(now >= plan.ended_at + timedelta(seconds=RETRY_DELAY_S * 2 ** (row.plans - 1)))
    write_roll_host(
        connection, row, error=plan.last_error or _stay_reason(connection, row, plan, stay)
    )
    return False


def _vms_on_hosts(
    connection: Connection, host_ids: Sequence[UUID]
) -> Mapping[UUID, Sequence[Row[Any]]]:
    """Return the VMs with unreleased assignments on hosts, by host and name."""
    query: Select[Any] = (
        select(assignments.c.host_id, assignments.c.state, vms.c.id, vms.c.name)
        .join(vms, vms.c.id == assignments.c.vm_id)
        .where(assignments.c.host_id.in_(host_ids), unreleased)
        .order_by(vms.c.name)
    )
    found: defaultdict[UUID, list[Row[Any]]] = defaultdict(list)
    for row in connection.execute(query):
        found[row.host_id].append(row)
    return found


def _stay_reason(
    connection: Connection, row: Row[Any], plan: Row[Any], stay: Sequence[Row[Any]]
) -> str:
    """Return text with the VMs that stay on a roll's host, and why no plan moved them."""
    reasons = {
        UUID(each["vm"]): str(each["obstacle"] or each["why"]).replace("_", " ")
        for each in plan.stays
    }
    query = (
        select(plan_moves.c.vm_id, func.coalesce(plan_moves.c.refused, moves.c.last_error))
        .outerjoin(moves, moves.c.id == plan_moves.c.move_id)
        .where(
            plan_moves.c.plan_id == row.plan_id,
            plan_moves.c.refused.is_not(None) | (moves.c.state != MoveState.MOVED.value),
        )
    )
    for vm_id, reason in connection.execute(query):
        reasons.setdefault(vm_id, reason or "its move was cancelled")
    for vm_id, error in _last_failures(connection, row, stay[:_NAMED]).items():
        reason = reasons.get(vm_id)
        if reason is None:
            reasons[vm_id] = error
        elif error not in reason:
            reasons[vm_id] = f"{reason}; its last move failed: {error}"
    named = [f"{each.name} ({reasons.get(each.id, 'came later')})" for each in stay[:_NAMED]]
    more = f" and {len(stay) - _NAMED} more" if len(stay) > _NAMED else ""
    return f"VMs stay there: {', '.join(named)}{more}"


def _last_failures(
    connection: Connection, row: Row[Any], stay: Sequence[Row[Any]]
) -> Mapping[UUID, str]:
    """Return why the last move of each VM from this host failed, since the host's turn began.

    The last plan lacks the reason if every destination failed, as it then had no host to choose.
    """
    query = (
        select(moves.c.vm_id, moves.c.last_error)
        .where(
            moves.c.vm_id.in_([each.id for each in stay]),
            moves.c.from_host_id == row.host_id,
            moves.c.state == MoveState.FAILED.value,
            moves.c.requested_at >= row.since,
            moves.c.last_error.is_not(None),
        )
        .order_by(moves.c.id)
    )
    return {each.vm_id: each.last_error for each in connection.execute(query)}


def _reactivate_host(
    connection: Connection, roll: Row[Any], row: Row[Any], *, now: datetime, actor: str
) -> None:
    """Reactivate a roll's host that is up after the command, if it took VMs before."""
    report = latest_report(connection, row.host_id)
    seen = report is not None and report.started_at > row.since
    if seen and row.health == HostHealth.UP.value:
        if row.admin == HostAdmin.MAINTENANCE.value:  # else an operator has changed it since
            event, reason = _BACK[HostAdmin(row.admin_before)], f"roll {row.roll_id}"
            change_admin(connection, row.host_id, event, actor=actor, reason=reason)
        write_roll_host(connection, row, phase=RollPhase.DONE.value, since=now)
    elif now - row.since > timedelta(seconds=roll.up_within_s):
        problem = (
            f"it is {row.health} {roll.up_within_s} s after the command, and not seen up since"
        )
        write_roll_host(connection, row, error=problem)
