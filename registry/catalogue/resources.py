"""Resources, three built in and others defined by operators, and what VMs take of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from uuid import UUID

from sqlalchemy import Connection, func, insert, literal, select, update
from sqlalchemy.exc import IntegrityError

from registry.audit.events import event_row, record_events
from registry.catalogue.vm_type_limits import LIMITS
from registry.db.bulk import chunks
from registry.db.clock import db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.idempotency_keys import store_result
from registry.db.locks import lock_hosts, take_advisory_lock
from registry.db.names import MAX_AMOUNT, check_int, check_new_name, lookup_name
from registry.db.schema import hosts, inventories, resources, vm_type_resources, vm_types
from registry.errors import DuplicateError, InvalidError, NotFoundError
from registry.records.catalogue import ResourceDef

MAX_RESOURCES = 32
#: The name under which quotas limit the number of VMs; it is no resource.
VMS = "vms"
#: The name under which quotas limit the number of volumes; it is no resource.
VOLUMES = "volumes"
#: Key of the lock under which hosts and resources are added, as each host has each resource.
INVENTORIES = "inventories"


def resource_names(connection: Connection) -> tuple[str, ...]:
    """Return the resource axis: names in order of position."""
    return tuple(connection.scalars(select(resources.c.name).order_by(resources.c.position)))


def demands(
    connection: Connection, vm_type_ids: Iterable[UUID] | None = None
) -> Mapping[UUID, dict[str, int]]:
    """Return the demand of one VM of each type, overhead included; None means every type.

    Overhead is what a VM takes beyond its type, such as QEMU's own memory. It is part of
    the amounts of an assignment and of the demand that a round sees.
    """
    overhead = {
        row.name: row.overhead_per_vm
        for row in connection.execute(
            select(resources.c.name, resources.c.overhead_per_vm).where(
                resources.c.overhead_per_vm > 0
            )
        )
    }
    keys = (
        connection.scalars(select(vm_types.c.id)).all()
        if vm_type_ids is None
        else sorted(set(vm_type_ids))
    )
    found: defaultdict[UUID, dict[str, int]] = defaultdict(dict)
    for some in chunks(keys):
        query = select(vm_type_resources).where(vm_type_resources.c.vm_type_id.in_(some))
        for row in connection.execute(query):
            found[row.vm_type_id][row.resource] = row.amount
    for amounts in found.values():
        for name, amount in overhead.items():
            amounts[name] = amounts.get(name, 0) + amount
    return found


class Resources(Repository):
    """Adds and reads resources, in the order of the resource axis."""

    def all(self) -> tuple[ResourceDef, ...]:
        """Return every resource of the catalogue, in order of position."""
        with self._database.read() as connection:
            rows = connection.execute(select(resources).order_by(resources.c.position))
            return tuple(ResourceDef(**row._mapping) for row in rows)

    @retry_on_rollback
    def set_overhead(self, name: str, amount: int, *, actor: str) -> ResourceDef:
        """Set what a VM takes of a resource beyond its type; placed VMs keep what they hold."""
        check_int("overhead_per_vm", amount, 0, MAX_AMOUNT)
        which = resources.c.name == lookup_name("resource", name)
        with self._database.write() as connection:
            take_advisory_lock(connection, INVENTORIES)
            row = connection.execute(select(resources).where(which)).one_or_none()
            if row is None:
                raise NotFoundError("resource", name)
            before = ResourceDef(**row._mapping)
            if before.overhead_per_vm == amount:
                return before
            connection.execute(update(resources).where(which).values(overhead_per_vm=amount))
            # A round under way used the lower demand: the version change drops all of it.
            lock_hosts(connection, *connection.scalars(select(hosts.c.id)))
            connection.execute(update(hosts).values(version=hosts.c.version + 1))
            now = db_now(connection)
            data = {"overhead_per_vm": amount, "before": before.overhead_per_vm}
            record_events(
                connection, [event_row(now, actor, "resource_changed", "resource", name, data=data)]
            )
            return replace(before, overhead_per_vm=amount)

    @retry_on_rollback
    def add(self, name: str, unit: str, *, actor: str) -> ResourceDef:
        """Add a resource at the end of the axis, with an empty inventory on every host."""
        check_new_name("name", name)
        if name in {VMS, VOLUMES}:
            raise InvalidError(
                "name", name, "another name: quotas count VMs or volumes by this one"
            )
        if name in LIMITS:
            raise InvalidError("name", name, "another name: VM types have a limit of this one")
        if not (unit.isprintable() and 1 <= len(unit) <= 32):
            raise InvalidError("unit", unit, "1 to 32 printable characters")
        with self._database.write() as connection:
            take_advisory_lock(connection, INVENTORIES)
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
            record_events(
                connection, [event_row(now, actor, "resource_added", "resource", name, data=data)]
            )
            return store_result(connection, ResourceDef(name=name, unit=unit, position=position))
