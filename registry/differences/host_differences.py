"""All differences between the latest report of a host and the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection

from registry.differences.compared_hosts import ComparedHosts
from registry.differences.difference_record import new_difference
from registry.differences.disk_differences import (
    domain_differences,
    drop_items_of_other_names,
    pool_differences,
)
from registry.differences.vm_differences import vm_differences
from registry.hosts.machine_addresses import other_address_of_machine
from registry.hosts.machine_names import other_machine_message
from registry.hosts.machines import host_with_machine
from registry.hosts.reports import compares_pool_volumes
from registry.hosts.unaccounted_items import (
    find_unaccounted_items,
    known_assignments,
    unknown_marks,
)
from registry.lifecycle import HostHealth
from registry.reconciliation import Difference, Remedy
from registry.records.hosts import Host, HostDifference

_SILENT: Final = (HostHealth.UNREACHABLE, HostHealth.DOWN)


def host_differences(
    connection: Connection, host: Host, seen: ComparedHosts
) -> Iterator[HostDifference]:
    """Yield the differences between a host's latest report and the ledger."""
    if host.found_machine_uuid is not None:
        what = other_machine_message(
            host.machine_uuid, host.found_machine_uuid, host.machine_name, host.found_machine_name
        )
        other = new_difference(host, Difference.ANOTHER_MACHINE, host.found_machine_uuid, what)
        why = _owner_of_machine(connection, host) or other_address_of_machine(connection, host.id)
        if why is not None:
            other = replace(other, remedy=Remedy.NOTE, why=why, on_confirmation=None)
        yield other
        return
    if host.same_machine_as is not None:
        what = f"machine {host.machine_uuid} is host {host.same_machine_as}"
        yield new_difference(host, Difference.SAME_MACHINE, host.same_machine_as, what)
    if host.health in _SILENT and host.returning_since is None:
        yield new_difference(
            host, Difference.SILENT, host.name, f"{host.health}: {host.last_error}"
        )
        return
    report = seen.reports.get(host.id)
    if report is None:
        return
    if host.machine_uuid is not None and report.machine_uuid is None:
        what = f"machine {host.machine_uuid} reports no UUID now"
        yield new_difference(host, Difference.NO_MACHINE_UUID, host.machine_uuid, what)
    for each in host.inventories:
        if each.committed > each.capacity and host.same_machine_as is None:
            what = f"{each.committed} {each.resource} are committed, {each.capacity} offered"
            yield new_difference(host, Difference.CAPACITY_SHRANK, each.resource, what)
    live = seen.live[host.id]
    yield from vm_differences(connection, host, report, live, seen.starting)
    speaks = compares_pool_volumes(seen.pools, host)
    marks = unknown_marks(report, live, speaks=speaks)
    known = known_assignments(connection, marks) if marks else {}
    found = find_unaccounted_items(
        report, live, known, host_id=host.id, shared_pool=host.shared_pool, speaks=speaks
    )
    if seen.firsts:
        found = drop_items_of_other_names(host, report, found, known, seen.firsts)
    for difference in domain_differences(host, report, found):
        which = (difference.vm_uuid is not None, difference.subject)
        error = seen.errors.get(host.id, {}).get(which)
        if error is not None:
            difference = replace(difference, what=f"{difference.what}; it stays: {error}")  # noqa: PLW2901
        yield difference
    yield from pool_differences(host, report, seen)


def _owner_of_machine(connection: Connection, host: Host) -> str | None:
    """Return text that the machine at a host's address is another host, with advice, or None."""
    assert host.found_machine_uuid is not None  # noqa: S101 - it is the difference
    owner = host_with_machine(
        connection, host.found_machine_uuid, host.found_machine_name, apart_from=host.id
    )
    if owner is None:
        return None
    return (
        f"machine {host.found_machine_uuid}, which answers at the address of host {host.name}, is"
        f" host {owner}: give host {host.name} its own address again"
    )
