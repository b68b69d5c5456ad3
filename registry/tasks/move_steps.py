"""The workers' side of moves: claims, progress, the arrival, and the handling of failures.

The arrival is a compare-and-set on the claim. Only a worker that polled both hosts knows where the
guest is, so only a worker ends a move that has begun.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, and_, or_, select, update

from registry.audit.changes import MOVE, VM_OBSERVED
from registry.audit.events import record_events
from registry.db.clock import db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.host_access import to_host_access
from registry.db.row_leases import MOVES, is_claimed
from registry.db.schema import assignments, hosts, moves, power_actions, vms
from registry.errors import ClaimLostError
from registry.ledger.shared_disks import delete_kept_disks
from registry.lifecycle import (
    OPEN_MOVES,
    OUT_OF_REACH,
    AssignmentState,
    MoveEvent,
    MoveState,
    VmDesired,
    VmObserved,
    VmObservedEvent,
)
from registry.moves.changes_at_destination import destination_refusal
from registry.moves.move_end import close_move, complete_arrival, end_without_arrival, lock_move
from registry.moves.obstacles import MOVES_LABEL
from registry.records.moves import MoveClaim, MoveLimits, MoveProgress, MoveStep
from registry.records.work import Claim, Due
from registry.tasks.assignments import SELECT, to_build
from registry.tasks.next_moves import mark_next_moves_sent
from registry.tasks.queues import MOVE_VM

_OPEN: Final = [state.value for state in OPEN_MOVES]
_DELETED: Final = "its VM was deleted"
#: A label of hosts: where they receive moves.
_ADDRESS_LABEL: Final = "move_address="
_SEEN: Final = {
    VmObserved.RUNNING: VmObservedEvent.SEEN_RUNNING,
    VmObserved.STOPPED: VmObservedEvent.SEEN_STOPPED,
}


class MoveSteps(Repository):
    """Claims and results of the moves that workers carry out."""

    @retry_on_rollback
    def claim(
        self, move_id: UUID, owner: str, lease_s: float, limits: MoveLimits
    ) -> MoveStep | None:
        """Claim a move to begin it, or to find out how far another worker came.

        It returns None if the move is over, claimed by another worker, or not due. It also returns
        None after it has ended a move that has not begun because its VM, its place or its
        destination changed.
        """
        with self._database.write() as connection:
            move = lock_move(connection, move_id, with_groups=True)
            now = db_now(connection)
            if move is None or move.state not in _OPEN or is_claimed(move, now):
                return None
            vm = _read_moving_vm(connection, move)
            begun = move.state == MoveState.MOVING.value
            if not begun:
                over = _pointless_end(vm, move) or _refusal_end(connection, move)
                if over is not None:
                    end_without_arrival(connection, move, over[1], now=now, actor=owner)
                    close_move(connection, move, over[0], reason=over[1], now=now, actor=owner)
                    return None
                if not _may_begin_move(connection, vm, move, limits, now):
                    return None
            event = MoveEvent.RECLAIMED if begun else MoveEvent.CLAIMED
            step = MOVE.step(move.state, event)
            kind = move.kind
            if not begun:
                kind = "live" if vm.observed == VmObserved.RUNNING.value else "cold"
            values: dict[str, Any] = {"state": step.after.value, "kind": kind}
            values["attempts"] = move.attempts + 1
            values["began_at"] = move.began_at or now
            token = MOVES.claim(connection, move_id, owner, lease_s, now=now, **values)
            detail = {"vm": str(move.vm_id), "from": move.from_host, "to": move.to_host}
            record_events(
                connection, [step.row(now, owner, move.id, tenant=move.tenant, data=detail)]
            )
            return _to_move_step(connection, move, vm, token, kind=kind, begun=begun)

    @retry_on_rollback
    def mark_next_moves_sent(self, limits: MoveLimits) -> tuple[Due, ...]:
        """Return the moves that can begin after another has ended, and mark them as sent."""
        with self._database.write() as connection:
            found = mark_next_moves_sent(connection, limits, now=db_now(connection))
            return tuple(Due(task=MOVE_VM, id=key) for key in found)

    @retry_on_rollback
    def extend_claim(
        self, claim: MoveClaim, lease_s: float, progress: MoveProgress | None = None
    ) -> str | None:
        """Extend a claim on a move and record progress; return why the move must end, or None.

        Raises
        ------
        ClaimLostError
            If another has it.
        """
        with self._database.write() as connection:
            move = _lock_claimed_move(connection, claim)
            values = (
                {}
                if progress is None
                else {
                    "total_bytes": progress.total_bytes,
                    "remaining_bytes": progress.remaining_bytes,
                    "rate_bytes_s": progress.rate_bytes_s,
                }
            )
            MOVES.extend(connection, claim.move_id, lease_s, **values)
            return _stop_reason(_read_moving_vm(connection, move), move)

    @retry_on_rollback
    def record_downtime(self, claim: MoveClaim, downtime_ms: int) -> None:
        """Record the downtime of a move that another worker found arrived.

        A worker that takes a move over sees where the guest is, and not its downtime.
        """
        with self._database.write() as connection:
            connection.execute(
                update(moves)
                .where(
                    moves.c.id == claim.move_id,
                    moves.c.state == MoveState.MOVED.value,
                    moves.c.downtime_ms.is_(None),
                )
                .values(downtime_ms=downtime_ms)
            )

    @retry_on_rollback
    def record_arrival(
        self, claim: MoveClaim, observed: VmObserved, *, downtime_ms: int | None
    ) -> bool:
        """Record that a moving VM has arrived; this is the only place that does so.

        ``observed`` is its state at the destination, running or stopped. The result is False if
        the VM was deleted before; its domain there is then removed.

        Raises
        ------
        ClaimLostError
            If another has it, or the host was fenced after the claim.
        """
        with self._database.write() as connection:
            move = _lock_claimed_move(connection, claim)
            vm = _read_moving_vm(connection, move)
            now, actor = db_now(connection), move.lease_owner
            if vm.desired == VmDesired.DELETED.value:
                _end_on_source(connection, move, _DELETED, MoveEvent.CANCELLED, now=now)
                return False
            if vm.arriving != AssignmentState.ARRIVING.value:
                # Who claims it next knows that from the beginning.
                raise ClaimLostError(f"move {move.id}", f"host {move.to_host} was fenced")
            complete_arrival(connection, move, now=now, actor=actor)
            delete_kept_disks(connection, [move.vm_id])
            step = VM_OBSERVED.step(vm.observed, _SEEN[observed])
            connection.execute(
                update(vms)
                .where(vms.c.id == move.vm_id)
                .values(
                    observed=step.after.value, switched_at=now, paused_since=None, last_error=None
                )
            )
            if step.moved:
                data = {"host": move.to_host, "assignment": str(move.to_id)}
                history = step.row(now, actor, move.vm_id, tenant=move.tenant, data=data)
                record_events(connection, [history])
            close_move(
                connection,
                move,
                MoveEvent.ARRIVED,
                reason=None,
                now=now,
                actor=actor,
                downtime_ms=downtime_ms,
                remaining_bytes=0,
            )
            return True

    @retry_on_rollback
    def record_failure(self, claim: MoveClaim, error: str) -> None:
        """Record that a moving VM did not arrive; its remains on the destination are removed.

        A move that was cancelled, or whose VM was deleted, does not count as failed.
        """
        with self._database.write() as connection:
            move = _lock_claimed_move(connection, claim)
            stop = _stop_reason(_read_moving_vm(connection, move), move)
            event = MoveEvent.FAILED if stop is None else MoveEvent.CANCELLED
            _end_on_source(connection, move, stop or error, event, now=db_now(connection))

    @retry_on_rollback
    def retry_later(self, claim: MoveClaim, error: str | None) -> None:
        """Release the claim on a move while it is not known on which host the VM is."""
        with self._database.write() as connection:
            _lock_claimed_move(connection, claim)
            values = {} if error is None else {"last_error": error}
            MOVES.retry_later(connection, claim.move_id, **values)


def _end_on_source(
    connection: Connection, move: Row[Any], reason: str, event: MoveEvent, *, now: datetime
) -> None:
    """End a move with its VM on the source, as failed or cancelled."""
    actor = move.lease_owner
    end_without_arrival(connection, move, reason, now=now, actor=actor)
    close_move(connection, move, event, reason=reason, now=now, actor=actor)


def _lock_claimed_move(connection: Connection, claim: MoveClaim) -> Row[Any]:
    """Lock and return the row of a claimed move, or raise `ClaimLostError`."""
    return MOVES.check_claim(lock_move(connection, claim.move_id), claim.move_id, claim.token)


@dataclass(frozen=True, slots=True, kw_only=True)
class _MovingVm:
    """The states of a moving VM and of both its assignments."""

    desired: str
    observed: str
    labels: Mapping[str, str]
    left: str  #: state of the assignment that it moves away from
    arriving: str


def _read_moving_vm(connection: Connection, move: Row[Any]) -> _MovingVm:
    """Return the states of a moving VM and of its assignments on both hosts."""
    both = select(assignments.c.id, assignments.c.state).where(
        assignments.c.id.in_([move.from_id, move.to_id])
    )
    states = {row.id: row.state for row in connection.execute(both)}
    wanted = select(vms.c.desired, vms.c.observed, vms.c.labels).where(vms.c.id == move.vm_id)
    gone = AssignmentState.RELEASED.value
    return _MovingVm(
        **connection.execute(wanted).one()._mapping,
        left=states.get(move.from_id, gone),
        arriving=states.get(move.to_id, gone),
    )


def _pointless_end(vm: _MovingVm, move: Row[Any]) -> tuple[MoveEvent, str] | None:
    """Return the event and reason that end a move which can no longer begin, or None."""
    stop = _stop_reason(vm, move)
    if stop is not None:
        return MoveEvent.CANCELLED, stop
    if vm.arriving != AssignmentState.ARRIVING.value:
        return MoveEvent.FAILED, f"host {move.to_host} was fenced"
    if vm.left != AssignmentState.ACTIVE.value:
        return MoveEvent.FAILED, f"its place on host {move.from_host} is {vm.left}"
    if vm.observed not in _SEEN:
        return MoveEvent.FAILED, f"it is {vm.observed}"
    runs = vm.observed == VmObserved.RUNNING.value
    if vm.labels.get(MOVES_LABEL) == "never" or (vm.labels.get(MOVES_LABEL) == "cold" and runs):
        return MoveEvent.FAILED, "its tenant has forbidden it"
    return None


def _refusal_end(connection: Connection, move: Row[Any]) -> tuple[MoveEvent, str] | None:
    """Return the event and reason that end a move if its destination would refuse it, or None."""
    why = destination_refusal(connection, move)
    return None if why is None else (MoveEvent.FAILED, why)


def _stop_reason(vm: _MovingVm, move: Row[Any]) -> str | None:
    """Return why a move must end with the VM on the source, or None."""
    if vm.desired == VmDesired.DELETED.value:
        return _DELETED
    return None if move.cancelled_by is None else f"cancelled by {move.cancelled_by}"


def _may_begin_move(
    connection: Connection, vm: _MovingVm, move: Row[Any], limits: MoveLimits, now: datetime
) -> bool:
    """Return whether a move may begin now; both hosts are locked."""
    query = select(hosts.c.id, hosts.c.health, hosts.c.pool_silent_since)
    ends = connection.execute(
        query.where(hosts.c.id.in_([move.from_host_id, move.to_host_id]))
    ).all()
    if any(end.health in OUT_OF_REACH or end.pool_silent_since is not None for end in ends):
        return False
    power_action = select(power_actions.c.vm_id).where(power_actions.c.vm_id == move.vm_id)
    if connection.execute(power_action).first() is not None:
        return False
    under_way = moves.c.state == MoveState.MOVING.value
    for host_id in (move.from_host_id, move.to_host_id):
        here = or_(moves.c.from_host_id == host_id, moves.c.to_host_id == host_id)
        if MOVES.count_claimed(connection, and_(under_way, here), now) >= limits.per_host:
            return False
    return MOVES.count_claimed(connection, under_way, now) < limits.everywhere


def _to_move_step(
    connection: Connection, move: Row[Any], vm: _MovingVm, token: UUID, *, kind: str, begun: bool
) -> MoveStep:
    """Return the move for a worker: the VM, its build on both hosts, and how to reach these."""
    rows = connection.execute(SELECT.where(assignments.c.id.in_([move.from_id, move.to_id])))
    ends = {row.id: row for row in rows}
    here, there = ends[move.from_id], ends[move.to_id]
    claim = Claim(assignment_id=move.to_id, token=token)
    return MoveStep(
        claim=MoveClaim(move_id=move.id, token=token),
        kind="live" if kind == "live" else "cold",
        begun=begun,
        stop=_stop_reason(vm, move),
        attempts=move.attempts + 1,
        fenced=vm.left == AssignmentState.RELEASED.value,
        lost=vm.arriving == AssignmentState.RELEASED.value,
        last_error=move.last_error,
        vm_id=move.vm_id,
        from_id=move.from_id,
        from_host=to_host_access(here),
        back=to_build(
            connection,
            here,
            Claim(assignment_id=move.from_id, token=token),
            AssignmentState(vm.left),
        ),
        to=to_build(connection, there, claim, AssignmentState.ARRIVING),
        address=_receiving_address(connection, move.to_host_id),
    )


def _receiving_address(connection: Connection, host_id: UUID) -> str | None:
    """Return the address in a host's label at which it receives moving VMs, or None."""
    labels = connection.execute(select(hosts.c.labels).where(hosts.c.id == host_id)).scalar_one()
    found = (each for each in labels if each.startswith(_ADDRESS_LABEL))
    return next((each.removeprefix(_ADDRESS_LABEL) for each in found), None)
