"""Row locks of writers, and their order.

The order: tenants, hosts, groups of VMs, VMs, assignments, volumes, inventories, requests.

SQLite has one writer at a time. On PostgreSQL a statement sees what was
committed before it began, so a writer decides in three steps: lock the
rows that the decision depends on, read them in another statement, write. A query that
locks and joins at once would see the locked rows as they are and the joined
ones as they were.

- Requesting VMs locks the tenant.
- Requesting or placing VMs locks the tenant and the groups above it that have quotas.
- Changing an assignment's state locks its VM, or its host while the assignment is unclaimed.
- Changing a host's inventory locks the host.
- Requesting VMs with volumes locks the tenant and the volumes.
- Attaching a volume locks the VM and its host; a worker's step of a volume locks its host.

The ledger's triggers lock inventories, and `progress.recompute_states` locks requests. Rows of one
table are locked in the order of their keys. A writer that breaks the order (a person at a SQL
prompt) causes a deadlock. The database resolves it, and `engine.retry_on_rollback` tries again.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Select, func, select

from registry.db.bulk import chunks, is_any_of
from registry.db.dialect import has_one_writer
from registry.db.schema import assignments, hosts, tenants, unreleased, vm_groups, vms


def lock_tenants(connection: Connection, *keys: UUID) -> None:
    """Lock rows of tenants until this transaction ends.

    Until then other transactions cannot request VMs for them.
    """
    for some in chunks(sorted(keys)):
        _lock_rows(
            connection,
            select(tenants.c.id)
            .where(is_any_of(connection, tenants.c.id, some))
            .order_by(tenants.c.id),
        )


def lock_hosts(connection: Connection, *keys: UUID) -> None:
    """Lock rows of hosts: no other transaction writes to them until this one ends."""
    for some in chunks(sorted(keys)):
        _lock_rows(
            connection,
            select(hosts.c.id).where(is_any_of(connection, hosts.c.id, some)).order_by(hosts.c.id),
        )


def lock_groups(connection: Connection, keys: Collection[UUID]) -> None:
    """Lock rows of VM groups: no other transaction places VMs of them until this one ends."""
    for some in chunks(sorted(keys)):
        query = (
            select(vm_groups.c.id)
            .where(is_any_of(connection, vm_groups.c.id, some))
            .order_by(vm_groups.c.id)
        )
        _lock_rows(connection, query)


def lock_vms(connection: Connection, which: ColumnElement[bool]) -> Collection[UUID] | None:
    """Lock rows of VMs that meet a condition, return their ids; None on SQLite, which locks all."""
    return _lock_rows(connection, select(vms.c.id).where(which).order_by(vms.c.id), of=vms)


def lock_vms_on(connection: Connection, *host_ids: UUID) -> None:
    """Lock the rows of VMs with unreleased assignments on hosts."""
    for some in chunks(sorted(host_ids)):
        there = select(assignments.c.vm_id).where(
            is_any_of(connection, assignments.c.host_id, some), unreleased
        )
        lock_vms(connection, vms.c.id.in_(there))


def take_advisory_lock(connection: Connection, what: str) -> None:
    """Take an advisory lock until this transaction ends, for work that no row represents."""
    if not has_one_writer(connection):
        connection.execute(select(func.pg_advisory_xact_lock(zlib.crc32(what.encode()))))


def roll_back_when_idle(connection: Connection, after_s: float) -> None:
    """Have the server roll back this transaction if it is idle for ``after_s`` seconds.

    A process that is stopped while it holds locks must not block others for
    longer than its lease.
    """
    if not has_one_writer(connection):
        after_ms = f"{max(1, int(after_s * 1000))}ms"
        connection.execute(
            select(func.set_config("idle_in_transaction_session_timeout", after_ms, True))
        )


def _lock_rows(
    connection: Connection, query: Select[Any], of: Any = None
) -> Collection[UUID] | None:
    """Lock the rows of a query and return their keys; None on SQLite, which locks all."""
    if has_one_writer(connection):
        return None
    # Keys never change: who only refers to a locked row need not wait.
    return set(connection.scalars(query.with_for_update(of=of, key_share=True)))
