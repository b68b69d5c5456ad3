"""The workers' side of volumes, a step at a time.

No step waits for a guest. Workers poll a guest that does not release a disk until its time is
over; then it keeps the disk, and its definition is completed again.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, Select, or_, select

from registry.audit.changes import VOLUME
from registry.audit.events import record_events
from registry.db.clock import db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.host_access import HOST_COLUMNS, to_host_access
from registry.db.locks import lock_hosts
from registry.db.row_leases import ASSIGNMENTS, VOLUMES, is_claimed
from registry.db.schema import assignments, hosts, is_moving, tenants, vms, volumes
from registry.errors import ClaimLostError
from registry.ledger.volume_changes import change_volume
from registry.lifecycle import (
    CHANGING_VOLUMES,
    OUT_OF_REACH,
    WITH_DOMAIN,
    AssignmentState,
    HostAdmin,
    VolumeEvent,
    VolumeState,
)
from registry.records.volumes import DETACH_TIMEOUT_S, VolumeClaim, VolumeStep

WORK_STATES: Final = tuple(state.value for state in CHANGING_VOLUMES)
#: Refusals by the host in a row after which an attachment is given up.
MAX_REFUSALS: Final = 5
_POLL_S: Final = 1.0
_AFTER_TROUBLE_S: Final = 5.0
#: The longest pause between two attempts.
LONGEST_PAUSE_S: Final = 300.0
_UNANSWERED: Final = (
    "the guest did not release the disk within {} s, and keeps it: unmount it there and detach it"
    " again, or stop the VM first"
)

_SELECT: Final[Select[Any]] = (
    select(
        volumes,
        tenants.c.name.label("tenant"),
        assignments.c.state.label("assignment_state"),
        assignments.c.lease_until.label("build_until"),
        vms.c.observed,
        is_moving(vms.c.id).label("is_moving"),
        hosts.c.admin,
        *(column for column in HOST_COLUMNS if column.key != "host_id"),
    )
    .select_from(volumes)
    .join(tenants, tenants.c.id == volumes.c.tenant_id)
    .join(hosts, hosts.c.id == volumes.c.host_id)
    .outerjoin(assignments, assignments.c.id == volumes.c.assignment_id)
    .outerjoin(vms, vms.c.id == volumes.c.vm_id)
)


def is_vm_ready(now: datetime) -> ColumnElement[bool]:
    """Return the condition that the VM of a volume, if any, can be given or lose a disk now."""
    ready = (
        select(assignments.c.id)
        .join(vms, vms.c.id == assignments.c.vm_id)
        .where(
            assignments.c.id == volumes.c.assignment_id,
            assignments.c.state == AssignmentState.ACTIVE.value,
            ASSIGNMENTS.is_unclaimed(now),
            vms.c.observed.in_(WITH_DOMAIN),
            ~is_moving(vms.c.id),
        )
        .correlate(volumes)
        .exists()
    )
    return or_(volumes.c.assignment_id.is_(None), ready)


class VolumeSteps(Repository):
    """Claims and results of the steps of volumes' changes."""

    @retry_on_rollback
    def claim(self, volume_id: UUID, owner: str, lease_s: float) -> VolumeStep | None:
        """Claim the next step of a volume's change; None if none is due, or it is claimed."""
        with self._database.write() as connection:
            row = _lock_row(connection, volume_id)
            now = db_now(connection)
            if row is None or not _is_due(row, now):
                return None
            token = VOLUMES.claim(connection, volume_id, owner, lease_s, now=now)
            return VolumeStep(
                claim=VolumeClaim(volume_id=volume_id, token=token),
                state=VolumeState(row.state),
                size_gib=row.size_gib,
                vm_id=row.vm_id,
                assignment_id=row.assignment_id,
                host=to_host_access(row),
                overdue=row.detach_until is not None and row.detach_until <= now,
            )

    @retry_on_rollback
    def extend_claim(self, claim: VolumeClaim, state: VolumeState, lease_s: float) -> None:
        """Extend a claim on a volume before the step that ``state`` requires.

        Raises
        ------
        ClaimLostError
            If another has it, or another change is requested by now.
        """
        with self._database.write() as connection:
            row = _lock_claimed(connection, claim)
            if row.state != state.value:
                raise ClaimLostError(f"volume {claim.volume_id}", f"it is {row.state}")
            VOLUMES.extend(connection, claim.volume_id, lease_s)

    @retry_on_rollback
    def advance(self, claim: VolumeClaim, event: VolumeEvent) -> VolumeState:
        """Record a step of a volume's change; the claim ends when nothing is left to do."""
        with self._database.write() as connection:
            row = _lock_claimed(connection, claim)
            return _apply(connection, row, event, now=db_now(connection), error=None)

    @retry_on_rollback
    def give_up_detach(self, claim: VolumeClaim) -> VolumeState:
        """Record that a guest did not release a disk in time, and so keeps it."""
        with self._database.write() as connection:
            row = _lock_claimed(connection, claim)
            now = db_now(connection)
            error = _UNANSWERED.format(DETACH_TIMEOUT_S)
            return _apply(connection, row, VolumeEvent.UNANSWERED, now=now, error=error)

    @retry_on_rollback
    def poll_again(self, claim: VolumeClaim) -> None:
        """Release the claim on a volume; a worker polls the guest later."""
        with self._database.write() as connection:
            _lock_claimed(connection, claim)
            due_at = db_now(connection) + timedelta(seconds=_POLL_S)
            VOLUMES.release_claim(connection, claim.volume_id, due_at=due_at, sent_at=None)

    @retry_on_rollback
    def retry_later(self, claim: VolumeClaim, error: str | None, *, refused: bool = False) -> None:
        """Release the claim on a volume after an error; give up what was refused too often."""
        with self._database.write() as connection:
            row = _lock_claimed(connection, claim)
            now = db_now(connection)
            attempts = row.attempts + 1 if refused else row.attempts
            if (row.state, VolumeEvent.ATTACH_FAILED) in VOLUME.table and attempts >= MAX_REFUSALS:
                _apply(
                    connection,
                    row,
                    VolumeEvent.ATTACH_FAILED,
                    now=now,
                    error=error,
                    keep_claim=False,
                )
                return
            pause_s = min(_AFTER_TROUBLE_S * 2 ** min(attempts, 10), LONGEST_PAUSE_S)
            if error is None:
                pause_s = _POLL_S
            values: dict[str, Any] = {} if error is None else {"last_error": error}
            values |= {"due_at": now + timedelta(seconds=pause_s), "attempts": attempts}
            VOLUMES.release_claim(connection, claim.volume_id, sent_at=None, **values)


def _lock_row(connection: Connection, key: UUID) -> Row[Any] | None:
    """Lock a volume, its host first, and return its row; None if it has no file."""
    place = connection.scalar(select(volumes.c.host_id).where(volumes.c.id == key))
    if place is not None:
        # What it holds there may end with the step: hosts come first in the order of locks.
        lock_hosts(connection, place)
    lock = select(volumes.c.id).where(volumes.c.id == key).with_for_update(key_share=True)
    connection.execute(lock)
    return connection.execute(_SELECT.where(volumes.c.id == key)).one_or_none()


def _is_due(row: Row[Any], now: datetime) -> bool:
    """Return whether a worker may take the next step of a volume's change now."""
    if row.state not in WORK_STATES or row.due_at > now or is_claimed(row, now):
        return False
    if row.health in OUT_OF_REACH or row.admin == HostAdmin.RETIRED.value:
        return False
    if row.pool_silent_since is not None:
        return False
    return row.assignment_id is None or (
        row.assignment_state == AssignmentState.ACTIVE.value
        and (row.build_until is None or row.build_until <= now)
        and row.observed in WITH_DOMAIN
        and not row.is_moving
    )


def _lock_claimed(connection: Connection, claim: VolumeClaim) -> Row[Any]:
    """Lock and return a claimed volume, or raise `ClaimLostError`."""
    row = _lock_row(connection, claim.volume_id)
    return VOLUMES.check_claim(row, claim.volume_id, claim.token)


def _apply(
    connection: Connection,
    row: Row[Any],
    event: VolumeEvent,
    *,
    now: datetime,
    error: str | None,
    keep_claim: bool = True,
) -> VolumeState:
    """Change the state of a volume by a step of its worker, and record it."""
    if (row.state, event) not in VOLUME.table:
        raise ClaimLostError(f"volume {row.id}", f"it is {row.state} by now")
    values: dict[str, Any] = {}
    if error is not None or row.due_at > row.changed_at:
        # Why something was given up stays until the next call; what passed by itself does not.
        values["last_error"] = error
    after, history = change_volume(
        connection,
        row,
        event,
        now=now,
        actor=row.lease_owner,
        reason=error,
        data={"host": row.host_name},
        keep_claim=keep_claim,
        **values,
    )
    record_events(connection, [history])
    return after
