"""Checks before an operator's repair of a difference, and the removal that it requests."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, insert, select, update

from registry.db.ids import uuid7
from registry.db.schema import assignments, hosts, is_place, leftovers, unreleased, vms
from registry.errors import ConflictError
from registry.hosts.machines import are_different, read_machines
from registry.hosts.stored_reports import latest_report
from registry.lifecycle import HostHealth, VmObserved
from registry.records.hosts import Host, HostDifference


def check_domain_is_off(connection: Connection, host: Host, found: HostDifference) -> None:
    """Raise `ConflictError` if the domain, or the domain of the disk, runs."""
    report = latest_report(connection, host.id)
    for domain in () if report is None else report.domains:
        its = domain.assignment_id is not None and domain.assignment_id == found.assignment_id
        if (its or domain.uuid == found.vm_uuid) and domain.state != "stopped":
            raise ConflictError(
                f"domain {domain.name} on host {host.name} is {domain.state}, and no repair"
                f" destroys what runs: switch it off there first (`virsh destroy {domain.name}`)"
            )


def check_vm_runs_elsewhere(connection: Connection, here: Host, found: HostDifference) -> None:
    """Raise `ConflictError` unless the VM runs elsewhere, as this may be its only copy."""
    marked = assignments.alias("marked")
    query = (
        select(hosts.c.id, hosts.c.name, vms.c.observed, hosts.c.health, hosts.c.found_machine_uuid)
        .select_from(marked)
        .join(vms, vms.c.id == marked.c.vm_id)
        .join(assignments, (assignments.c.vm_id == vms.c.id) & unreleased & is_place)
        .join(hosts, hosts.c.id == assignments.c.host_id)
        .where(marked.c.id == found.assignment_id)
    )
    row = connection.execute(query).one_or_none()
    if row is None:
        raise ConflictError(
            f"{found.subject} on host {found.host} may be the only one there is: its VM has no host"
        )
    if row.observed != VmObserved.RUNNING.value or row.health != HostHealth.UP.value:
        raise ConflictError(
            f"{found.subject} on host {found.host} may be the only one there is: on host"
            f" {row.name}, which is {row.health}, the VM is {row.observed}"
        )
    if row.found_machine_uuid is not None:
        raise ConflictError(
            f"{found.subject} on host {found.host} may be the only one there is: another machine"
            f" answers as host {row.name}"
        )
    machines = read_machines(connection, here.id, row.id)
    report_theirs = all(
        report is not None and report.machine_uuid is not None
        for report in (latest_report(connection, key) for key in (here.id, row.id))
    )
    if not report_theirs or not are_different(machines[here.id], machines[row.id]):
        raise ConflictError(
            f"hosts {here.name} and {row.name} may be one machine: {found.subject} is removed only"
            " where the UUIDs that both report prove that they are two"
        )


def request_removal(
    connection: Connection, host: Host, found: HostDifference, *, now: Any, actor: str
) -> None:
    """Record that an operator wants a foreign domain or volume removed from its host."""
    kind = "domain" if found.vm_uuid is not None else "volume"
    one = (leftovers.c.host_id == host.id) & (leftovers.c.kind == kind)
    one &= leftovers.c.name == found.subject
    if connection.scalar(select(leftovers.c.id).where(one).with_for_update()) is not None:
        # It stays so far: the removal begins again at once.
        again = update(leftovers).where(one)
        connection.execute(again.values(requested_by=actor, sent_at=None))
        return
    connection.execute(
        insert(leftovers).values(
            id=uuid7(),
            host_id=host.id,
            kind=kind,
            name=found.subject,
            vm_uuid=found.vm_uuid,
            assignment_id=found.assignment_id,
            requested_by=actor,
            found_at=now,
        )
    )
