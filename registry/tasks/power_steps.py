"""The workers' side of power actions, a step at a time.

No step waits for a guest. A guest that was signalled to shut down is polled again later, by any
worker, and is forced off after its timeout. So a thousand guests that ignore the signal occupy no
thread.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, Select, and_, delete, select, update

from registry.audit.changes import POWER as POWER_OF_VM
from registry.audit.changes import VM_OBSERVED
from registry.audit.events import record_events
from registry.db.clock import db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.host_access import HOST_COLUMNS, to_host_access
from registry.db.locks import lock_vms
from registry.db.row_leases import POWER, is_claimed
from registry.db.schema import assignments, hosts, is_moving, is_place, power_actions, tenants, vms
from registry.errors import ClaimLostError
from registry.lifecycle import (
    OUT_OF_REACH,
    POWER_TRANSITIONS,
    WITH_DOMAIN,
    AssignmentState,
    PowerEvent,
    PowerState,
    VmObservedEvent,
)
from registry.networks.addresses import read_interface_rules
from registry.records.work import PowerClaim, PowerStep

#: A guest that booted only now may not have heard it the first time.
SIGNAL_RETRY_S: Final = 10.0
#: Refusals in a row after which a start or reboot is given up.
MAX_REFUSALS: Final = 5
_SOONEST_S: Final = 0.5
_LATEST_S: Final = 5.0
_AFTER_TROUBLE_S: Final = 5.0

#: What an event of a step says of the VM itself.
_OBSERVED: Final = {
    PowerEvent.SEEN_OFF: VmObservedEvent.SEEN_STOPPED,
    PowerEvent.SEEN_ON: VmObservedEvent.SEEN_RUNNING,
    PowerEvent.RESET: VmObservedEvent.SEEN_RUNNING,
}

_SELECT: Final[Select[Any]] = (
    select(
        vms.c.id,
        vms.c.observed,
        is_moving(vms.c.id).label("is_moving"),
        tenants.c.name.label("tenant"),
        assignments.c.id.label("assignment_id"),
        assignments.c.state.label("assignment_state"),
        assignments.c.generation,
        assignments.c.lease_until.label("build_until"),
        power_actions.c.state,
        power_actions.c.timeout_s,
        power_actions.c.force_at,
        power_actions.c.signalled_at,
        power_actions.c.attempts,
        power_actions.c.due_at,
        power_actions.c.lease_token,
        power_actions.c.lease_owner,
        power_actions.c.lease_until,
        *HOST_COLUMNS,
    )
    .select_from(power_actions)
    .join(vms, vms.c.id == power_actions.c.vm_id)
    .join(tenants, tenants.c.id == vms.c.tenant_id)
    .join(assignments, and_(assignments.c.vm_id == vms.c.id, is_place))
    .join(hosts, hosts.c.id == assignments.c.host_id)
)


class PowerSteps(Repository):
    """Claims and results of the steps of power actions."""

    @retry_on_rollback
    def claim(self, vm_id: UUID, owner: str, lease_s: float) -> PowerStep | None:
        """Claim the next step of a VM's power change; None if none is due, or it is claimed."""
        with self._database.write() as connection:
            row = _lock_vm_row(connection, vm_id)
            now = db_now(connection)
            if row is None or not _is_step_due(row, now):
                return None
            token = POWER.claim(connection, vm_id, owner, lease_s, now=now)
            again = timedelta(seconds=SIGNAL_RETRY_S)
            return PowerStep(
                claim=PowerClaim(vm_id=vm_id, token=token),
                state=PowerState(row.state),
                assignment_id=row.assignment_id,
                generation=row.generation,
                host=to_host_access(row),
                overdue=row.timeout_s == 0 or (row.force_at is not None and row.force_at <= now),
                to_signal=row.signalled_at is None or row.signalled_at + again <= now,
                interface_rules=read_interface_rules(connection, vm_id),
            )

    @retry_on_rollback
    def extend_claim(self, claim: PowerClaim, state: PowerState, lease_s: float) -> None:
        """Extend a claim on a VM's power change before the step that ``state`` requires.

        Raises
        ------
        ClaimLostError
            If another has it, the VM lost its place, or another change is requested by now.
        """
        with self._database.write() as connection:
            row = _lock_claimed_power_change(connection, claim)
            if row.state != state.value:
                raise ClaimLostError(f"the power of VM {claim.vm_id}", f"it is {row.state}")
            POWER.extend(connection, claim.vm_id, lease_s)

    @retry_on_rollback
    def advance(self, claim: PowerClaim, event: PowerEvent) -> PowerState:
        """Record a step of a power change; the claim stays until the change is complete."""
        with self._database.write() as connection:
            row = _lock_claimed_power_change(connection, claim)
            now = db_now(connection)
            return _apply_power_event(connection, row, event, now=now, reason=None)

    @retry_on_rollback
    def poll_again(self, claim: PowerClaim) -> None:
        """Release the claim on a power change; the guest is polled again later."""
        with self._database.write() as connection:
            row = _lock_claimed_power_change(connection, claim)
            now = db_now(connection)
            due_at = now + timedelta(seconds=_SOONEST_S)
            if row.force_at is not None:
                waited = now - (row.force_at - timedelta(seconds=row.timeout_s))
                pause_s = min(max(waited.total_seconds() / 4, _SOONEST_S), _LATEST_S)
                due_at = min(now + timedelta(seconds=pause_s), max(row.force_at, now))
            POWER.release_claim(connection, claim.vm_id, due_at=due_at, sent_at=None, attempts=0)

    @retry_on_rollback
    def retry_later(self, claim: PowerClaim, error: str | None, *, refused: bool = False) -> None:
        """Release the claim on a power change after an error; drop a start refused too often."""
        with self._database.write() as connection:
            row = _lock_claimed_power_change(connection, claim)
            now = db_now(connection)
            attempts = row.attempts + 1 if refused else row.attempts
            if (row.state, PowerEvent.FAILED.value) in POWER_TRANSITIONS and (
                attempts >= MAX_REFUSALS
            ):
                connection.execute(
                    update(vms).where(vms.c.id == claim.vm_id).values(last_error=error)
                )
                _apply_power_event(connection, row, PowerEvent.FAILED, now=now, reason=error)
                return
            values: dict[str, Any] = {} if error is None else {"last_error": error}
            pause_s = _SOONEST_S if error is None else _AFTER_TROUBLE_S
            due_at = now + timedelta(seconds=pause_s)
            values |= {"due_at": due_at, "sent_at": None, "attempts": attempts}
            POWER.release_claim(connection, claim.vm_id, **values)


def _is_step_due(row: Row[Any], now: datetime) -> bool:
    """Return whether a worker may take the next step of a VM's power change now."""
    return (
        not is_claimed(row, now)
        and row.due_at <= now
        and row.assignment_state == AssignmentState.ACTIVE.value
        and (row.build_until is None or row.build_until <= now)
        and row.observed in WITH_DOMAIN
        and not row.is_moving
        and row.health not in OUT_OF_REACH
    )


def _lock_vm_row(connection: Connection, vm_id: UUID) -> Row[Any] | None:
    """Lock a VM and return its row with the pending power change, or None."""
    lock_vms(connection, vms.c.id == vm_id)
    return connection.execute(_SELECT.where(vms.c.id == vm_id)).one_or_none()


def _lock_claimed_power_change(connection: Connection, claim: PowerClaim) -> Row[Any]:
    """Lock and return the claimed power change of a VM, or raise `ClaimLostError`."""
    row = POWER.check_claim(_lock_vm_row(connection, claim.vm_id), claim.vm_id, claim.token)
    if row.assignment_state != AssignmentState.ACTIVE.value:
        raise ClaimLostError(
            f"the power of VM {claim.vm_id}", f"its assignment is {row.assignment_state}"
        )
    return row


def _apply_power_event(
    connection: Connection, row: Row[Any], event: PowerEvent, *, now: datetime, reason: str | None
) -> PowerState:
    """Change the state of a VM's power change, and what is observed of the VM; record both."""
    if (row.state, event) not in POWER_TRANSITIONS:
        # Another change was requested during this step: begin with it.
        raise ClaimLostError(f"the power of VM {row.id}", f"it is {row.state} by now")
    step, by = POWER_OF_VM.step(row.state, event), row.lease_owner
    after = step.after
    history = []
    if step.moved:
        history.append(step.row(now, by, row.id, tenant=row.tenant, reason=reason))
    seen = _OBSERVED.get(event)
    if seen is not None:
        history += _record_observation(connection, row, seen, now=now)
    if after == PowerState.IDLE:
        connection.execute(delete(power_actions).where(power_actions.c.vm_id == row.id))
    elif event == PowerEvent.SIGNALLED:
        force_at = row.force_at or now + timedelta(seconds=row.timeout_s)
        POWER.update_row(connection, row.id, state=after.value, signalled_at=now, force_at=force_at)
    else:
        POWER.update_row(connection, row.id, state=after.value)
    record_events(connection, history)
    return after


def _record_observation(
    connection: Connection, row: Row[Any], event: VmObservedEvent, *, now: datetime
) -> list[dict[str, Any]]:
    """Record a VM's state after a power step; ignore polls that began before."""
    step = VM_OBSERVED.step(row.observed, event)
    connection.execute(
        update(vms)
        .where(vms.c.id == row.id)
        .values(observed=step.after.value, switched_at=now, paused_since=None, last_error=None)
    )
    if not step.moved:
        return []
    data = {"host": row.host_name, "assignment": str(row.assignment_id)}
    return [step.row(now, row.lease_owner, row.id, tenant=row.tenant, data=data)]
