"""VM types: named resource vectors. They are immutable, and each has one revision so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, bindparam, insert, select
from sqlalchemy.exc import IntegrityError

from registry.audit.events import record_event
from registry.catalogue.resources import resource_names
from registry.catalogue.vm_type_limits import check_limits
from registry.db.clock import db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.idempotency_keys import store_result
from registry.db.ids import uuid7
from registry.db.names import check_amounts, check_new_name, lookup_name
from registry.db.pages import DEFAULT_LIMIT, Page, check_limit, decode_cursor, page_of
from registry.db.schema import resources, vm_type_resources, vm_types
from registry.errors import DuplicateError, InvalidError, NotFoundError
from registry.records.catalogue import VmType

#: without these no domain can be built
REQUIRED = ("vcpus", "memory_mib")

_NEWEST: Final = (
    select(vm_types.c.id)
    .where(vm_types.c.name == bindparam("named"))
    .order_by(vm_types.c.revision.desc())
    .limit(1)
)


class VmTypes(Repository):
    """Adds and reads VM types."""

    @retry_on_rollback
    def add(
        self,
        name: str,
        resources: Mapping[str, int],
        *,
        limits: Mapping[str, int] | None = None,
        actor: str,
    ) -> VmType:
        """Add a VM type.

        A resource without an amount counts as 0; a limit that is not set does not apply.
        """
        check_new_name("name", name)
        bounds = check_limits(limits or {})
        with self._database.write() as connection:
            amounts = check_amounts("resources", resources, resource_names(connection))
            for required in REQUIRED:
                if amounts.get(required, 0) < 1:
                    raise InvalidError(
                        f"resources.{required}", amounts.get(required), "a whole number from 1"
                    )
            now, key = db_now(connection), uuid7()
            try:
                connection.execute(
                    insert(vm_types).values(
                        id=key, name=name, revision=1, created_at=now, limits=bounds
                    )
                )
            except IntegrityError as error:
                raise DuplicateError("VM type", "name", name) from error
            rows = [
                {"vm_type_id": key, "resource": resource, "amount": amount}
                for resource, amount in amounts.items()
                if amount > 0
            ]
            connection.execute(insert(vm_type_resources), rows)
            data = amounts | bounds
            record_event(connection, now, actor, "vm_type_added", "vm_type", name, data=data)
            return store_result(connection, get_vm_type(connection, name))

    def list(self, *, limit: int = DEFAULT_LIMIT, cursor: str | None = None) -> Page[VmType]:
        """Return a page of VM types, by name."""
        query = select(vm_types).order_by(vm_types.c.name).limit(check_limit(limit) + 1)
        if cursor is not None:
            (after,) = decode_cursor(cursor, str)
            query = query.where(vm_types.c.name > after)
        with self._database.read() as connection:
            found = _to_vm_types(connection, connection.execute(query).all())
        return page_of(found, limit, lambda vm_type: (vm_type.name,))

    def all(self) -> tuple[VmType, ...]:
        """Return every VM type, by name."""
        with self._database.read() as connection:
            rows = connection.execute(select(vm_types).order_by(vm_types.c.name)).all()
            return _to_vm_types(connection, rows)

    def get(self, name: str) -> VmType:
        """Return a VM type, or raise `NotFoundError`."""
        with self._database.read() as connection:
            return get_vm_type(connection, name)


def vm_type_id(connection: Connection, name: str) -> UUID:
    """Return the id of the newest revision of a VM type, or raise `NotFoundError`."""
    found: UUID | None = connection.scalar(_NEWEST, {"named": lookup_name("VM type", name)})
    if found is None:
        raise NotFoundError("VM type", name)
    return found


def get_vm_type(connection: Connection, name: str) -> VmType:
    """Return the newest revision of a VM type, or raise `NotFoundError`."""
    row = connection.execute(
        select(vm_types)
        .where(vm_types.c.name == lookup_name("VM type", name))
        .order_by(vm_types.c.revision.desc())
        .limit(1)
    ).one_or_none()
    if row is None:
        raise NotFoundError("VM type", name)
    return _to_vm_types(connection, [row])[0]


def _to_vm_types(connection: Connection, rows: Sequence[Row[Any]]) -> tuple[VmType, ...]:
    """Return the records of VM types, with their amounts of resources in the axis's order."""
    amounts: dict[Any, dict[str, int]] = {row.id: {} for row in rows}
    query = (
        select(vm_type_resources)
        .join(resources, resources.c.name == vm_type_resources.c.resource)
        .where(vm_type_resources.c.vm_type_id.in_(list(amounts)))
        .order_by(resources.c.position)
    )
    for row in connection.execute(query):
        amounts[row.vm_type_id][row.resource] = row.amount
    return tuple(VmType(**row._mapping, resources=amounts[row.id]) for row in rows)
