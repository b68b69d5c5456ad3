"""Volumes compared with what hosts report: their files in pools, and their disks in domains."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, select

from registry.db.bulk import chunks, is_any_of
from registry.db.schema import tenants, vms, volumes
from registry.lifecycle import VolumeState
from registry.records.hosts import DomainReport, HostReport

#: States in which a volume's file may be absent: it is made or deleted just now.
_UNCERTAIN: Final = (
    VolumeState.CREATING.value,
    VolumeState.WITHDRAWING.value,
    VolumeState.REMOVING.value,
)
_FILE: Final = re.compile(
    r"fuga-volume-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\.qcow2"
)


def volume_file_name(volume_id: UUID) -> str:
    """Return the name of a volume's file in its pool, as `hypervisor.data_volume_name` does."""
    return f"fuga-volume-{volume_id}.qcow2"


def serial_of_volume(volume_id: UUID) -> str:
    """Return the serial number of a volume's disk, as `hypervisor.disk_serial` does."""
    return volume_id.hex[:20]


@dataclass(frozen=True, slots=True)
class VolumeFile:
    """The file of a volume in the pool of a host."""

    name: str
    volume: str
    size_gib: int
    is_made: bool
    since: datetime  #: of the volume's present state


@dataclass(frozen=True, slots=True)
class VolumeInUse:
    """The file of a volume that disks of domains name, though the ledger gives it to none."""

    file: str
    volume: str  #: its name, owner and state
    domains: tuple[str, ...]


def read_volume_files(
    connection: Connection, host_ids: Sequence[UUID]
) -> Mapping[UUID, Sequence[VolumeFile]]:
    """Return the files of volumes by host; hosts without any have no entry."""
    found: defaultdict[UUID, list[VolumeFile]] = defaultdict(list)
    query = select(volumes).where(is_any_of(connection, volumes.c.host_id, host_ids))
    for row in connection.execute(query.order_by(volumes.c.id)):
        found[row.host_id].append(
            VolumeFile(
                name=volume_file_name(row.id),
                volume=row.name,
                size_gib=row.size_gib,
                is_made=row.state not in _UNCERTAIN,
                since=row.changed_at,
            )
        )
    return found


def missing_files(
    files: Sequence[VolumeFile], present: Sequence[str], started_at: datetime
) -> Iterator[VolumeFile]:
    """Yield the files that a poll, which began at a time, would have found but did not."""
    names = set(present)
    for each in files:
        if each.is_made and each.since < started_at and each.name not in names:
            yield each


def volumes_without_disk(
    connection: Connection, reports: Mapping[UUID, HostReport]
) -> Sequence[UUID]:
    """Return the attached volumes whose VMs hosts report without the disk.

    A poll that began before the volume was attached says nothing, nor does one that does not show
    the domain, nor one of an earlier release.
    """
    found: list[UUID] = []
    for some in chunks(sorted(reports)):
        query = select(
            volumes.c.id, volumes.c.host_id, volumes.c.assignment_id, volumes.c.changed_at
        ).where(
            is_any_of(connection, volumes.c.host_id, some),
            volumes.c.state == VolumeState.ATTACHED.value,
        )
        for row in connection.execute(query):
            report = reports[row.host_id]
            if row.changed_at < report.started_at and any(
                domain.assignment_id == row.assignment_id
                and domain.attached is not None
                and serial_of_volume(row.id) not in domain.attached
                for domain in report.domains
            ):
                found.append(row.id)
    return found


def volumes_in_use(
    connection: Connection, reports: Mapping[UUID, HostReport], live: Mapping[UUID, Container[UUID]]
) -> Mapping[UUID, Sequence[VolumeInUse]]:
    """Return volumes that domains of hosts have against the ledger, by host.

    The ledger gives such a volume to no VM, or to another. A volume that it does not know counts
    if the domain is one of the host's ``live`` assignments. A poll that began before the latest
    change of a volume says nothing about it.
    """
    named: defaultdict[tuple[UUID, UUID], list[DomainReport]] = defaultdict(list)
    for key, report in reports.items():
        for domain in report.domains:
            for file in domain.volume_files:
                if match := _FILE.fullmatch(file):
                    named[key, UUID(match[1])].append(domain)
    known = _read_volumes(connection, {volume_id for _, volume_id in named})
    found: defaultdict[UUID, list[VolumeInUse]] = defaultdict(list)
    for (key, volume_id), users in sorted(named.items(), key=lambda item: item[0]):
        row = known.get(volume_id)
        if row is None:
            wrong = [each for each in users if each.assignment_id in live[key]]
            text = "a volume that this register center does not know"
        elif row.changed_at < reports[key].started_at:
            wrong = [
                each
                for each in users
                if each.assignment_id is None or each.assignment_id != row.assignment_id
            ]
            text = f"volume {row.name} of {row.tenant}, {row.state}"
            text += "" if row.vm is None else f" for VM {row.vm}"
        else:
            continue
        if wrong:
            names = tuple(sorted(each.name for each in wrong))
            found[key].append(VolumeInUse(volume_file_name(volume_id), text, names))
    return found


def _read_volumes(connection: Connection, ids: Collection[UUID]) -> Mapping[UUID, Row[Any]]:
    """Return the rows of volumes with the names of their tenants and VMs, by id."""
    query = (
        select(volumes, tenants.c.name.label("tenant"), vms.c.name.label("vm"))
        .join(tenants, tenants.c.id == volumes.c.tenant_id)
        .outerjoin(vms, vms.c.id == volumes.c.vm_id)
    )
    return {
        row.id: row
        for some in chunks(sorted(ids))
        for row in connection.execute(query.where(is_any_of(connection, volumes.c.id, some)))
    }
