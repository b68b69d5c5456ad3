"""What nobody works on: the rows are the messages, and are sent again until they are done."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, or_, select, update

from registry.access import HOST_COLUMNS, OUT_OF_REACH, to_access
from registry.console_states import forget_silent
from registry.events import event_row, record
from registry.fencing import FENCE_HOST, due_fences
from registry.image_imports import due_imports
from registry.images_on_hosts import lacks_image
from registry.lifecycle import AssignmentState, CopyState, HostAdmin, VmObserved
from registry.power_steps import due_power
from registry.records import Due, Leftover
from registry.schema import assignments, hosts, image_copies, leftovers, unreleased, vms

CREATE: Final = "workers.create_vm"
DELETE: Final = "workers.delete_vm"
REMOVE_LEFTOVER: Final = "workers.remove_leftover"
UPLOAD_IMAGE: Final = "workers.upload_image"
REMOVE_IMAGE: Final = "workers.remove_image"
SWITCH_POWER: Final = "workers.switch_power"
IMPORT_IMAGE: Final = "workers.import_image"

_UNBUILT: Final = (AssignmentState.RESERVED.value, AssignmentState.CREATING.value)
_TASK: Final = {
    AssignmentState.RESERVED.value: CREATE,
    AssignmentState.CREATING.value: CREATE,
    AssignmentState.ACTIVE.value: CREATE,
    AssignmentState.RELEASING.value: DELETE,
    AssignmentState.QUARANTINED.value: DELETE,
}


def due(
    connection: Connection,
    limit: int,
    resend_after_s: float,
    *,
    now: datetime,
    host_id: UUID | None = None,
) -> tuple[Due, ...]:
    """Return the tasks that nobody works on, and mark them as sent.

    Builds that nobody claimed or whose claim ran out, unless they wait for their
    image; VMs that are active but were never seen since (their resume is
    missing); removals; what is asked of a VM's power; images to bring to hosts,
    before those since builds wait for them; images to fetch; leftovers, also on
    hosts that were down and answer again; first of all hosts to fence. Otherwise
    not on hosts out of reach or retired. What was sent less than ``resend_after_s`` ago is
    given time; what was never sent goes first, then what was sent longest ago. With
    ``host_id``, of that host alone; else consoles that nobody uses any more end, too.
    """
    stale = now - timedelta(seconds=resend_after_s)
    found = _due_copies(connection, limit, now, stale, host_id)
    if host_id is None:
        forget_silent(connection, now=now)
        fences = due_fences(connection, limit, now=now, stale=stale)
        found = [*(Due(task=FENCE_HOST, id=key) for key in fences), *found]
        imports = due_imports(connection, limit - len(found), now=now, stale=stale)
        found += [Due(task=IMPORT_IMAGE, id=key) for key in imports]
    waiting = (
        select(assignments.c.id, assignments.c.state)
        .select_from(assignments)
        .join(vms, vms.c.id == assignments.c.vm_id)
    )
    rows = connection.execute(
        waiting.join(hosts, hosts.c.id == assignments.c.host_id)
        .where(
            unreleased,
            or_(
                assignments.c.state != AssignmentState.ACTIVE.value,
                vms.c.observed == VmObserved.ABSENT.value,
            ),
            ~and_(
                assignments.c.state.in_(_UNBUILT),
                lacks_image(assignments.c.host_id, vms.c.request_id),
            ),
            *_idle(assignments, now, stale, host_id),
        )
        .order_by(assignments.c.sent_at.nulls_first(), assignments.c.id)
        .limit(limit - len(found))
        .with_for_update(of=assignments, skip_locked=True, key_share=True)
    ).all()
    found += [Due(task=_TASK[row.state], id=row.id) for row in rows]
    if rows:
        connection.execute(
            update(assignments)
            .where(assignments.c.id.in_([row.id for row in rows]))
            .values(sent_at=now)
        )
    keys = due_power(connection, limit - len(found), resend_after_s, now=now, host_id=host_id)
    found += [Due(task=SWITCH_POWER, id=key) for key in keys]
    others = connection.scalars(
        select(leftovers.c.id)
        .select_from(leftovers)
        .join(hosts, hosts.c.id == leftovers.c.host_id)
        .where(*_idle(leftovers, now, stale, host_id, or_returning=True))
        .order_by(leftovers.c.sent_at.nulls_first(), leftovers.c.id)
        .limit(limit - len(found))
        .with_for_update(of=leftovers, skip_locked=True, key_share=True)
    ).all()
    if others:
        connection.execute(update(leftovers).where(leftovers.c.id.in_(others)).values(sent_at=now))
    return (*found, *(Due(task=REMOVE_LEFTOVER, id=key) for key in others))


def _due_copies(
    connection: Connection, limit: int, now: datetime, stale: datetime, host_id: UUID | None
) -> list[Due]:
    pending = (CopyState.ABSENT.value, CopyState.UPLOADING.value, CopyState.REMOVING.value)
    rows = connection.execute(
        select(image_copies.c.id, image_copies.c.state)
        .join(hosts, hosts.c.id == image_copies.c.host_id)
        .where(image_copies.c.state.in_(pending), *_idle(image_copies, now, stale, host_id))
        .order_by(image_copies.c.sent_at.nulls_first(), image_copies.c.id)
        .limit(limit)
        .with_for_update(of=image_copies, skip_locked=True, key_share=True)
    ).all()
    if rows:
        keys = [row.id for row in rows]
        connection.execute(
            update(image_copies).where(image_copies.c.id.in_(keys)).values(sent_at=now)
        )
    removing = CopyState.REMOVING.value
    return [
        Due(task=REMOVE_IMAGE if row.state == removing else UPLOAD_IMAGE, id=row.id) for row in rows
    ]


def _idle(
    table: Table,
    now: datetime,
    stale: datetime,
    host_id: UUID | None,
    *,
    or_returning: bool = False,
) -> tuple[ColumnElement[bool], ...]:
    within_reach: ColumnElement[bool] = hosts.c.health.not_in(OUT_OF_REACH)
    if or_returning:
        within_reach = or_(within_reach, hosts.c.returning_since.is_not(None))
    return (
        *(() if host_id is None else (table.c.host_id == host_id,)),
        or_(table.c.claim_until.is_(None), table.c.claim_until <= now),
        or_(table.c.sent_at.is_(None), table.c.sent_at <= stale),
        within_reach,
        hosts.c.admin != HostAdmin.RETIRED.value,
    )


def claim_leftover(
    connection: Connection, key: UUID, owner: str, lease_s: float, *, now: datetime
) -> Leftover | None:
    """Claim a leftover; None if it is gone, out of reach, or somebody is at it."""
    row = connection.execute(
        select(
            leftovers,
            hosts.c.returning_since,
            *(column for column in HOST_COLUMNS if column.key != "host_id"),
        )
        .select_from(leftovers)
        .join(hosts, hosts.c.id == leftovers.c.host_id)
        .where(leftovers.c.id == key, hosts.c.admin != HostAdmin.RETIRED.value)
        .with_for_update(of=leftovers)
    ).one_or_none()
    if row is None or (row.health in OUT_OF_REACH and row.returning_since is None):
        return None
    if row.claim_until is not None and row.claim_until > now:
        return None
    connection.execute(
        update(leftovers)
        .where(leftovers.c.id == key)
        .values(claim_owner=owner, claim_until=now + timedelta(seconds=lease_s))
    )
    return Leftover(
        id=row.id,
        host=to_access(row),
        kind=row.kind,
        vm_uuid=row.vm_uuid,
        name=row.name,
        assignment_id=row.assignment_id,
        asked=row.asked_by is not None,
    )


def finish_leftover(connection: Connection, key: UUID, *, now: datetime, actor: str) -> None:
    """Forget a leftover; if the host still has it, the next report finds it again."""
    row = connection.execute(select(leftovers).where(leftovers.c.id == key)).one_or_none()
    if row is None:
        return
    if not connection.execute(delete(leftovers).where(leftovers.c.id == key)).rowcount:
        return
    data = {"kind": row.kind, "leftover": row.name, "assignment": str(row.assignment_id)}
    record(connection, [event_row(now, actor, "leftover_removed", "host", row.host_id, data=data)])
