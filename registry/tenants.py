"""Tenants, the parties whose share is accounted, and the tree they form."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, insert, select, update
from sqlalchemy.exc import IntegrityError

from registry.clock import db_now
from registry.engine import Database, retried
from registry.errors import DuplicateError, NotFoundError
from registry.events import event_row, record
from registry.ids import uuid7
from registry.names import check_name, check_weight, look_up
from registry.pages import DEFAULT_LIMIT, Page, check_limit, decode_cursor, page_of
from registry.records import Tenant
from registry.schema import tenants

_parent = tenants.alias("parent")
_SELECT = select(tenants, _parent.c.name.label("parent")).outerjoin(
    _parent, tenants.c.parent_id == _parent.c.id
)


def tenant_id(connection: Connection, name: str) -> UUID:
    """Return a tenant's id, or raise `NotFoundError`."""
    found = connection.execute(
        select(tenants.c.id).where(tenants.c.name == look_up("tenant", name))
    ).scalar()
    if found is None:
        raise NotFoundError("tenant", name)
    result: UUID = found
    return result


class Tenants:
    """Adds, reads and weighs tenants."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @retried
    def add(
        self, name: str, *, weight: float = 1.0, parent: str | None = None, actor: str
    ) -> Tenant:
        """Add a tenant, under ``parent`` if it is part of a group."""
        check_name("name", name)
        values = {"id": uuid7(), "name": name, "weight": check_weight(weight)}
        with self._database.write() as connection:
            now = db_now(connection)
            parent_id = tenant_id(connection, parent) if parent is not None else None
            try:
                connection.execute(
                    insert(tenants).values(**values, parent_id=parent_id, created_at=now)
                )
            except IntegrityError as error:
                raise DuplicateError("tenant", "name", name) from error
            data = {"weight": weight, "parent": parent}
            record(
                connection,
                [event_row(now, actor, "tenant_added", "tenant", name, tenant=name, data=data)],
            )
            return _get(connection, name)

    def list(self, *, limit: int = DEFAULT_LIMIT, cursor: str | None = None) -> Page[Tenant]:
        """Return a page, by name."""
        query = _SELECT.order_by(tenants.c.name).limit(check_limit(limit) + 1)
        if cursor is not None:
            (after,) = decode_cursor(cursor, str)
            query = query.where(tenants.c.name > after)
        with self._database.read() as connection:
            rows = [_to_tenant(row) for row in connection.execute(query)]
        return page_of(rows, limit, lambda tenant: (tenant.name,))

    def get(self, name: str) -> Tenant:
        """Return one, or raise `NotFoundError`."""
        with self._database.read() as connection:
            return _get(connection, name)

    @retried
    def update(self, name: str, *, weight: float, actor: str) -> Tenant:
        """Change a tenant's weight; the next round uses it."""
        check_weight(weight)
        with self._database.write() as connection:
            connection.execute(
                select(tenants.c.id)
                .where(tenants.c.name == look_up("tenant", name))
                .with_for_update()
            )
            before = _get(connection, name)
            if before.weight == weight:
                return before
            connection.execute(
                update(tenants).where(tenants.c.id == before.id).values(weight=weight)
            )
            now = db_now(connection)
            data = {"before": before.weight, "weight": weight}
            record(
                connection,
                [event_row(now, actor, "tenant_weighed", "tenant", name, tenant=name, data=data)],
            )
            return _get(connection, name)


def _get(connection: Connection, name: str) -> Tenant:
    row = connection.execute(_SELECT.where(tenants.c.name == look_up("tenant", name))).one_or_none()
    if row is None:
        raise NotFoundError("tenant", name)
    return _to_tenant(row)


def _to_tenant(row: Row[Any]) -> Tenant:
    return Tenant(
        id=row.id,
        name=row.name,
        weight=row.weight,
        parent=row.parent,
        created_at=row.created_at,
    )
