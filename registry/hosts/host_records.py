"""Host records from rows, found by name or key, with inventories and fence."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, select

from registry.db.bulk import PARAMETERS, chunks, is_any_of
from registry.db.names import check_single_values, lookup_name
from registry.db.row_conversion import record_of
from registry.db.schema import hosts, inventories, resources
from registry.errors import InvalidError, NotFoundError
from registry.hosts.confinement import confinement_warnings
from registry.ledger.failure_policy import FailurePolicy, failure_policy_of
from registry.ledger.fences import read_fences
from registry.lifecycle import HostAdmin, HostHealth
from registry.records.hosts import Fence, Host, Inventory


def to_hosts(connection: Connection, rows: Sequence[Row[Any]]) -> tuple[Host, ...]:
    """Return the records of hosts from their rows, with inventories, fences and warnings."""
    query = (
        select(inventories, resources.c.position)
        .select_from(inventories)
        .join(resources, resources.c.name == inventories.c.resource)
        .order_by(inventories.c.host_id, resources.c.position)
    )
    if len(rows) <= PARAMETERS:
        its_host = is_any_of(connection, inventories.c.host_id, [row.id for row in rows])
        query = query.where(its_host)
    found: dict[UUID, list[Inventory]] = {row.id: [] for row in rows}
    for each in connection.execute(query):
        if each.host_id in found:
            found[each.host_id].append(_to_inventory(each))
    down = [row.id for row in rows if row.health == HostHealth.DOWN.value]
    fences = read_fences(connection, down)
    firsts = _host_names(connection, {row.same_machine_as for row in rows} - {None})
    return tuple(
        _to_host(row, tuple(found[row.id]), fences.get(row.id), firsts.get(row.same_machine_as))
        for row in rows
    )


def read_host(connection: Connection, key: UUID) -> Host:
    """Return the record of a host by its id, or raise `NotFoundError`."""
    row = connection.execute(select(hosts).where(hosts.c.id == key)).one_or_none()
    if row is None:
        raise NotFoundError("host", key)
    return to_hosts(connection, [row])[0]


def read_hosts(connection: Connection, keys: Iterable[UUID]) -> dict[UUID, Host]:
    """Return the existing hosts among these keys, in the order of keys."""
    found: dict[UUID, Host] = {}
    for some in chunks(sorted(keys)):
        query = select(hosts).where(hosts.c.id.in_(some)).order_by(hosts.c.id)
        rows = connection.execute(query).all()
        found |= {host.id: host for host in to_hosts(connection, rows)}
    return found


def find_host_id(connection: Connection, name: str) -> UUID:
    """Return the id of the host with a name, a retired one if no other has it."""
    retired = hosts.c.admin == HostAdmin.RETIRED.value
    query = (
        select(hosts.c.id)
        .where(hosts.c.name == lookup_name("host", name))
        .order_by(retired, hosts.c.id.desc())
    )
    key = connection.scalars(query.limit(1)).one_or_none()
    if key is None:
        raise NotFoundError("host", name)
    found: UUID = key
    return found


def _host_names(connection: Connection, keys: Collection[UUID]) -> dict[UUID, str]:
    """Return the names of hosts by their ids."""
    found: dict[UUID, str] = {}
    for some in chunks(sorted(keys)):
        query = select(hosts.c.id, hosts.c.name).where(hosts.c.id.in_(some))
        found |= {row.id: row.name for row in connection.execute(query)}
    return found


def _to_inventory(row: Row[Any]) -> Inventory:
    """Return the record of a host's inventory of one resource from its row."""
    return record_of(Inventory, row, foreign=row.foreign_amount)


def _to_host(
    row: Row[Any], found: tuple[Inventory, ...], fence: Fence | None, first: str | None
) -> Host:
    """Return the record of a host from its row and what other tables hold of it."""
    return record_of(
        Host,
        row,
        inventories=found,
        warnings=(
            *_inventory_warnings(found),
            *confinement_warnings(row.security_model, row.shares_kept),
            *_protection_warnings(row),
            *_failure_warnings(row),
            *_label_warnings(row),
        ),
        fence=fence,
        same_machine_as=first,
    )


def _inventory_warnings(found: tuple[Inventory, ...]) -> Iterator[str]:
    """Yield warnings about a host's overrides and reserved amounts above what was detected."""
    for each in found:
        if each.override is not None and each.detected is not None:
            if each.override > each.detected:
                yield (
                    f"the override of {each.resource}, {each.override}, is above"
                    f" what was detected, {each.detected}"
                )
        elif each.detected is not None and each.reserved >= each.detected > 0:
            yield (
                f"all {each.resource} are reserved, {each.reserved} of the {each.detected}"
                " that were detected: nothing is left for VMs"
            )


def _protection_warnings(row: Row[Any]) -> Iterator[str]:
    """Yield a warning if a host's libvirt cannot filter the traffic of its VMs."""
    if row.can_filter is False:
        yield (
            "its libvirt has no network filters (nwfilter): no VM is built there, but on networks"
            " that operators leave unfiltered"
        )


def _label_warnings(row: Row[Any]) -> Iterator[str]:
    """Yield a warning for a host's older labels that give one key two values."""
    try:
        check_single_values("labels", row.labels)
    except InvalidError as error:
        yield str(error)


def _failure_warnings(row: Row[Any]) -> Iterator[str]:
    """Yield a warning for a label ``on_failure`` of a host that has no effect."""
    if failure_policy_of(row.labels) is FailurePolicy.REPLACE and row.shared_pool is None:
        yield (
            "its label on_failure=replace moves nothing: its pool is not shared (label"
            " shared_pool=NAME), so its VMs wait for it; on_failure=rebuild rebuilds them from"
            " their images, and loses what they had written"
        )
