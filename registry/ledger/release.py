"""The end of assignments, with the same locks, rows and events for every cause.

A caller locks the VMs first and then their assignments (`lock_vms_and_assignments`). The ledger's
triggers lock inventories when capacity is released, and changes of requests lock the requests.
This is the order of `registry.db.locks`, so a transaction ends all its assignments in one call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, literal_column, or_, select

from registry.audit.changes import (
    ASSIGNMENT,
    VM_OBSERVED,
    Change,
    assignment_event_row,
    vm_event_row,
)
from registry.audit.events import record_events
from registry.db.bulk import chunks, is_any_of, update_each
from registry.db.locks import lock_vms
from registry.db.row_leases import ASSIGNMENTS
from registry.db.schema import (
    assignments,
    hosts,
    is_moving,
    request_images,
    tenants,
    unreleased,
    vms,
)
from registry.ledger.host_backoff import record_host_backoff
from registry.ledger.power import delete_power_changes
from registry.ledger.request_progress import recompute_states
from registry.ledger.shared_disks import keep_disks
from registry.ledger.volume_changes import release_volumes, unbind_volumes
from registry.lifecycle import AssignmentEvent, AssignmentState, VmDesired, VmObservedEvent
from registry.networks.addresses import free_addresses

_OTHER: Final = assignments.alias("other")
_OTHERS: Final = select(_OTHER.c.id).where(
    _OTHER.c.vm_id == vms.c.id,
    _OTHER.c.id != assignments.c.id,
    _OTHER.c.state != literal_column("'released'"),
)
#: Columns about the VM's other assignments, during or after a move.
OTHER_ASSIGNMENTS: Final = (
    _OTHERS.correlate(vms, assignments).exists().label("held_elsewhere"),
    _OTHERS.where(_OTHER.c.state == literal_column("'arriving'"))
    .correlate(vms, assignments)
    .exists()
    .label("moves"),
    is_moving(vms.c.id).label("is_moving"),
)
#: The assignments with all columns that an ending needs.
HELD: Final[Select[Any]] = (
    select(
        assignments.c.id,
        assignments.c.host_id,
        assignments.c.vm_id,
        assignments.c.state,
        vms.c.request_id,
        vms.c.observed,
        vms.c.desired,
        tenants.c.name.label("tenant"),
        hosts.c.name.label("host_name"),
        *OTHER_ASSIGNMENTS,
    )
    .select_from(assignments)
    .join(vms, vms.c.id == assignments.c.vm_id)
    .join(tenants, tenants.c.id == vms.c.tenant_id)
    .join(hosts, hosts.c.id == assignments.c.host_id)
    .where(unreleased)
    .order_by(assignments.c.id)
)
#: States in which a worker may be busy with the VM, and learns of the event at its next step.
_LEFT_TO_OWNER: Final = (AssignmentEvent.DELETE_REQUESTED, AssignmentEvent.MISSING)
_RESERVED: Final = assignments.c.state == AssignmentState.RESERVED.value
_NAMED: Final = 3  #: causes in the reason of a request


@dataclass(frozen=True)
class AssignmentRelease:
    """An event that ends one assignment."""

    row: Row[Any]  #: locked, with the columns of `HELD`
    event: AssignmentEvent
    reason: str | None = None

    @cached_property
    def step(self) -> Change[AssignmentState]:
        """Return the change of the assignment's state by this event."""
        return ASSIGNMENT.step(self.row.state, self.event)

    @property
    def frees_capacity(self) -> bool:
        """Whether the event releases the assignment, which frees its capacity."""
        return self.step.after == AssignmentState.RELEASED

    @property
    def deletes_vm(self) -> bool:
        """Whether the assignment's VM is deleted."""
        deleted = self.row.desired == VmDesired.DELETED.value
        return deleted or self.event == AssignmentEvent.DELETE_REQUESTED

    @property
    def unplaces_vm(self) -> bool:
        """Whether the VM then has no host, and so no domain that may run.

        Remains on the source of a move do not count. A VM that may have arrived at the destination
        still has a place. A deleted VM is gone when nothing is left of it on any host.
        """
        if self.deletes_vm:
            return self.frees_capacity and not self.row.held_elsewhere
        if self.step.before == AssignmentState.ARRIVING:
            return self.step.moved and not self.arrives and not self.row.held_elsewhere
        return (
            self.frees_capacity
            and self.step.before != AssignmentState.LEAVING
            and not self.row.moves
        )

    @property
    def arrives(self) -> bool:
        """Whether the assignment becomes the place of its VM, as a move has arrived."""
        return self.event == AssignmentEvent.ARRIVED


def lock_vms_and_assignments(
    connection: Connection, which: ColumnElement[bool]
) -> Sequence[Row[Any]]:
    """Lock and return the unreleased assignments that meet a condition, after their VMs."""
    there = select(assignments.c.vm_id).where(unreleased, which)
    keys = lock_vms(connection, vms.c.id.in_(there))
    if keys is None:
        return lock_assignments(connection, which)
    # Only of these VMs: an assignment of another VM may meet the condition since the read.
    return [
        row
        for some in chunks(sorted(keys))
        for row in lock_assignments(
            connection, and_(which, is_any_of(connection, assignments.c.vm_id, some))
        )
    ]


def lock_assignments(connection: Connection, which: ColumnElement[bool]) -> Sequence[Row[Any]]:
    """Lock and return the unreleased assignments that meet a condition; their VMs are locked."""
    query = HELD.where(which).with_for_update(of=assignments, key_share=True)
    return connection.execute(query).all()


def end_assignments(
    connection: Connection,
    endings: Sequence[AssignmentRelease],
    *,
    now: datetime,
    actor: str,
    reason: str | None = None,
    is_error: bool = False,
    **values: Any,
) -> None:
    """End assignments; requests whose VMs lost their places wait again.

    ``reason`` is stored for the requests. With ``is_error`` the VMs' tenants see it too.
    ``values`` are further columns of the assignments.
    """
    record_events(
        connection,
        write_releases(connection, endings, now=now, actor=actor, is_error=is_error, **values),
    )
    gone = [each.row for each in endings if each.unplaces_vm]
    delete_power_changes(connection, [row.vm_id for row in gone], now=now, actor=actor)
    recompute_states(
        connection, {row.request_id for row in gone}, now=now, actor=actor, reason=reason
    )


def write_releases(
    connection: Connection,
    endings: Sequence[AssignmentRelease],
    *,
    now: datetime,
    actor: str,
    is_error: bool = False,
    changed: Mapping[UUID, Mapping[str, Any]] = MappingProxyType({}),
    **values: Any,
) -> list[dict[str, Any]]:
    """Write the ends of assignments and the changes of their VMs; return the event rows.

    ``changed`` has further columns of VMs, also of those without an assignment.
    """
    history: list[dict[str, Any]] = []
    ends: dict[UUID, Mapping[str, Any]] = {}
    of_vms = dict(changed)
    gone: list[UUID] = []
    # By host, so that concurrent calls lock inventories in the same order.
    for each in sorted(endings, key=lambda each: (each.row.host_id, each.row.id)):
        row, step, change, change_vm = each.row, each.step, dict(values), dict[str, Any]()
        if not step.moved:
            continue
        history.append(assignment_event_row(step, row, now, actor, reason=each.reason))
        # Sent at once, without waiting for the resend interval.
        change |= {"state": step.after.value, "sent_at": None}
        if is_error:
            change["last_error"] = change_vm["last_error"] = each.reason
        if each.frees_capacity or each.event not in _LEFT_TO_OWNER:
            change |= ASSIGNMENTS.none
        if each.frees_capacity:
            change["released_at"] = now
        if each.unplaces_vm:
            if each.deletes_vm:
                change_vm["deleted_at"] = now
                gone.append(row.vm_id)
            seen = VM_OBSERVED.step(row.observed, VmObservedEvent.PROVEN_ABSENT)
            if seen.moved:
                change_vm["observed"] = seen.after.value
                history.append(vm_event_row(seen, row, now, actor, reason=each.reason))
        ends[row.id] = change
        if change_vm:
            of_vms[row.vm_id] = {**of_vms.get(row.vm_id, {}), **change_vm}
    # Before the triggers lock inventories.
    freed = [each.row.id for each in endings if each.frees_capacity]
    history += release_volumes(connection, freed, now=now, actor=actor)
    history += unbind_volumes(connection, gone, now=now, actor=actor)
    update_each(connection, assignments, ends)
    update_each(connection, vms, of_vms)
    free_addresses(connection, gone)
    return history


def release_unclaimed(
    connection: Connection, why: Mapping[UUID, str], *, now: datetime, actor: str
) -> None:
    """Release unclaimed assignments on hosts that cannot build them; their rows are locked."""
    rows = [
        row
        for some in chunks(sorted(why))
        for row in lock_vms_and_assignments(
            connection, and_(is_any_of(connection, assignments.c.host_id, some), _RESERVED)
        )
    ]
    reasons = sorted({why[row.host_id] for row in rows})
    more = [f"and {len(reasons) - _NAMED} more"] if len(reasons) > _NAMED else []
    event = AssignmentEvent.WITHDRAWN
    end_assignments(
        connection,
        [
            AssignmentRelease(row, event, f"{why[row.host_id]} and no worker had claimed it")
            for row in rows
        ],
        now=now,
        actor=actor,
        reason=", ".join(reasons[:_NAMED] + more),
    )


def end_builds(
    connection: Connection, host_id: UUID, image_id: UUID, *, reason: str, now: datetime, actor: str
) -> None:
    """End the builds that wait for an image on a host, which is locked.

    An assignment that was never claimed has no domain and is released. One that was claimed before
    the image went missing may have a domain: it is quarantined like any failed build. A build that
    is claimed now fails by itself.
    """
    of_image = (
        select(vms.c.id)
        .join(request_images, request_images.c.request_id == vms.c.request_id)
        .where(request_images.c.image_id == image_id)
    )
    creating = assignments.c.state == AssignmentState.CREATING.value
    rows = lock_vms_and_assignments(
        connection,
        and_(
            assignments.c.host_id == host_id,
            assignments.c.vm_id.in_(of_image),
            or_(_RESERVED, creating),
            ASSIGNMENTS.is_unclaimed(now),
        ),
    )
    for request_id in sorted({row.request_id for row in rows}):
        record_host_backoff(connection, request_id, host_id, now)
    failed, withdrawn = AssignmentEvent.FAILED, AssignmentEvent.WITHDRAWN
    reserved = AssignmentState.RESERVED.value
    end_assignments(
        connection,
        [
            AssignmentRelease(row, withdrawn if row.state == reserved else failed, reason)
            for row in rows
        ],
        now=now,
        actor=actor,
        reason=reason,
        is_error=True,
    )


def end_missing_vms(
    connection: Connection, rows: Sequence[Row[Any]], *, now: datetime, actor: str
) -> None:
    """Have workers remove the remains of missing VMs, which are then placed again."""
    lost = "host {} lost it; what was on its disk is lost"
    event = AssignmentEvent.MISSING
    endings = [AssignmentRelease(row, event, lost.format(row.host_name)) for row in rows]
    end_assignments(connection, endings, now=now, actor=actor, is_error=True)


def release_host(
    connection: Connection, host_id: UUID, host_name: str, *, now: datetime, actor: str
) -> int:
    """Release all assignments of a host that is proven to be off; return the number of VMs.

    A worker that is still busy with one of them has lost its claim: it can neither
    record that the domain started nor let it run. VMs on a shared pool keep their disks.
    """
    rows = lock_vms_and_assignments(connection, assignments.c.host_id == host_id)
    pool = keep_disks(connection, host_id, now=now)
    reason = (
        f"host {host_name} is off: what its VMs had on their disks is lost"
        if pool is None
        else f"host {host_name} is off: its VMs start elsewhere with their disks, which are in"
        f" the shared pool {pool}"
    )
    endings = [AssignmentRelease(row, AssignmentEvent.FENCED, reason) for row in rows]
    end_assignments(connection, endings, now=now, actor=actor, reason=reason)
    return len(rows)
