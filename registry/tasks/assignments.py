"""The workers' side of assignments: claims, results, and the handling of failures.

A claim is a lease on the row, known by its token. A takeover writes another token, so every later
call of the former owner raises `ClaimLostError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, func, select, update

from registry.audit.changes import ASSIGNMENT, VM_OBSERVED, assignment_event_row, vm_event_row
from registry.audit.events import record_events
from registry.db.clock import db_now
from registry.db.dialect import has_one_writer
from registry.db.engine import Repository, retry_on_rollback
from registry.db.host_access import HOST_COLUMNS, to_host_access
from registry.db.locks import lock_hosts, lock_vms
from registry.db.row_conversion import record_of
from registry.db.row_leases import ASSIGNMENTS, is_claimed
from registry.db.schema import (
    assignments,
    hosts,
    requests,
    tenants,
    unreleased,
    vm_type_resources,
    vm_types,
    vms,
)
from registry.errors import ClaimLostError
from registry.images.host_copies import image_on_host, lacks_image
from registry.ledger.host_backoff import BUILD_AVOID_S, record_host_backoff
from registry.ledger.release import OTHER_ASSIGNMENTS, AssignmentRelease, end_assignments
from registry.ledger.shared_disks import (
    delete_kept_disks,
    disk_name_of,
    is_disk_needed,
    machine_of_host,
    read_pool_neighbours,
)
from registry.lifecycle import (
    OUT_OF_REACH,
    AssignmentEvent,
    AssignmentState,
    VmDesired,
    VmObserved,
    VmObservedEvent,
)
from registry.networks.addresses import read_guest_network
from registry.records.work import Build, Claim, Due, Leftover, Removal
from registry.requests.guest_access import read_guest_access
from registry.tasks.leftovers import (
    claim_leftover,
    extend_leftover,
    finish_leftover,
    record_leftover_error,
)
from registry.tasks.outbox import send_due_tasks
from registry.tasks.overdue import is_overdue, overdue_builds
from registry.tasks.queues import WorkQueue

#: attempts that may fail for a passing reason before the assignment is given up
MAX_ATTEMPTS: Final = 5
HOLD_BACK_S: Final = 30
MAX_HOLD_BACK_S: Final = 600
_BUILDING: Final = (AssignmentState.CREATING.value, AssignmentState.ACTIVE.value)
_REMOVING: Final = (
    AssignmentState.RELEASING.value,
    AssignmentState.QUARANTINED.value,
    AssignmentState.LEAVING.value,
)
#: what proves that a VM was resumed
_BOOTED: Final = (VmObserved.RUNNING.value, VmObserved.STOPPED.value, VmObserved.LOST.value)

SELECT = (
    select(
        assignments,
        vms.c.name.label("vm_name"),
        vms.c.hostname,
        vms.c.request_id,
        vms.c.desired,
        vms.c.observed,
        tenants.c.name.label("tenant"),
        hosts.c.max_builds,
        hosts.c.failed_builds,
        hosts.c.shared_pool,
        machine_of_host().label("machine"),
        lacks_image(assignments.c.host_id, vms.c.request_id).label("lacks_image"),
        *OTHER_ASSIGNMENTS,
        *(column for column in HOST_COLUMNS if column.key != "host_id"),
    )
    .select_from(assignments)
    .join(vms, vms.c.id == assignments.c.vm_id)
    .join(tenants, tenants.c.id == assignments.c.tenant_id)
    .join(hosts, hosts.c.id == assignments.c.host_id)
    .with_for_update(of=assignments, key_share=True)
)


class Assignments(Repository):
    """Claims and results of builds, removals and leftovers that workers carry out."""

    def state(self, assignment_id: UUID) -> AssignmentState | None:
        """Return an assignment's state, or None if it does not exist."""
        query = select(assignments.c.state).where(assignments.c.id == assignment_id)
        with self._database.read() as connection:
            found = connection.scalars(query).one_or_none()
        return AssignmentState(found) if found is not None else None

    # ---- building -----------------------------------------------------------

    @retry_on_rollback
    def claim_build(self, assignment_id: UUID, owner: str, lease_s: float) -> Build | None:
        """Claim an assignment to build its VM, or to finish another worker's build.

        It returns None if this worker must not build it: another worker's lease is live, the build
        is finished or the VM is being removed, the host is out of reach or waits for the image or
        its storage, or the host has its maximum of claimed builds.
        """
        with self._database.write() as connection:
            row = _lock_assignment(connection, assignment_id, on_host=True)
            now = db_now(connection)
            if row is None or is_claimed(row, now) or row.health in OUT_OF_REACH:
                return None
            before = AssignmentState(row.state)
            if before == AssignmentState.RESERVED:
                event = AssignmentEvent.CLAIMED
            elif before == AssignmentState.CREATING or (
                before == AssignmentState.ACTIVE and row.observed not in _BOOTED
            ):
                event = AssignmentEvent.RECLAIMED
            else:
                return None
            unbuilt = before != AssignmentState.ACTIVE
            if unbuilt and (row.lacks_image or row.pool_silent_since is not None):
                return None
            if _count_claimed_builds(connection, row.host_id, now) >= row.max_builds:
                return None
            step = ASSIGNMENT.step(before, event)
            began_at = now if before == AssignmentState.RESERVED else row.build_began_at
            values = {"state": step.after.value, "build_began_at": began_at}
            token = ASSIGNMENTS.claim(connection, row.id, owner, lease_s, now=now, **values)
            record_events(connection, [assignment_event_row(step, row, now, owner)])
            claim = Claim(assignment_id=row.id, token=token)
            return to_build(connection, row, claim, step.after)

    @retry_on_rollback
    def extend(self, claim: Claim, lease_s: float) -> None:
        """Extend the claim on an assignment, also one that expired and was not taken over."""
        with self._database.write() as connection:
            _lock_claimed_assignment(connection, claim)
            ASSIGNMENTS.extend(connection, claim.assignment_id, lease_s)

    @retry_on_rollback
    def activate(self, claim: Claim) -> None:
        """Record that a build's domain exists and is paused; only then may it be resumed.

        Raises
        ------
        ClaimLostError
            If another worker claimed it, or the VM has been deleted. The caller
            destroys what it made.
        """
        with self._database.write() as connection:
            row = _lock_claimed_assignment(connection, claim)
            if row.state != AssignmentState.CREATING.value:
                raise ClaimLostError(f"assignment {claim.assignment_id}", f"it is {row.state}")
            step, now = ASSIGNMENT.step(row.state, AssignmentEvent.STARTED), db_now(connection)
            ASSIGNMENTS.update_row(connection, row.id, state=step.after.value, activated_at=now)
            record_events(connection, [assignment_event_row(step, row, now, row.lease_owner)])

    @retry_on_rollback
    def mark_running(self, claim: Claim) -> None:
        """Record that an assignment's VM runs, and release the worker's claim."""
        with self._database.write() as connection:
            row = _lock_claimed_assignment(connection, claim, on_host=True)
            if row.state not in (AssignmentState.ACTIVE.value, AssignmentState.RELEASING.value):
                raise ClaimLostError(f"assignment {claim.assignment_id}", f"it is {row.state}")
            now = db_now(connection)
            step = VM_OBSERVED.step(row.observed, VmObservedEvent.SEEN_RUNNING)
            seen = {"observed": step.after.value, "last_error": None}
            connection.execute(update(vms).where(vms.c.id == row.vm_id).values(**seen))
            if row.disk_of is not None:
                delete_kept_disks(connection, [row.vm_id])  # it runs with it
            if step.moved:
                record_events(connection, [vm_event_row(step, row, now, row.lease_owner)])
            connection.execute(
                update(hosts)
                .where(hosts.c.id == row.host_id, hosts.c.failed_builds > 0)
                .values(failed_builds=0)
            )
            ASSIGNMENTS.release_claim(connection, row.id, last_error=None)

    @retry_on_rollback
    def record_failure(
        self, claim: Claim, error: str, *, transient: bool, build_avoid_s: float = BUILD_AVOID_S
    ) -> None:
        """Record that a build failed, and release the claim.

        A transient failure is tried again, up to five times. Any other failure quarantines the
        assignment: its domain may exist, so it keeps its capacity until the domain is proven
        absent. The request avoids the host for a while, and the host gets no VMs for 30 s, doubled
        with each failed build in a row.
        """
        with self._database.write() as connection:
            row = _lock_claimed_assignment(connection, claim, on_host=True)
            failed = AssignmentRelease(row, AssignmentEvent.FAILED, error)
            again = transient and row.attempts + 1 < MAX_ATTEMPTS
            # A VM that a poll saw running is no failed build, whatever this worker saw.
            settled = row.state == AssignmentState.ACTIVE.value and row.observed in _BOOTED
            if again or settled or not failed.step.moved:  # a removal goes on, later
                connection.execute(
                    update(vms).where(vms.c.id == row.vm_id).values(last_error=error)
                )
                attempts = row.attempts + 1
                ASSIGNMENTS.retry_later(connection, row.id, attempts=attempts, last_error=error)
                return
            now = db_now(connection)
            _quarantine_builds(
                connection, [failed], now=now, actor=row.lease_owner, build_avoid_s=build_avoid_s
            )

    @retry_on_rollback
    def end_overdue(
        self,
        build_timeout_s: float,
        *,
        actor: str = "control",
        build_avoid_s: float = BUILD_AVOID_S,
    ) -> tuple[UUID, ...]:
        """End builds that exceed the timeout without a domain; return their ids.

        A worker loses its claim, which its next step detects. The build ends as a failed one does:
        it is quarantined until its domain is proven absent.
        """
        with self._database.write() as connection:
            found = overdue_builds(connection, build_timeout_s, now=db_now(connection))
            if not found:
                return ()
            lock_hosts(connection, *{row.host_id for row in found})
            lock_vms(connection, vms.c.id.in_([row.vm_id for row in found]))
            now = db_now(connection)
            reason = f"its build took longer than {build_timeout_s:g} s"
            these = SELECT.where(assignments.c.id.in_([row.id for row in found]))
            endings = [
                AssignmentRelease(row, AssignmentEvent.FAILED, reason)
                for row in connection.execute(these.order_by(assignments.c.id))
                if is_overdue(row, build_timeout_s, now)
            ]
            _quarantine_builds(
                connection, endings, now=now, actor=actor, build_avoid_s=build_avoid_s
            )
            return tuple(each.row.id for each in endings)

    # ---- removing -----------------------------------------------------------

    @retry_on_rollback
    def claim_removal(self, assignment_id: UUID, owner: str, lease_s: float) -> Removal | None:
        """Claim an assignment to remove its VM, or to prove a failed build absent."""
        with self._database.write() as connection:
            row = _lock_assignment(connection, assignment_id)
            now = db_now(connection)
            if row is None or row.state not in _REMOVING or is_claimed(row, now):
                return None
            token = ASSIGNMENTS.claim(connection, row.id, owner, lease_s, now=now)
            disk_of = None if is_disk_needed(connection, row) else disk_name_of(row)
            return Removal(
                claim=Claim(assignment_id=row.id, token=token),
                vm_id=row.vm_id,
                generation=row.generation,
                quarantined=row.state == AssignmentState.QUARANTINED.value,
                left_behind=row.state == AssignmentState.LEAVING.value
                and row.desired != VmDesired.DELETED.value,
                disk_of=disk_of,
                request_id=row.request_id,
                host=to_host_access(row),
                neighbours=() if disk_of is None else read_pool_neighbours(connection, row),
            )

    @retry_on_rollback
    def release(self, claim: Claim) -> None:
        """Record that an assignment's domain is proven absent, and free the capacity."""
        with self._database.write() as connection:
            row = _lock_claimed_assignment(connection, claim)
            now = db_now(connection)
            endings = [AssignmentRelease(row, AssignmentEvent.PROVEN_ABSENT)]
            end_assignments(connection, endings, now=now, actor=row.lease_owner)

    @retry_on_rollback
    def yield_claim(self, claim: Claim, error: str | None) -> None:
        """Release the claim on an unfinished build or removal, which is sent again later."""
        with self._database.write() as connection:
            row = _lock_claimed_assignment(connection, claim)
            values: dict[str, Any] = {"last_error": error} if error is not None else {}
            if error is not None:
                connection.execute(
                    update(vms).where(vms.c.id == row.vm_id).values(last_error=error)
                )
            ASSIGNMENTS.retry_later(connection, row.id, **values)

    # ---- the sweep ----------------------------------------------------------

    @retry_on_rollback
    def send_due_tasks(
        self,
        limit: int = 200,
        resend_after_s: float = 10,
        host_id: UUID | None = None,
        *,
        waiting: Mapping[WorkQueue, int] | None = None,
    ) -> tuple[Due, ...]:
        """Return due tasks without a worker, and mark them as sent; see `outbox.send_due_tasks`."""
        with self._database.write() as connection:
            now = db_now(connection)
            return send_due_tasks(
                connection, limit, resend_after_s, now=now, host_id=host_id, waiting=waiting
            )

    @retry_on_rollback
    def claim_leftover(self, id: UUID, owner: str, lease_s: float) -> Leftover | None:  # noqa: A002
        """Claim a leftover domain or volume to remove it; None if it is gone or claimed."""
        with self._database.write() as connection:
            return claim_leftover(connection, id, owner, lease_s, now=db_now(connection))

    @retry_on_rollback
    def extend_leftover(self, leftover: Leftover, lease_s: float) -> None:
        """Extend a claim on a leftover; raise `ClaimLostError` if another has it, or it is gone."""
        with self._database.write() as connection:
            extend_leftover(connection, leftover, lease_s)

    @retry_on_rollback
    def record_leftover_error(self, leftover: Leftover, error: str) -> None:
        """Store why a leftover was not removed; raise the errors of `extend_leftover`."""
        with self._database.write() as connection:
            record_leftover_error(connection, leftover, error)

    @retry_on_rollback
    def finish_leftover(self, id: UUID, *, actor: str = "worker") -> None:  # noqa: A002
        """Delete the row of a removed leftover."""
        with self._database.write() as connection:
            finish_leftover(connection, id, now=db_now(connection), actor=actor)


def to_build(connection: Connection, row: Row[Any], claim: Claim, state: AssignmentState) -> Build:
    """Return the build of an assignment's VM, from a row of `SELECT`."""
    # Of its type: the overhead that the assignment holds is not the guest's.
    amounts = connection.execute(
        select(vm_type_resources.c.resource, vm_type_resources.c.amount)
        .join(requests, requests.c.vm_type_id == vm_type_resources.c.vm_type_id)
        .where(requests.c.id == row.request_id)
        .order_by(vm_type_resources.c.resource)
    )
    limits = connection.scalar(
        select(vm_types.c.limits)
        .join(requests, requests.c.vm_type_id == vm_types.c.id)
        .where(requests.c.id == row.request_id)
    )
    return record_of(
        Build,
        row,
        claim=claim,
        state=state,
        disk_generation=row.disk_generation or row.generation,
        disk_of=disk_name_of(row),
        resources={each.resource: each.amount for each in amounts},
        host=to_host_access(row),
        access=read_guest_access(connection, row.request_id, row.tenant_id),
        network=read_guest_network(connection, row.vm_id, row.host_id),
        failed_before=row.attempts,
        image=image_on_host(connection, row.request_id, row.host_id),
        limits=limits or {},
    )


def _lock_assignment(
    connection: Connection, key: UUID, *, on_host: bool = False
) -> Row[Any] | None:
    """Lock an assignment and its VM (with ``on_host`` also the host) and return the row."""
    fixed = select(assignments.c.host_id, assignments.c.vm_id).where(assignments.c.id == key)
    row = None if has_one_writer(connection) else connection.execute(fixed).one_or_none()
    if row is not None:
        if on_host:
            lock_hosts(connection, row.host_id)
        lock_vms(connection, vms.c.id == row.vm_id)
    return connection.execute(SELECT.where(assignments.c.id == key)).one_or_none()


def _lock_claimed_assignment(
    connection: Connection, claim: Claim, *, on_host: bool = False
) -> Row[Any]:
    """Lock and return the row of a claimed assignment, or raise `ClaimLostError`."""
    key = claim.assignment_id
    return ASSIGNMENTS.check_claim(
        _lock_assignment(connection, key, on_host=on_host), key, claim.token
    )


def _count_claimed_builds(connection: Connection, host_id: UUID, now: datetime) -> int:
    """Return how many builds of a host workers have claimed."""
    return connection.execute(
        select(func.count())
        .select_from(assignments)
        .where(
            assignments.c.host_id == host_id,
            unreleased,
            assignments.c.state.in_(_BUILDING),
            assignments.c.lease_until > now,
        )
    ).scalar_one()


def _quarantine_builds(
    connection: Connection,
    endings: Sequence[AssignmentRelease],
    *,
    now: datetime,
    actor: str,
    build_avoid_s: float,
) -> None:
    """Quarantine failed builds, and keep VMs from their hosts, which are locked, for a while."""
    attempts = assignments.c.attempts + 1
    end_assignments(connection, endings, now=now, actor=actor, is_error=True, attempts=attempts)
    failed_builds = {each.row.host_id: each.row.failed_builds for each in endings}
    for each in endings:
        record_host_backoff(connection, each.row.request_id, each.row.host_id, now, build_avoid_s)
        failed_builds[each.row.host_id] += 1
    for host_id, number in failed_builds.items():
        hold_back_s = min(HOLD_BACK_S * 2 ** min(number - 1, 10), MAX_HOLD_BACK_S)
        until = now + timedelta(seconds=hold_back_s)
        values = {"failed_builds": number, "backoff_until": until}
        connection.execute(update(hosts).where(hosts.c.id == host_id).values(**values))
