"""Differences of hosts from the ledger: foreign domains, remains of released assignments."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, delete, exists, insert, or_, select

from registry.audit.events import event_row, record_events
from registry.db.bulk import chunks
from registry.db.ids import uuid7
from registry.db.schema import assignments, hosts, is_arriving, is_place, leftovers, strangers, vms
from registry.hosts.health import ANSWERED_LATELY
from registry.hosts.stored_reports import read_reports
from registry.ledger.shared_disks import disks_in_use
from registry.lifecycle import AssignmentState, HostAdmin, VmDesired
from registry.reconciliation import (
    STRANGE,
    Difference,
    LedgerAssignment,
    mark_difference,
    volume_difference,
)
from registry.records.hosts import DomainReport, Host, HostReport

_REPORTS_AT_ONCE: Final = 200  #: hosts whose reports are in memory
_VOLUME: Final = re.compile(
    r"fuga-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})(?:\.qcow2|-seed\.img)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnaccountedItems:
    """Domains and volumes of one poll that belong to no assignment of the host."""

    of_domains: Mapping[UUID, Difference]  #: by UUID
    of_volumes: Mapping[str, tuple[Difference, UUID]]  #: by name, with the assignment
    strangers: tuple[DomainReport, ...]  #: foreign domains, which stay and hold capacity
    domains: tuple[DomainReport, ...]  #: leftover domains of released assignments
    volumes: tuple[tuple[str, UUID], ...]  #: name and assignment of leftover volumes


def assignment_of_volume(name: str) -> UUID | None:
    """Return the assignment id in a volume's name, or None."""
    match = _VOLUME.fullmatch(name)
    return UUID(match[1]) if match else None


def unknown_marks(report: HostReport, live: Container[UUID], *, speaks: bool = True) -> set[UUID]:
    """Return the assignment ids that mark domains and volumes of a report and are not live there.

    Only the host that ``speaks`` for a shared pool compares the pool's volumes.
    """
    marks = {domain.assignment_id for domain in report.domains}
    if speaks:
        marks |= {assignment_of_volume(name) for name in report.volumes}
    return {mark for mark in marks if mark is not None and mark not in live}


def find_unaccounted_items(
    report: HostReport,
    live: Container[UUID],
    known: Mapping[UUID, LedgerAssignment],
    *,
    host_id: UUID,
    shared_pool: str | None = None,
    speaks: bool = True,
) -> UnaccountedItems:
    """Separate unknown domains of a host from leftovers of its released assignments.

    ``known`` has the other marks' assignments, from `known_assignments`.

    A leftover, which is removed, has the mark of an assignment that this register center released.
    Everything uncertain is foreign and is never destroyed: an unknown mark (of another fuga, or of
    a time after the backup that was restored), and the mark of an assignment on another host whose
    VM lives (an operator moved it). An assignment released after the poll began is neither, as its
    remains may be gone by now. One host ``speaks`` for a ``shared_pool``, so that volumes there
    are reported once.
    """
    seen = report.volumes if speaks else ()
    volumes = {name: key for name in seen if (key := assignment_of_volume(name))}
    of_domains = {
        domain.uuid: difference
        for domain in report.domains
        if (
            difference := mark_difference(
                domain.assignment_id, live, known, report.started_at, host_id=host_id
            )
        )
    }
    of_volumes = {
        name: (difference, key)
        for name, key in volumes.items()
        if (
            difference := volume_difference(
                key, live, known, report.started_at, host_id=host_id, shared_pool=shared_pool
            )
        )
    }
    return UnaccountedItems(
        of_domains=of_domains,
        of_volumes=of_volumes,
        strangers=tuple(
            domain for domain in report.domains if of_domains.get(domain.uuid) in STRANGE
        ),
        domains=tuple(
            domain
            for domain in report.domains
            if domain.uuid in of_domains and of_domains[domain.uuid] not in STRANGE
        ),
        volumes=tuple(
            (name, key) for name, (what, key) in of_volumes.items() if what not in STRANGE
        ),
    )


def known_assignments(
    connection: Connection, keys: Collection[UUID]
) -> dict[UUID, LedgerAssignment]:
    """Return what the ledger knows of assignments, by id; unknown ones have no entry."""
    found: dict[UUID, LedgerAssignment] = {}
    used = disks_in_use(connection, keys)
    younger = assignments.alias("younger")
    placed_anew = exists().where(
        younger.c.vm_id == assignments.c.vm_id,
        younger.c.generation > assignments.c.generation,
        younger.c.state != AssignmentState.RELEASED.value,
    )
    for some in chunks(sorted(keys)):
        query = select(
            assignments.c.id,
            assignments.c.host_id,
            assignments.c.state,
            assignments.c.released_at,
            hosts.c.shared_pool,
            vms.c.desired,
            placed_anew.label("placed_anew"),
        ).join_from(assignments, hosts, hosts.c.id == assignments.c.host_id)
        query = query.join(vms, vms.c.id == assignments.c.vm_id)
        for row in connection.execute(query.where(assignments.c.id.in_(some))):
            released = row.state == AssignmentState.RELEASED.value
            found[row.id] = LedgerAssignment(
                host_id=row.host_id,
                vm_lives=row.desired != VmDesired.DELETED.value,
                released_at=row.released_at if released else None,
                placed_anew=row.placed_anew,
                shared_pool=row.shared_pool,
                disk_in_use=row.id in used,
            )
    return found


def domains_on_other_hosts(connection: Connection, rows: Iterable[Row[Any]]) -> dict[UUID, str]:
    """Return other hosts that report domains of these assignments' VMs, by VM."""
    keys = {row.vm_id: row.host_id for row in rows}
    found: dict[UUID, str] = {}
    for some in chunks(sorted(keys)):
        query = (
            select(strangers.c.domain_uuid, strangers.c.host_id, hosts.c.name)
            .join(hosts, hosts.c.id == strangers.c.host_id)
            .where(strangers.c.domain_uuid.in_(some), hosts.c.admin != HostAdmin.RETIRED.value)
            .order_by(hosts.c.name.desc())
        )
        found |= {
            row.domain_uuid: row.name
            for row in connection.execute(query)
            if row.host_id != keys[row.domain_uuid]
        }
    return found


def running_on_other_hosts(connection: Connection, host_id: UUID) -> str:
    """Return text with VMs of a host that another host reports as running or paused, or "".

    The machine may run under another name, or a copy was started there by hand. A second name of
    a machine has no rows of foreign domains, so its report is read, too. A VM that moves counts
    at its place alone. Nothing counts of a host that is down, nor of one that enrols and missed
    ten polls, since an enrolling host never becomes down.
    """
    is_here = (assignments.c.host_id == host_id) & is_place
    query = select(vms.c.id, vms.c.name).join(assignments, assignments.c.vm_id == vms.c.id)
    ours = {row.id: row.name for row in connection.execute(query.where(is_here))}
    if not ours:
        return ""
    shows = strangers.join(assignments, assignments.c.vm_id == strangers.c.domain_uuid)
    others = (
        select(hosts.c.id, hosts.c.name)
        .where(
            or_(
                hosts.c.id.in_(select(strangers.c.host_id).select_from(shows).where(is_here)),
                hosts.c.same_machine_as.is_not(None),
            ),
            hosts.c.id != host_id,
            ANSWERED_LATELY,
            hosts.c.admin != HostAdmin.RETIRED.value,
        )
        .order_by(hosts.c.name)
    )
    names = {row.id: row.name for row in connection.execute(others)}
    found: list[str] = []
    for some in chunks(list(names), _REPORTS_AT_ONCE):
        reports = read_reports(connection, some)
        for key in (each for each in some if each in reports):
            # A paused QEMU has its disk open.
            awake = {d.uuid for d in reports[key].domains if d.state != "stopped"} & ours.keys()
            awake -= _arriving_at(connection, key, awake)
            if running := sorted(ours[each] for each in awake):
                more = f" and {len(running) - 5} more" if len(running) > 5 else ""
                shown = ", ".join(running[:5])
                found.append(f"host {names[key]} reports as running or paused: {shown}{more}")
    return "; ".join(found)


def _arriving_at(connection: Connection, host_id: UUID, vm_ids: Iterable[UUID]) -> set[UUID]:
    """Return those of some VMs that are moving to a host, where they are paused until they run."""
    query = select(assignments.c.vm_id).where(assignments.c.host_id == host_id, is_arriving)
    found: set[UUID] = set()
    for some in chunks(sorted(vm_ids)):
        found |= set(connection.scalars(query.where(assignments.c.vm_id.in_(some))))
    return found


def record_foreign_domains(
    connection: Connection,
    host: Host,
    unaccounted: UnaccountedItems,
    known: Collection[UUID],
    *,
    now: datetime,
    actor: str,
) -> None:
    """Add an event for each new foreign domain; inventories hold its amounts as `foreign`."""
    present = {domain.uuid: domain for domain in unaccounted.strangers}
    gone = [uuid for uuid in known if uuid not in present]
    if gone:
        connection.execute(
            delete(strangers).where(
                strangers.c.host_id == host.id, strangers.c.domain_uuid.in_(gone)
            )
        )
    new = [domain for uuid, domain in present.items() if uuid not in known]
    if not new:
        return
    connection.execute(
        insert(strangers),
        [
            {
                "host_id": host.id,
                "domain_uuid": domain.uuid,
                "name": domain.name,
                "first_seen_at": now,
            }
            for domain in new
        ],
    )
    history = [
        event_row(
            now,
            actor,
            "stranger_seen",
            "host",
            host.id,
            data={
                "name": host.name,
                "domain": domain.name,
                "uuid": str(domain.uuid),
                "state": domain.state,
                "vcpus": domain.vcpus,
                "memory_mib": domain.memory_mib,
                "disk_gib": domain.disk_gib,
                "difference": unaccounted.of_domains[domain.uuid].value,
            },
        )
        for domain in new
    ]
    record_events(connection, history)


def update_leftovers(
    connection: Connection,
    host: Host,
    report: HostReport,
    unaccounted: UnaccountedItems,
    before: Iterable[Row[Any]],
    *,
    copies: Collection[str] = (),
    now: datetime,
    actor: str,
) -> None:
    """Update the rows of `leftovers` (``before``) to what this poll found.

    ``copies`` are volumes of images that no build uses any more. Removals that an operator
    requested stay until the item is gone.
    """
    found: dict[tuple[str, str], tuple[UUID | None, UUID | None]] = {
        ("volume", name): (None, None) for name in copies
    }
    states = {domain.name: domain.state for domain in unaccounted.domains}
    for domain in unaccounted.domains:
        assert domain.assignment_id is not None  # noqa: S101 - a leftover carries a mark
        found["domain", domain.name] = (domain.uuid, domain.assignment_id)
    for name, key in unaccounted.volumes:
        found["volume", name] = (None, key)
    there = {("domain", domain.name) for domain in report.domains}
    there |= {("volume", name) for name in report.volumes}
    known = {}
    gone = []
    for row in before:
        what = (row.kind, row.name)
        known[what] = row.id
        if what not in found and (row.requested_by is None or what not in there):
            gone.append(row.id)
    if gone:
        connection.execute(delete(leftovers).where(leftovers.c.id.in_(gone)))
    new = sorted(found.keys() - known.keys())
    if not new:
        return
    connection.execute(
        insert(leftovers),
        [
            {
                "id": uuid7(),
                "host_id": host.id,
                "kind": kind,
                "name": name,
                "vm_uuid": found[kind, name][0],
                "assignment_id": found[kind, name][1],
                "found_at": now,
            }
            for kind, name in new
        ],
    )
    history = [
        event_row(
            now,
            actor,
            "leftover_found",
            "host",
            host.id,
            data={
                "name": host.name,
                "kind": kind,
                "leftover": name,
                "assignment": None if (its := found[kind, name][1]) is None else str(its),
                "state": states.get(name) if kind == "domain" else None,
            },
        )
        for kind, name in new
    ]
    record_events(connection, history)
