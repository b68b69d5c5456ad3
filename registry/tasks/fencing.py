"""Fencing: proves that a host that is down is off, before its VMs are placed elsewhere.

A row of `host_fences` is the workers' message. The leading control centre writes it, and a worker
runs the operator's command. Only the command's success frees what the host holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, Connection, Row, Select, or_, select

from registry.audit.events import record_event
from registry.db.clock import db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.locks import lock_hosts
from registry.db.row_leases import FENCES
from registry.db.schema import (
    assignments,
    events,
    host_fences,
    hosts,
    is_place,
    preserved_disks,
    unreleased,
)
from registry.errors import ClaimLostError, ConflictError, NotFoundError
from registry.hosts.machine_addresses import other_address_of_machine
from registry.hosts.unaccounted_items import running_on_other_hosts
from registry.hosts.validation import host_with_fence_target
from registry.ledger.failure_policy import FailurePolicy, failure_policy_of, is_replaced
from registry.ledger.fences import OPEN, change_fence, fence_row, is_being_fenced
from registry.ledger.release import release_host
from registry.lifecycle import AssignmentState, FenceEvent, FenceState, HostAdmin, HostHealth
from registry.records.hosts import FenceOrder
from registry.records.liveness import Lease
from registry.rounds.leases import check_epoch

#: After a failure it is tried again, each time after twice as long.
RETRY_DELAY_S: Final = 60
MAX_RETRY_DELAY_S: Final = 3600
_RUNS_ELSEWHERE: Final = (
    "{found}. It may be the same machine: if so, retire the other host and give this one its new"
    " address (`fuga host set NAME --uri URI`); if not, shut these VMs down there"
)
#: a maintained host is down because of work on it
_ATTENDED: Final = (HostAdmin.MAINTENANCE.value, HostAdmin.RETIRED.value)
_WAITS: Final = "host_vms_wait"
_ONLY_THERE: Final = (
    "on_failure=replace loses no disk, and the disks of its VMs are on this host alone: they wait"
    " for it. On a shared pool (label shared_pool=NAME) they would start elsewhere with their"
    " disks; on_failure=rebuild rebuilds them from their images, and loses what they had written"
)
_SAME_TARGET: Final = (
    "its fence target {target} is that of host {owner}, too, which may be on: give each a target of"
    " its own (`fuga host set NAME --fence-target TARGET`)"
)
_NO_TARGET: Final = "it has no fence target: `fuga host set NAME --fence-target TARGET`"


class Fencing(Repository):
    """Requests the fencing of hosts, and records the results."""

    @retry_on_rollback
    def request_for_failed_hosts(
        self, lease: Lease, *, by_default: FailurePolicy = FailurePolicy.WAIT
    ) -> tuple[str, ...]:
        """Request fencing of every host that is down and whose VMs are to be placed elsewhere.

        If only the host itself has the VMs' disks, an event records that the VMs wait. No fencing
        is requested while more than half of the hosts do not answer, as the monitor is then
        probably cut off. Hosts in maintenance are left out.

        Raises
        ------
        StaleEpochError
            If the lease is not the current one of the control centre.
        """
        with self._database.write() as connection:
            check_epoch(connection, lease.name, lease.holder, lease.epoch, until_commit=True)
            now = db_now(connection)
            failed = [
                (row, failure_policy_of(row.labels, by_default=by_default))
                for row in _hosts_to_fence(connection, now)
            ]
            found = [row for row, wanted in failed if is_replaced(wanted, row.shared_pool)]
            waits = [
                row
                for row, wanted in failed
                if wanted is FailurePolicy.REPLACE and row.shared_pool is None
            ]
            _record_waiting_reasons(connection, waits, now=now, actor=lease.holder)
            if not found or _is_majority_silent(connection):
                return ()
            lock_hosts(connection, *(row.id for row in found))
            # Read again under the lock: the rows may have changed just before.
            still = {row.id for row in _hosts_to_fence(connection, now)}
            still_failed = [row for row in found if row.id in still]
            for row in still_failed:
                _request_fence(connection, row, now=now, actor=lease.holder, epoch=lease.epoch)
            return tuple(row.name for row in still_failed)

    @retry_on_rollback
    def request(self, name: str, *, actor: str) -> None:
        """Request the fencing of one host, whatever its labels say, unless it is pending.

        Raises
        ------
        ConflictError
            If the host is not down, counts as off already, nothing says how to fence it, or its
            machine or its VMs are seen elsewhere.
        """
        with self._database.write() as connection:
            host = _lock_down_host(connection, name, "fenced")
            if host.fence_target is None:
                raise ConflictError(f"host {name} cannot be fenced: {_NO_TARGET}")
            if why := _why_not_off(connection, host.id):
                raise ConflictError(f"host {name} cannot be fenced: {why}")
            row = fence_row(connection, host.id)
            if row is not None and row.state == FenceState.FENCED.value:
                raise ConflictError(
                    f"host {name} counts as off since {row.fenced_at:%Y-%m-%d %H:%M:%S} UTC, when"
                    " its command succeeded or an operator confirmed it: its VMs are placed"
                    " elsewhere, and the command is not run again. If it is on all the same,"
                    " switch it off yourself"
                )
            if row is None or row.state == FenceState.FAILED.value:
                _request_fence(connection, host, now=db_now(connection), actor=actor)

    @retry_on_rollback
    def confirm(self, name: str, *, actor: str) -> int:
        """Confirm for an operator that a host is off; return the number of VMs it held.

        Raises
        ------
        ConflictError
            If the host is not down, its command runs at this moment, or its machine or its VMs
            are seen elsewhere.
        """
        with self._database.write() as connection:
            host = _lock_down_host(connection, name, "taken for off")
            row, now = fence_row(connection, host.id), db_now(connection)
            if is_being_fenced(row, now):
                raise ConflictError(f"host {name} is being fenced: wait for what comes of it")
            if why := _why_not_off(connection, host.id):
                raise ConflictError(f"host {name} cannot be taken for off: {why}")
            _end_fence(connection, row, host, FenceEvent.CONFIRMED, now=now, actor=actor)
            return release_host(connection, host.id, host.name, now=now, actor=actor)

    def has_kept_disk(self, vm_id: UUID) -> bool:
        """Return whether a VM without a host has a kept disk in a shared pool."""
        with self._database.read() as connection:
            kept = select(preserved_disks.c.vm_id).where(preserved_disks.c.vm_id == vm_id)
            return connection.execute(kept).first() is not None

    # ---- workers ------------------------------------------------------------

    @retry_on_rollback
    def claim(self, host_id: UUID, owner: str, lease_s: float) -> FenceOrder | None:
        """Claim a host to fence it; None if no fencing is requested, or it is claimed.

        The fencing fails while its machine answers as another host, or another host reports its
        VMs as running: they would be started twice, and no command proves that they are off.
        """
        with self._database.write() as connection:
            lock_hosts(connection, host_id)
            host = _fenced_host_row(connection, hosts.c.id == host_id)
            row, now = fence_row(connection, host_id), db_now(connection)
            if host is None or row is None or row.state not in OPEN or is_being_fenced(row, now):
                return None
            if not _is_silent(host) or host.admin == HostAdmin.RETIRED.value:
                return None
            why = _why_not_off(connection, host_id) or _why_other_is_fenced(connection, host)
            if why is not None:
                _retry_fencing_later(connection, row, host, why, now=now, actor=owner)
                return None
            token = uuid4()
            is_pending = row.state == FenceState.PENDING.value
            change_fence(
                connection,
                row,
                FenceEvent.CLAIMED if is_pending else FenceEvent.RECLAIMED,
                host_id=host.id,
                host_name=host.name,
                now=now,
                actor=owner,
                **FENCES.claim_values(owner, lease_s, token, now=now),
            )
            return FenceOrder(
                host_id=host.id, host=host.name, target=host.fence_target or "", token=token
            )

    @retry_on_rollback
    def extend_claim(self, order: FenceOrder, lease_s: float) -> None:
        """Extend the claim on a host's fencing before the command, or raise `ClaimLostError`."""
        with self._database.write() as connection:
            _lock_claimed_host_and_fence(connection, order)
            FENCES.extend(connection, order.host_id, lease_s)

    @retry_on_rollback
    def record_success(self, order: FenceOrder) -> int:
        """Record that a fenced host is off, and release its assignments; return how many VMs."""
        with self._database.write() as connection:
            host, row = _lock_claimed_host_and_fence(connection, order)
            now = db_now(connection)
            owner = row.lease_owner
            _end_fence(connection, row, host, FenceEvent.SUCCEEDED, now=now, actor=owner)
            return release_host(connection, host.id, host.name, now=now, actor=owner)

    @retry_on_rollback
    def record_failure(self, order: FenceOrder, error: str) -> None:
        """Record that the fencing failed; the host's assignments stay."""
        with self._database.write() as connection:
            host, row = _lock_claimed_host_and_fence(connection, order)
            owner = row.lease_owner
            _retry_fencing_later(connection, row, host, error, now=db_now(connection), actor=owner)


def _why_not_off(connection: Connection, host_id: UUID) -> str | None:
    """Return why a silent host is not off: its VMs or its machine are seen elsewhere; or None."""
    if found := running_on_other_hosts(connection, host_id):
        return _RUNS_ELSEWHERE.format(found=found)
    return other_address_of_machine(connection, host_id)


def _why_other_is_fenced(connection: Connection, host: Row[Any]) -> str | None:
    """Return that a host's fence target would switch another host off; or None."""
    target = host.fence_target
    if target is None:
        return None
    owner = host_with_fence_target(connection, target, apart_from=host.id)
    return None if owner is None else _SAME_TARGET.format(target=target, owner=owner)


def _hosts_to_fence(connection: Connection, now: datetime) -> list[Row[Any]]:
    """Return the hosts that are down, hold VMs, and have no fencing yet."""
    held = select(assignments.c.id).where(
        assignments.c.host_id == hosts.c.id,
        is_place,
        unreleased,
        assignments.c.state != AssignmentState.RESERVED.value,
    )
    idle = or_(
        host_fences.c.host_id.is_(None),
        (host_fences.c.state == FenceState.FAILED.value) & (host_fences.c.retry_at <= now),
    )
    query = (
        select(hosts.c.id, hosts.c.name, hosts.c.labels, hosts.c.fence_target, hosts.c.shared_pool)
        .outerjoin(host_fences, host_fences.c.host_id == hosts.c.id)
        .where(
            hosts.c.health == HostHealth.DOWN.value,
            hosts.c.admin.not_in(_ATTENDED),
            hosts.c.returning_since.is_(None),
            # Its machine may run as another host: to fence it is for operators alone.
            hosts.c.same_machine_as.is_(None),
            held.exists(),
            idle,
        )
        .order_by(hosts.c.id)
    )
    return list(connection.execute(query))


def _record_waiting_reasons(
    connection: Connection, rows: Iterable[Row[Any]], *, now: datetime, actor: str
) -> None:
    """Add one event for each failure of a host with the reason why its VMs wait."""
    for row in rows:
        last = (
            select(events.c.kind)
            .where(events.c.subject_id == str(row.id), events.c.kind.in_([_WAITS, "host_health"]))
            .order_by(events.c.id.desc())
            .limit(1)
        )
        if connection.scalar(last) != _WAITS:
            data = {"name": row.name}
            record_event(
                connection, now, actor, _WAITS, "host", row.id, reason=_ONLY_THERE, data=data
            )


def _is_majority_silent(connection: Connection) -> bool:
    """Return whether more than half of the hosts do not answer: the monitor may be cut off."""
    healths = connection.scalars(
        select(hosts.c.health).where(
            hosts.c.admin.not_in(_ATTENDED), hosts.c.health != HostHealth.ENROLLING.value
        )
    ).all()
    silent = sum(health != HostHealth.UP.value for health in healths)
    return bool(2 * silent > len(healths))


def _request_fence(
    connection: Connection, host: Row[Any], *, now: datetime, actor: str, epoch: int | None = None
) -> None:
    """Request the fencing of a host that is down, and record the event."""
    row = fence_row(connection, host.id)
    values: dict[str, Any] = {"requested_by": actor, "requested_at": now, "sent_at": None}
    change_fence(
        connection,
        row,
        FenceEvent.REQUESTED,
        host_id=host.id,
        host_name=host.name,
        now=now,
        actor=actor,
        epoch=epoch,
        **values,
    )
    if host.fence_target is None:
        row = fence_row(connection, host.id)
        _retry_fencing_later(connection, row, host, _NO_TARGET, now=now, actor=actor)


def _retry_fencing_later(
    connection: Connection,
    row: Row[Any] | None,
    host: Row[Any],
    error: str,
    *,
    now: datetime,
    actor: str,
) -> None:
    """Record that a host's fencing failed; the pause before the next try grows."""
    attempts = row.attempts + 1 if row is not None else 1
    pause_s = min(RETRY_DELAY_S * 2 ** min(attempts - 1, 10), MAX_RETRY_DELAY_S)
    change_fence(
        connection,
        row,
        FenceEvent.FAILED,
        host_id=host.id,
        host_name=host.name,
        now=now,
        actor=actor,
        reason=error,
        attempts=attempts,
        last_error=error,
        retry_at=now + timedelta(seconds=pause_s),
        **FENCES.none,
    )


def _end_fence(
    connection: Connection,
    row: Row[Any] | None,
    host: Row[Any],
    event: FenceEvent,
    *,
    now: datetime,
    actor: str,
) -> None:
    """Record that a host is off, by its fencing or by an operator, and end the fencing."""
    change_fence(
        connection,
        row,
        event,
        host_id=host.id,
        host_name=host.name,
        now=now,
        actor=actor,
        fenced_at=now,
        last_error=None,
        retry_at=None,
        **FENCES.none,
    )


def _fenced_host_row(connection: Connection, which: ColumnElement[bool]) -> Row[Any] | None:
    """Return what fencing needs of the host that meets a condition, or None."""
    columns = (
        hosts.c.id,
        hosts.c.name,
        hosts.c.admin,
        hosts.c.health,
        hosts.c.fence_target,
        hosts.c.returning_since,
    )
    query: Select[Any] = select(*columns).where(which)
    return connection.execute(query).one_or_none()


def _is_silent(host: Row[Any]) -> bool:
    """Return whether a host is down and not returning, so that it may be fenced."""
    return bool(host.health == HostHealth.DOWN.value and host.returning_since is None)


def _lock_down_host(connection: Connection, name: str, what: str) -> Row[Any]:
    """Lock a host by name; raise `ConflictError` unless it is down."""
    here = (hosts.c.name == name) & (hosts.c.admin != HostAdmin.RETIRED.value)
    found = _fenced_host_row(connection, here)
    if found is None:
        raise NotFoundError("host", name)
    lock_hosts(connection, found.id)
    host = _fenced_host_row(connection, hosts.c.id == found.id)
    assert host is not None  # noqa: S101 - hosts are never deleted
    if not _is_silent(host):
        found_as = host.health if host.returning_since is None else "answering again"
        raise ConflictError(f"host {name} cannot be {what}: it is {found_as}, and has to be down")
    return host


def _lock_claimed_host_and_fence(
    connection: Connection, order: FenceOrder
) -> tuple[Row[Any], Row[Any]]:
    """Lock the host and its fencing that a worker claimed, or raise `ClaimLostError`."""
    lock_hosts(connection, order.host_id)
    host = _fenced_host_row(connection, hosts.c.id == order.host_id)
    row = fence_row(connection, order.host_id)
    if host is None or row is None:
        raise ClaimLostError(f"the fencing of host {order.host}", "it is over")
    return host, FENCES.check_claim(row, order.host_id, order.token)
