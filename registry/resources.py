"""Resources are data: three are built in, an operator may define more."""

from __future__ import annotations

from sqlalchemy import Connection, func, insert, literal, select
from sqlalchemy.exc import IntegrityError

from registry.clock import db_now
from registry.engine import Database, retried
from registry.errors import DuplicateError, InvalidError
from registry.events import event_row, record
from registry.locks import take_turns
from registry.names import check_name
from registry.records import ResourceDef
from registry.schema import hosts, inventories, resources

MAX_RESOURCES = 32
#: What quotas call the number of VMs, beside the resources.
VMS = "vms"
#: Every host has an inventory of every resource: one of them is added at a time.
INVENTORIES = "inventories"


def resource_names(connection: Connection) -> tuple[str, ...]:
    """Return the resource axis: names in order of position."""
    return tuple(connection.scalars(select(resources.c.name).order_by(resources.c.position)))


class Resources:
    """The resource axis."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> tuple[ResourceDef, ...]:
        """Return every resource, in order of position."""
        with self._database.read() as connection:
            rows = connection.execute(select(resources).order_by(resources.c.position))
            return tuple(ResourceDef(**row._mapping) for row in rows)

    @retried
    def add(self, name: str, unit: str, *, actor: str) -> ResourceDef:
        """Add a resource, last on the axis, with an inventory of none on every host."""
        check_name("name", name)
        if name == VMS:
            raise InvalidError("name", name, "another name: quotas count VMs by this one")
        if not (unit.isprintable() and 1 <= len(unit) <= 32):
            raise InvalidError("unit", unit, "1 to 32 printable characters")
        with self._database.write() as connection:
            take_turns(connection, INVENTORIES)
            count, last = connection.execute(
                select(func.count(), func.max(resources.c.position)).select_from(resources)
            ).one()
            if count >= MAX_RESOURCES:
                raise InvalidError("name", name, f"at most {MAX_RESOURCES} resources")
            position = last + 1
            try:
                connection.execute(
                    insert(resources).values(name=name, unit=unit, position=position)
                )
            except IntegrityError as error:
                raise DuplicateError("resource", "name", name) from error
            connection.execute(
                insert(inventories).from_select(
                    ["host_id", "resource"], select(hosts.c.id, literal(name))
                )
            )
            now = db_now(connection)
            data = {"unit": unit}
            record(
                connection, [event_row(now, actor, "resource_added", "resource", name, data=data)]
            )
        return ResourceDef(name=name, unit=unit, position=position)
