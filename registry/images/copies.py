"""Rows of image copies on hosts, and their changes of state."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, select

from registry.audit.changes import COPY
from registry.db.bulk import chunks
from registry.db.host_access import HOST_COLUMNS
from registry.db.row_leases import COPIES
from registry.db.schema import hosts, image_copies
from registry.images.host_copies import COUNTED
from registry.lifecycle import CopyEvent, CopyState, HostAdmin
from registry.records.hosts import Host, HostReport

#: Names of volumes that are image copies: id of the copy and attempt.
_COPY_VOLUME: Final = re.compile(
    r"fuga-image-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.([0-9]{1,9})\.[0-9a-z]+"
)


def lock_copies(connection: Connection, host_ids: Collection[UUID]) -> Sequence[Row[Any]]:
    """Lock the image copies on these hosts, in order of id; return their rows."""
    there = COPY_ROWS.where(image_copies.c.host_id.in_(host_ids)).order_by(image_copies.c.id)
    return connection.execute(there).all()


def disk_of_copies(copies: Iterable[Row[Any]]) -> int:
    """Return the GiB of a host's disk that its image copies take."""
    return sum(row.disk_gib for row in copies if row.counted)


def replace_missing_copies(
    connection: Connection,
    host: Host,
    report: HostReport,
    copies: Iterable[Row[Any]],
    *,
    now: datetime,
    actor: str,
) -> None:
    """Request new image copies in place of those whose volumes a poll did not find.

    The name of a missing volume is not used again, so VMs with this backing file are undisturbed
    if the pool returns with it.
    """
    there = set(report.volumes)
    for row in copies:
        known = row.state == CopyState.PRESENT.value and row.present_at < report.started_at
        if known and row.volume not in there:
            change_copy(
                connection,
                row,
                CopyEvent.MISSING,
                now=now,
                actor=actor,
                reason=f"pool {host.pool} has no volume {row.volume}",
                volume=None,
                present_at=None,
                uploaded_bytes=0,
                sent_at=None,
            )


def superseded_copies(
    connection: Connection, names: Collection[str], started_at: datetime
) -> set[str]:
    """Return those of some volumes that are image copies which no build uses any more.

    A newer attempt of the copy is present since before a poll began at ``started_at``, or the host
    of the copy is retired. A copy that this register center does not know may be another one's, or
    younger than the backup that was restored.
    """
    attempts = {
        name: (UUID(match[1]), int(match[2]))
        for name in names
        if (match := _COPY_VOLUME.fullmatch(name)) is not None
    }
    rows: dict[UUID, Row[Any]] = {}
    query = select(
        image_copies.c.id,
        image_copies.c.state,
        image_copies.c.volume,
        image_copies.c.attempts,
        image_copies.c.present_at,
        hosts.c.admin,
    ).join(hosts, hosts.c.id == image_copies.c.host_id)
    for some in chunks(sorted({key for key, _ in attempts.values()})):
        found = connection.execute(query.where(image_copies.c.id.in_(some)))
        rows |= {row.id: row for row in found}

    def is_superseded(name: str, key: UUID, attempt: int) -> bool:
        row = rows.get(key)
        if row is None or attempt > row.attempts:
            return False
        if row.admin == HostAdmin.RETIRED.value:
            return True
        is_present = row.state == CopyState.PRESENT.value and row.present_at < started_at
        return bool(is_present and row.volume != name)

    return {name for name, (key, attempt) in attempts.items() if is_superseded(name, key, attempt)}


COPY_ROWS: Final = (
    select(
        image_copies,
        image_copies.c.state.in_(COUNTED).label("counted"),
        *(column for column in HOST_COLUMNS if column.key != "host_id"),
    )
    .select_from(image_copies)
    .join(hosts, hosts.c.id == image_copies.c.host_id)
    .with_for_update(of=image_copies, key_share=True)
)


def change_copy(
    connection: Connection,
    row: Row[Any],
    event: CopyEvent,
    *,
    now: datetime,
    actor: str | None = None,
    reason: str | None = None,
    **values: Any,
) -> None:
    """Change the state of an image copy, and release the worker's claim on it."""
    step = COPY.step(row.state, event)
    COPIES.release_claim(connection, row.id, state=step.after.value, **values)
    data = {"host": row.host_name}
    by = actor or row.lease_owner
    step.record_event(connection, now, by, row.image_id, reason=reason, data=data)
