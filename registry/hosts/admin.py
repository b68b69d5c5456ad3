"""The administrative state of hosts, changed in a caller's transaction."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Connection, delete, func, select, update

from registry.audit.changes import HOST_ADMIN
from registry.db.clock import db_now
from registry.db.locks import lock_hosts
from registry.db.schema import assignments, hosts, strangers, unreleased, volumes
from registry.errors import ConflictError
from registry.ledger.volume_changes import lose_volumes
from registry.lifecycle import HostAdmin, HostAdminEvent


def change_admin(
    connection: Connection,
    key: UUID,
    event: HostAdminEvent,
    *,
    actor: str,
    reason: str | None = None,
    volumes_lost: bool = False,
) -> HostAdmin:
    """Change the administrative state of a host, and return the former one.

    With ``volumes_lost`` a host is retired with its volumes, whose files are lost.

    Raises
    ------
    ConflictError
        If it is to be retired and an assignment or a volume holds capacity there.
    IllegalTransitionError
        If the host is retired.
    """
    lock_hosts(connection, key)
    row = connection.execute(select(hosts.c.name, hosts.c.admin).where(hosts.c.id == key)).one()
    step = HOST_ADMIN.step(row.admin, event)
    if step.moved:
        if step.after == HostAdmin.RETIRED:
            _check_holds_no_vms(connection, key, row.name)
            if volumes_lost:
                lose_volumes(connection, key, now=db_now(connection), actor=actor)
            _check_holds_no_volumes(connection, key, row.name)
            # A retired host is not polled, so no poll would show that they are gone.
            connection.execute(delete(strangers).where(strangers.c.host_id == key))
        connection.execute(update(hosts).where(hosts.c.id == key).values(admin=step.after.value))
        now, data = db_now(connection), {"name": row.name}
        step.record_event(connection, now, actor, key, reason=reason, data=data)
    return step.before


def _check_holds_no_vms(connection: Connection, key: UUID, name: str) -> None:
    """Raise `ConflictError` if assignments hold capacity on a host that is to be retired."""
    held = connection.execute(
        select(func.count())
        .select_from(assignments)
        .where(assignments.c.host_id == key, unreleased)
    ).scalar_one()
    if held:
        raise ConflictError(
            f"host {name} cannot be retired: VMs that hold capacity there: {held};"
            f" `fuga host drain {name} --move --wait` moves them away first,"
            " and names those that may not move: these their tenants delete (`fuga rm VM`)"
        )


def _check_holds_no_volumes(connection: Connection, key: UUID, name: str) -> None:
    """Raise `ConflictError` if a host that is to be retired has files of volumes."""
    held = connection.execute(
        select(func.count()).select_from(volumes).where(volumes.c.host_id == key)
    ).scalar_one()
    if held:
        raise ConflictError(
            f"host {name} cannot be retired: volumes of tenants in its pool: {held};"
            f" `fuga volume list --host {name}` names them. Their tenants remove them (`fuga volume"
            f" remove`); if the pool is lost, type `fuga host remove {name} --volumes-lost`"
        )
