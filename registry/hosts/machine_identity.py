"""Whether a report is from the machine of its host, or from another one in its place."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, select, update

from plain_text import are_host_names_apart, split_host_name
from registry.audit.events import record_event
from registry.db.host_access import VENDOR_UUIDS
from registry.db.schema import hosts
from registry.hosts.machine_names import NO_UUID, machine_label_of
from registry.hosts.machines import IS_OWN_MACHINE, host_with_machine, read_machines
from registry.hosts.stored_reports import latest_report
from registry.hosts.unaccounted_items import assignment_of_volume, known_assignments
from registry.lifecycle import AssignmentState
from registry.records.hosts import Host, HostReport

#: States of assignments whose domains may run.
_MAY_RUN: Final = frozenset(
    each.value
    for each in (
        AssignmentState.ACTIVE,
        AssignmentState.RELEASING,
        AssignmentState.ARRIVING,
        AssignmentState.LEAVING,
    )
)


def is_same_machine(
    connection: Connection,
    host: Host,
    report: HostReport,
    live: Mapping[UUID, Row[Any]],
    *,
    now: datetime,
    actor: str,
) -> bool:
    """Return whether a report with another UUID, or none, is from the host, by its VMs or disks.

    Some machines have no UUID of their own, and libvirt generates another at each start. So
    another UUID alone proves nothing. If nothing of ours is on the machine, the host may have been
    rebuilt, or its VMs may run on a machine that is not polled. Volumes of a pool that other
    machines may see prove nothing either.
    """
    found = report.machine_uuid
    if found is None and host.machine_uuid is None:
        return True
    name, domain = split_host_name(report.hostname)
    namesake = found is not None and is_namesake(connection, host, (name, domain))
    holds = any(row.state in _MAY_RUN for row in live.values())
    ours = (
        host.machine_uuid is None
        or not holds
        or any(domain.assignment_id in live for domain in report.domains)  # no query: nearly always
        or (
            host.machine_uuid == found
            and not namesake
            and not (
                names_decide(connection, host) and _differs_beyond_name(connection, host, report)
            )
        )
        or _reports_vm_disk(connection, host, report, live)
    )
    values: dict[str, str | None] = {"found_machine_uuid": None, "found_machine_name": None}
    if found is not None:
        values |= {"machine_uuid": found, "machine_name": name or host.machine_name}
        if domain is not None or name not in {None, host.machine_name}:
            values["machine_domain"] = domain
    if not ours:
        found_as, found_name = _other_machine(connection, host, report)
        values = {"found_machine_uuid": found_as, "found_machine_name": found_name}
    before = {each: getattr(host, each) for each in values}
    if values == before and ours:
        return True
    row = update(hosts).where(hosts.c.id == host.id)
    connection.execute(row.values(**values, found_missed_polls=0))
    if values == before:
        return False
    changed = found is not None and host.machine_uuid not in {None, found}
    if changed or not ours or namesake:
        data = {"name": host.name, "before": host.machine_uuid, "machine": found}
        if host.machine_uuid == found:
            shown = name if ours else values["found_machine_name"]
            data |= {"name_before": host.machine_name, "machine_name": shown}
        kind = "machine_changed" if ours else "another_machine"
        record_event(connection, now, actor, kind, "host", host.id, data=data)
    return ours


def _other_machine(
    connection: Connection, host: Host, report: HostReport
) -> tuple[str, str | None]:
    """Return the UUID and name by which the register center knows the machine in a host's place.

    If no host has the reported UUID, which may be made up, or several may have it, the machine is
    the one host whose VMs it runs: the ledger has those VMs on no other.
    """
    found, name = report.machine_uuid, split_host_name(report.hostname)[0]
    is_shared = found == host.machine_uuid and names_decide(connection, host)
    if (
        found is not None
        and not is_shared
        and host_with_machine(connection, found, name, apart_from=host.id) is not None
    ):
        return found, name
    theirs = _hosts_of_running_vms(connection, report)
    if len(theirs) == 1:
        [machine] = read_machines(connection, *theirs).values()
        return machine.uuid or found or NO_UUID, machine.name or name
    return found or NO_UUID, name


def _differs_beyond_name(connection: Connection, host: Host, report: HostReport) -> bool:
    """Return whether a machine with the host's UUID and name has nothing else of it.

    Where many machines have one UUID, the name may follow the address, as with DHCP. The machine is
    another one if it has none of the host's network interfaces, or runs other hosts' VMs alone.
    """
    before = latest_report(connection, host.id)
    known = set() if before is None else set(before.interfaces.values())
    shown = set(report.interfaces.values())
    if known and shown and not known & shown:
        return True
    return bool(_hosts_of_running_vms(connection, report))


def _hosts_of_running_vms(connection: Connection, report: HostReport) -> set[UUID]:
    """Return the hosts on which the ledger has the VMs that run on a machine."""
    running = {domain.assignment_id for domain in report.domains if domain.state != "stopped"}
    known = known_assignments(connection, {each for each in running if each is not None})
    return {each.host_id for each in known.values() if each.released_at is None}


def is_namesake(connection: Connection, host: Host, name: tuple[str | None, str | None]) -> bool:
    """Return whether a machine with the host's UUID has another name, and may be another machine.

    Names decide if the host has a machine label, or others have the UUID. Otherwise another name
    means that the machine was renamed.
    """
    if not are_host_names_apart(name, (host.machine_name, host.machine_domain)):
        return False
    return names_decide(connection, host)


def names_decide(connection: Connection, host: Host) -> bool:
    """Return whether other machines may have the host's UUID."""
    if machine_label_of(host.labels) is not None or host.machine_uuid in VENDOR_UUIDS:
        return True
    uuid = hosts.c.machine_uuid == host.machine_uuid
    is_shared = select(hosts.c.id).where(uuid, hosts.c.id != host.id, IS_OWN_MACHINE).limit(1)
    return connection.scalar(is_shared) is not None


def _reports_vm_disk(
    connection: Connection, host: Host, report: HostReport, live: Mapping[UUID, Row[Any]]
) -> bool:
    """Return whether a report has a disk of the host's VMs in a pool that only the host sees.

    A pool with a disk of another host's VM is shared, even if no label says so.
    """
    if host.shared_pool is not None:
        return False
    marks = {key for name in report.volumes if (key := assignment_of_volume(name)) is not None}
    if not marks & live.keys():
        return False
    return all(
        each.released_at is not None
        for each in known_assignments(connection, marks - live.keys()).values()
    )
