"""Files of volumes in the pools of hosts, compared with what hosts report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from sqlalchemy import Connection, select

from registry.db.bulk import is_any_of
from registry.db.schema import volumes
from registry.lifecycle import VolumeState

#: States in which a volume's file may be absent: it is made or deleted just now.
_UNCERTAIN: Final = (
    VolumeState.CREATING.value,
    VolumeState.WITHDRAWING.value,
    VolumeState.REMOVING.value,
)


def volume_file_name(volume_id: UUID) -> str:
    """Return the name of a volume's file in its pool, as `hypervisor.data_volume_name` does."""
    return f"fuga-volume-{volume_id}.qcow2"


@dataclass(frozen=True, slots=True)
class VolumeFile:
    """The file of a volume in the pool of a host."""

    name: str
    volume: str
    size_gib: int
    is_made: bool
    since: datetime  #: of the volume's present state


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
                since=row.due_at,
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
