"""Tenants, the parties whose share is accounted, and the groups that they form."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, delete, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from registry.audit.events import event_row, record_event, record_events
from registry.db.clock import UtcNow, db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.idempotency_keys import store_result
from registry.db.ids import uuid7
from registry.db.names import WORDS, WORDS_OF_CALLERS, check_new_name, check_weight, lookup_name
from registry.db.pages import (
    DEFAULT_LIMIT,
    Page,
    check_limit,
    decode_cursor,
    ids_by_name,
    name_contains,
    page_of,
)
from registry.db.row_conversion import record_of
from registry.db.schema import (
    budgets,
    network_offers,
    quotas,
    requests,
    reservations,
    tenants,
    tokens,
    vms,
)
from registry.errors import ConflictError, DuplicateError, NotFoundError
from registry.lifecycle import FINISHED, OPEN_RESERVATIONS
from registry.records.tenancy import MoveTo, Tenant
from registry.tenancy.quota_use import read_limits
from registry.tenancy.quotas import set_default_limits
from registry.tenancy.tree import check_parent, group_id, lock_tree

_parent = tenants.alias("parent")
_SELECT = select(tenants, _parent.c.name.label("parent")).outerjoin(
    _parent, tenants.c.parent_id == _parent.c.id
)
_LIVE = tenants.c.removed_at.is_(None)


class Tenants(Repository):
    """Adds, reads, changes and removes tenants and groups."""

    @retry_on_rollback
    def add(
        self,
        name: str,
        *,
        weight: float = 1.0,
        parent: str | None = None,
        is_group: bool = False,
        default_quota: Mapping[str, int] = MappingProxyType({}),
        actor: str,
    ) -> Tenant:
        """Add a tenant, or a group, under the group ``parent``.

        ``default_quota`` are the limits that a tenant begins with; groups have none.

        Raises
        ------
        DuplicateError
            If the name is taken.
        ConflictError
            If it was a removed tenant's, whose history keeps it.
        InvalidError
            If ``parent`` is a tenant, which can have none below it.
        """
        with self._database.write() as connection:
            added = add_tenant(
                connection,
                name,
                weight=weight,
                parent=parent,
                is_group=is_group,
                default_quota=default_quota,
                actor=actor,
            )
            return store_result(connection, added)

    def list(
        self, *, search: str | None = None, limit: int = DEFAULT_LIMIT, cursor: str | None = None
    ) -> Page[Tenant]:
        """Return a page of existing tenants and groups, by name; ``search`` is part of it."""
        query = _SELECT.where(_LIVE, *name_contains(tenants.c.name, search)).order_by(
            tenants.c.name
        )
        query = query.limit(check_limit(limit) + 1)
        if cursor is not None:
            (after,) = decode_cursor(cursor, str)
            query = query.where(tenants.c.name > after)
        with self._database.read() as connection:
            rows = [_to_tenant(row) for row in connection.execute(query)]
        return page_of(rows, limit, lambda tenant: (tenant.name,))

    def get(self, name: str) -> Tenant:
        """Return an existing tenant or group, or raise `NotFoundError`."""
        with self._database.read() as connection:
            return _get_tenant(connection, name)

    def check_known(self, name: str) -> None:
        """Raise `UnknownNameError` if no tenant or group has, or had, this name."""
        with self._database.read() as connection:
            ids_by_name(connection, "tenant", tenants, name)

    @retry_on_rollback
    def update(
        self, name: str, *, weight: float | None = None, move: MoveTo | None = None, actor: str
    ) -> Tenant:
        """Change a tenant's weight or place in the tree, or both; the next round uses them.

        Raises
        ------
        InvalidError
            If it is to move below a tenant.
        ConflictError
            If it is to move below itself, or too deep.
        """
        with self._database.write() as connection:
            return update_tenant(connection, name, weight=weight, move=move, actor=actor)

    @retry_on_rollback
    def remove(self, name: str, *, actor: str) -> Tenant:
        """Remove an unused tenant or group.

        If it was never used, its row is deleted and its name is free again. Otherwise the history
        and the name stay.

        Raises
        ------
        ConflictError
            If a group has members, or a tenant requests that are not finished,
            VMs that are not gone, reservations that are not over, or tokens
            in force.
        """
        with self._database.write() as connection:
            lock_tree(connection)
            _lock_tenant(connection, name)
            found = _get_tenant(connection, name)
            uses = _removal_obstacles(connection, found.id)
            if uses:
                raise ConflictError(f"tenant {name} is still used: {', '.join(uses)}")
            now = db_now(connection)
            data = {
                "weight": found.weight,
                "parent": found.parent,
                "is_group": found.is_group,
                "limits": read_limits(connection, [found.id]).get(found.id, {}),
            }
            _delete_or_mark_removed(connection, found.id, now)
            record_event(
                connection, now, actor, "tenant_removed", "tenant", name, tenant=name, data=data
            )
        return found


def add_tenant(
    connection: Connection,
    name: str,
    *,
    weight: float,
    parent: str | None,
    is_group: bool,
    default_quota: Mapping[str, int],
    actor: str,
) -> Tenant:
    """Add a tenant, or a group, within a caller's transaction; see `Tenants.add`."""
    check_new_name("name", name, WORDS | WORDS_OF_CALLERS)
    lock_tree(connection)
    now = db_now(connection)
    before = connection.execute(
        select(tenants.c.removed_at).where(tenants.c.name == name)
    ).one_or_none()
    if before is not None and before.removed_at is not None:
        raise ConflictError(
            f"tenant {name!r} was removed at {before.removed_at.isoformat()}; its history keeps"
            " the name, so choose another"
        )
    parent_id = group_id(connection, parent) if parent is not None else None
    check_parent(connection, None, parent_id)
    key = uuid7()
    values = {"id": key, "name": name, "weight": check_weight(weight), "is_group": is_group}
    try:
        connection.execute(insert(tenants).values(**values, parent_id=parent_id, created_at=now))
    except IntegrityError as error:
        raise DuplicateError("tenant", "name", name) from error
    data = {"weight": weight, "parent": parent, "is_group": is_group}
    history = [event_row(now, actor, "tenant_added", "tenant", name, tenant=name, data=data)]
    given = None if is_group else set_default_limits(connection, key, default_quota)
    if given is not None:
        history.append(event_row(now, actor, "quota_set", "tenant", name, tenant=name, data=given))
    record_events(connection, history)
    return _get_tenant(connection, name)


def update_tenant(
    connection: Connection, name: str, *, weight: float | None, move: MoveTo | None, actor: str
) -> Tenant:
    """Change a tenant's weight or place in the tree within a caller's transaction."""
    if move is not None:
        lock_tree(connection)
    _lock_tenant(connection, name)
    before = _get_tenant(connection, name)
    now = db_now(connection)
    history: list[dict[str, Any]] = []
    if weight is not None and check_weight(weight) != before.weight:
        _update_tenant_row(connection, before.id, weight=weight)
        data: dict[str, Any] = {"before": before.weight, "weight": weight}
        history.append(
            event_row(now, actor, "tenant_weighed", "tenant", name, tenant=name, data=data)
        )
    if move is not None and move.parent != before.parent:
        parent_id = group_id(connection, move.parent) if move.parent is not None else None
        check_parent(connection, before.id, parent_id)
        _update_tenant_row(connection, before.id, parent_id=parent_id)
        data = {"before": before.parent, "parent": move.parent}
        history.append(
            event_row(now, actor, "tenant_moved", "tenant", name, tenant=name, data=data)
        )
    record_events(connection, history)
    return _get_tenant(connection, name)


def _lock_tenant(connection: Connection, name: str) -> None:
    """Lock a tenant's row, so that no other call changes it or creates requests for it."""
    connection.execute(
        select(tenants.c.id)
        .where(tenants.c.name == lookup_name("tenant", name))
        .with_for_update(key_share=True)
    )


def _update_tenant_row(connection: Connection, key: UUID, **values: Any) -> None:
    """Update columns of a tenant's row."""
    connection.execute(update(tenants).where(tenants.c.id == key).values(**values))


def _removal_obstacles(connection: Connection, key: UUID) -> list[str]:
    """Return what prevents the removal of a tenant or group: members, requests, VMs, tokens."""
    finished = [state.value for state in FINISHED]
    kinds: tuple[tuple[str, str, ColumnElement[Any], ColumnElement[bool]], ...] = (
        ("member", "members", tenants.c.id, (tenants.c.parent_id == key) & _LIVE),
        (
            "request that is not finished",
            "requests that are not finished",
            requests.c.id,
            (requests.c.tenant_id == key) & requests.c.state.not_in(finished),
        ),
        (
            "VM that is not gone",
            "VMs that are not gone",
            vms.c.id,
            (vms.c.tenant_id == key) & vms.c.deleted_at.is_(None),
        ),
        (
            "reservation that is not over",
            "reservations that are not over",
            reservations.c.id,
            (reservations.c.tenant_id == key) & reservations.c.state.in_(OPEN_RESERVATIONS),
        ),
        (
            "token in force",
            "tokens in force",
            tokens.c.id,
            (tokens.c.tenant_id == key)
            & tokens.c.revoked_at.is_(None)
            & or_(tokens.c.login.is_(None), tokens.c.expires_at > UtcNow()),
        ),
        (
            "network of its own",
            "networks of its own",
            network_offers.c.network_id,
            (network_offers.c.tenant_id == key) & network_offers.c.owns,
        ),
    )
    uses = []
    for one, many, column, which in kinds:
        number = connection.execute(select(func.count(column)).where(which)).scalar_one()
        if number:
            uses.append(f"{number} {one if number == 1 else many}")
    return uses


def _delete_or_mark_removed(connection: Connection, key: UUID, now: datetime) -> None:
    """Delete the row of a tenant if nothing refers to it, else mark it as removed."""
    for table in (quotas, budgets, network_offers):
        connection.execute(delete(table).where(table.c.tenant_id == key))
    # Removed members, whose rows stay, belong to no group any more.
    connection.execute(update(tenants).where(tenants.c.parent_id == key).values(parent_id=None))
    try:
        with connection.begin_nested():
            connection.execute(delete(tenants).where(tenants.c.id == key))
    except IntegrityError:
        _update_tenant_row(connection, key, removed_at=now, parent_id=None)


def _get_tenant(connection: Connection, name: str) -> Tenant:
    """Return an existing tenant or group, or raise `NotFoundError`."""
    row = connection.execute(
        _SELECT.where(tenants.c.name == lookup_name("tenant", name), _LIVE)
    ).one_or_none()
    if row is None:
        raise NotFoundError("tenant", name)
    return _to_tenant(row)


def _to_tenant(row: Row[Any]) -> Tenant:
    """Return the record of a tenant from its row."""
    return record_of(Tenant, row)
