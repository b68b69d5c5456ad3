"""Leftovers: domains and volumes of released assignments, claimed and removed by workers."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, delete, select

from registry.audit.events import record_event
from registry.db.host_access import HOST_COLUMNS, to_host_access
from registry.db.row_conversion import record_of
from registry.db.row_leases import LEFTOVERS, is_claimed
from registry.db.schema import assignments, hosts, leftovers
from registry.errors import ClaimLostError
from registry.ledger.shared_disks import disks_in_use, machine_of_host, read_pool_neighbours
from registry.lifecycle import OUT_OF_REACH, AssignmentState, HostAdmin
from registry.records.work import Leftover


def claim_leftover(
    connection: Connection, key: UUID, owner: str, lease_s: float, *, now: datetime
) -> Leftover | None:
    """Claim a leftover domain or volume; None if it is gone, out of reach, or claimed."""
    row = connection.execute(
        select(
            leftovers,
            hosts.c.returning_since,
            hosts.c.shared_pool,
            machine_of_host().label("machine"),
            *(column for column in HOST_COLUMNS if column.key != "host_id"),
        )
        .select_from(leftovers)
        .join(hosts, hosts.c.id == leftovers.c.host_id)
        .where(leftovers.c.id == key, hosts.c.admin != HostAdmin.RETIRED.value)
        .with_for_update(of=leftovers)
    ).one_or_none()
    if row is None or (row.health in OUT_OF_REACH and row.returning_since is None):
        return None
    if row.pool_silent_since is not None:
        return None
    if is_claimed(row, now):
        return None
    token = LEFTOVERS.claim(connection, key, owner, lease_s, now=now)
    its = [row.assignment_id] if row.assignment_id is not None else []
    marked = select(assignments.c.state).where(assignments.c.id.in_(its))
    states = connection.scalars(marked).all()
    # What this ledger never made, or has forgotten, may be the disk of another site's VM.
    stays = bool(its) and AssignmentState.RELEASED.value not in states
    return record_of(
        Leftover,
        row,
        token=token,
        owner=owner,
        host=to_host_access(row),
        requested=row.requested_by is not None,
        disk_stays=stays or bool(disks_in_use(connection, its)),
        seed_stays=stays,
        neighbours=read_pool_neighbours(connection, row),
    )


def extend_leftover(connection: Connection, leftover: Leftover, lease_s: float) -> None:
    """Extend the claim on a leftover domain or volume, unless it was taken over."""
    _check_leftover_claim(connection, leftover)
    LEFTOVERS.extend(connection, leftover.id, lease_s)


def record_leftover_error(connection: Connection, leftover: Leftover, error: str) -> None:
    """Store why a claimed leftover domain or volume was not removed; its claim stays."""
    _check_leftover_claim(connection, leftover)
    LEFTOVERS.update_row(connection, leftover.id, last_error=error)


def _check_leftover_claim(connection: Connection, leftover: Leftover) -> None:
    """Lock a claimed leftover; raise `ClaimLostError` if it is gone or claimed by another."""
    query = select(leftovers.c.lease_owner, leftovers.c.lease_token)
    query = query.where(leftovers.c.id == leftover.id).with_for_update()
    row = connection.execute(query).one_or_none()
    # The owner too: an earlier release claims without a token.
    if row is None or (row.lease_owner, row.lease_token) != (leftover.owner, leftover.token):
        why = "it is gone" if row is None else f"{row.lease_owner} has it"
        raise ClaimLostError(f"removal {leftover.id}", why)


def finish_leftover(connection: Connection, key: UUID, *, now: datetime, actor: str) -> None:
    """Delete the row of a removed leftover; if it is still there, the next poll finds it again."""
    row = connection.execute(select(leftovers).where(leftovers.c.id == key)).one_or_none()
    if row is None:
        return
    if not connection.execute(delete(leftovers).where(leftovers.c.id == key)).rowcount:
        return
    data = {"kind": row.kind, "leftover": row.name, "assignment": str(row.assignment_id)}
    record_event(connection, now, actor, "leftover_removed", "host", row.host_id, data=data)
