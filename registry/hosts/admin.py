"""The administrative state of hosts, changed in a caller's transaction."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Table, delete, func, select, update

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
            _check_is_empty(connection, key, row.name, volumes_lost=volumes_lost)
            if volumes_lost:
                lose_volumes(connection, key, now=db_now(connection), actor=actor)
            # A retired host is not polled, so no poll would show that they are gone.
            connection.execute(delete(strangers).where(strangers.c.host_id == key))
        connection.execute(update(hosts).where(hosts.c.id == key).values(admin=step.after.value))
        now, data = db_now(connection), {"name": row.name}
        step.record_event(connection, now, actor, key, reason=reason, data=data)
    return step.before


def _check_is_empty(connection: Connection, key: UUID, name: str, *, volumes_lost: bool) -> None:
    """Raise `ConflictError` if assignments or volumes are on a host that is to be retired."""
    reasons = []
    on_host = assignments.c.host_id == key
    if held := _count(connection, assignments, on_host & unreleased):
        reasons.append(
            f"VMs that hold capacity there: {held};"
            f" `fuga host drain {name} --move --wait` moves them away first,"
            " and names those that may not move: these their tenants delete (`fuga rm VM`)"
        )
    if not volumes_lost and (held := _count(connection, volumes, volumes.c.host_id == key)):
        reasons.append(
            f"volumes of tenants in its pool: {held};"
            f" `fuga volume list --host {name}` names them. Their tenants remove them (`fuga volume"
            f" remove`); if the pool is lost, type `fuga host remove {name} --volumes-lost`"
        )
    if reasons:
        raise ConflictError(f"host {name} cannot be retired: {'; also '.join(reasons)}")


def _count(connection: Connection, table: Table, which: ColumnElement[bool]) -> int:
    """Return how many rows of a table meet a condition."""
    query = select(func.count()).select_from(table).where(which)
    return int(connection.execute(query).scalar_one())
