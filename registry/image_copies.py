"""Copies of images in the hands of workers: brought to hosts, lost there, and removed.

A worker that claims a copy uploads to a volume whose name no other attempt uses, and
only the name of an attempt that ended well is ever handed to a build: a volume that
an attempt left half written is never taken for the image.

Whoever changes a copy holds the lock of its host.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid4

from sqlalchemy import Connection, Row, delete, func, select, update

from registry.access import HOST_COLUMNS, OUT_OF_REACH, to_access
from registry.clock import db_now
from registry.engine import Database, retried
from registry.errors import ClaimLostError
from registry.events import event_row, record
from registry.image_failures import give_up_builds
from registry.images import to_image
from registry.images_on_hosts import COUNTED, count_disk
from registry.lifecycle import COPY_TRANSITIONS, CopyEvent, CopyState, next_state
from registry.locks import lock_hosts
from registry.records import (
    CopyClaim,
    CopyRemoval,
    Host,
    HostReport,
    Image,
    Upload,
)
from registry.schema import hosts, image_copies, images

#: Attempts in a row that may end for a passing reason before a copy counts as failed.
MAX_INTERRUPTIONS: Final = 5
_UNCLAIMED: Final[dict[str, Any]] = {
    "claim_token": None,
    "claim_owner": None,
    "claim_until": None,
}


class ImageCopies:
    """What workers do with copies of images."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @retried
    def claim_upload(self, copy_id: UUID, owner: str, lease_s: float) -> Upload | None:
        """Claim a copy to upload it; None: it is not ours to do, or not now.

        One at a time to a host: two would only slow each other down.
        """
        with self._database.write() as connection:
            row = _find(connection, copy_id)
            now = db_now(connection)
            if row is None or row.health in OUT_OF_REACH or _is_claimed(row, now):
                return None
            before = CopyState(row.state)
            if before == CopyState.ABSENT:
                event = CopyEvent.CLAIMED
            elif before == CopyState.UPLOADING:
                event = CopyEvent.RECLAIMED
            else:
                return None
            if _uploads(connection, row.host_id, now):
                return None
            image = _image_of(connection, row)
            attempt = row.attempts + 1
            claim = _take(
                connection,
                row,
                next_state(COPY_TRANSITIONS, before, event),
                event,
                owner=owner,
                now=now,
                lease_s=lease_s,
                attempts=attempt,
                uploaded_bytes=0,
            )
            return Upload(
                claim=claim,
                image=image,
                host=to_access(row),
                volume=f"fuga-image-{row.id}.{attempt}.{image.format}",
                left_volume=row.volume,
            )

    @retried
    def begin(self, claim: CopyClaim, volume: str) -> None:
        """Write where the upload goes, before anything is there."""
        with self._database.write() as connection:
            row = _ours(connection, claim)
            _set(connection, row.id, volume=volume)

    @retried
    def progress(self, claim: CopyClaim, uploaded_bytes: int, lease_s: float) -> None:
        """Write how far the upload is, and keep the claim for longer."""
        with self._database.write() as connection:
            row = _ours(connection, claim)
            until = db_now(connection) + timedelta(seconds=lease_s)
            _set(connection, row.id, uploaded_bytes=uploaded_bytes, claim_until=until)

    @retried
    def uploaded(self, claim: CopyClaim) -> None:
        """Write that the copy is whole: VMs may rest on it."""
        with self._database.write() as connection:
            row = _ours(connection, claim)
            now = db_now(connection)
            size_bytes = _image_of(connection, row).size_bytes
            _move(
                connection,
                row,
                CopyEvent.UPLOADED,
                now=now,
                last_error=None,
                present_at=now,
                uploaded_bytes=size_bytes,
                interruptions=0,
            )

    @retried
    def interrupted(self, claim: CopyClaim, error: str | None) -> None:
        """Give the upload back to be tried again. With an ``error``: up to five times in a row."""
        with self._database.write() as connection:
            row = _ours(connection, claim)
            now = db_now(connection)
            interruptions = row.interruptions + (error is not None)
            if error is not None and interruptions >= MAX_INTERRUPTIONS:
                _give_up(connection, row, error, now)
                return
            _move(
                connection,
                row,
                CopyEvent.INTERRUPTED,
                now=now,
                reason=error,
                last_error=error or row.last_error,
                interruptions=interruptions,
                sent_at=now,
            )

    @retried
    def refused(self, claim: CopyClaim, error: str) -> None:
        """Write that the host did not take the image.

        VMs that waited for it there lose their place and are decided again;
        their requests avoid the host for a while. The host itself is not held
        back: an image that no host takes must not close the cluster.
        """
        with self._database.write() as connection:
            row = _ours(connection, claim)
            _give_up(connection, row, error, db_now(connection))

    @retried
    def claim_removal(self, copy_id: UUID, owner: str, lease_s: float) -> CopyRemoval | None:
        """Claim the copy of an image that was removed; None: it is not ours to do."""
        with self._database.write() as connection:
            row = _find(connection, copy_id)
            now = db_now(connection)
            if row is None or row.state != CopyState.REMOVING or _is_claimed(row, now):
                return None
            token = uuid4()
            until = now + timedelta(seconds=lease_s)
            _set(connection, row.id, claim_token=token, claim_owner=owner, claim_until=until)
            return CopyRemoval(
                claim=CopyClaim(copy_id=row.id, token=token),
                image=_image_of(connection, row).reference,
                host=to_access(row),
                volume=row.volume,
            )

    @retried
    def removed(self, claim: CopyClaim) -> None:
        """Write that the host has the copy no more; its disk is free again."""
        with self._database.write() as connection:
            row = _ours(connection, claim, CopyState.REMOVING)
            connection.execute(delete(image_copies).where(image_copies.c.id == row.id))
            if row.counted:
                count_disk(connection, row.host_id, -row.disk_gib)
            image = _image_of(connection, row)
            history = event_row(
                db_now(connection),
                row.claim_owner,
                "image_copy_removed",
                "image",
                image.id,
                data={"image": image.reference, "host": row.host_name},
            )
            record(connection, [history])

    @retried
    def yield_removal(self, claim: CopyClaim, error: str | None) -> None:
        """Give a removal back unfinished; it is sent again later."""
        with self._database.write() as connection:
            row = _ours(connection, claim, CopyState.REMOVING)
            now = db_now(connection)
            _set(connection, row.id, sent_at=now, last_error=error or row.last_error, **_UNCLAIMED)


def copy_rows(connection: Connection, host_ids: Collection[UUID]) -> Sequence[Row[Any]]:
    """Lock the copies on hosts, and return them."""
    there = _SELECT.where(image_copies.c.host_id.in_(host_ids)).order_by(image_copies.c.id)
    return connection.execute(there).all()


def disk_of_copies(copies: Iterable[Row[Any]]) -> int:
    """Return what these copies take of a host's disk, in GiB."""
    return sum(row.disk_gib for row in copies if row.counted)


def note_missing(
    connection: Connection,
    host: Host,
    report: HostReport,
    copies: Iterable[Row[Any]],
    *,
    now: datetime,
    actor: str,
) -> None:
    """Want copies anew whose volumes a look at the host did not find.

    The name that went missing is forgotten and no attempt uses it again: should
    the pool come back with it, VMs that rest on it are not disturbed.
    """
    there = set(report.volumes)
    for row in copies:
        known = row.state == CopyState.PRESENT.value and row.present_at < report.started_at
        if known and row.volume not in there:
            _move(
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


# ---- rows ---------------------------------------------------------------------

_SELECT: Final = (
    select(
        image_copies,
        image_copies.c.state.in_(COUNTED).label("counted"),
        *(column for column in HOST_COLUMNS if column.key != "host_id"),
    )
    .select_from(image_copies)
    .join(hosts, hosts.c.id == image_copies.c.host_id)
    .with_for_update(of=image_copies, key_share=True)
)


def _find(connection: Connection, copy_id: UUID) -> Row[Any] | None:
    """Lock a copy's host and then the copy."""
    host_id = connection.scalars(
        select(image_copies.c.host_id).where(image_copies.c.id == copy_id)
    ).one_or_none()
    if host_id is None:
        return None
    lock_hosts(connection, host_id)
    return connection.execute(_SELECT.where(image_copies.c.id == copy_id)).one_or_none()


def _ours(
    connection: Connection, claim: CopyClaim, state: CopyState = CopyState.UPLOADING
) -> Row[Any]:
    row = _find(connection, claim.copy_id)
    subject = f"image copy {claim.copy_id}"
    if row is None:
        raise ClaimLostError(subject, "it does not exist")
    if row.claim_token != claim.token or row.state != state.value:
        raise ClaimLostError(
            subject, f"{row.claim_owner or 'nobody'} has it, and it is {row.state}"
        )
    return row


def _is_claimed(row: Row[Any], now: datetime) -> bool:
    return row.claim_until is not None and bool(row.claim_until > now)


def _uploads(connection: Connection, host_id: UUID, now: datetime) -> int:
    query = select(func.count()).select_from(image_copies)
    under_way = (
        image_copies.c.host_id == host_id,
        image_copies.c.state == CopyState.UPLOADING.value,
        image_copies.c.claim_until > now,
    )
    return connection.execute(query.where(*under_way)).scalar_one()


def _image_of(connection: Connection, row: Row[Any]) -> Image:
    return to_image(connection.execute(select(images).where(images.c.id == row.image_id)).one())


def _take(
    connection: Connection,
    row: Row[Any],
    state: CopyState,
    event: CopyEvent,
    *,
    owner: str,
    now: datetime,
    lease_s: float,
    **values: Any,
) -> CopyClaim:
    token = uuid4()
    until = now + timedelta(seconds=lease_s)
    _set(
        connection,
        row.id,
        state=state.value,
        claim_token=token,
        claim_owner=owner,
        claim_until=until,
        **values,
    )
    _record(connection, row, state, event, now=now, actor=owner, reason=None)
    return CopyClaim(copy_id=row.id, token=token)


def _move(
    connection: Connection,
    row: Row[Any],
    event: CopyEvent,
    *,
    now: datetime,
    actor: str | None = None,
    reason: str | None = None,
    **values: Any,
) -> None:
    """Take a copy to its next state and its claim from whoever had it."""
    after = next_state(COPY_TRANSITIONS, CopyState(row.state), event)
    _set(connection, row.id, state=after.value, **_UNCLAIMED, **values)
    _record(connection, row, after, event, now=now, actor=actor or row.claim_owner, reason=reason)


def _give_up(connection: Connection, row: Row[Any], error: str, now: datetime) -> None:
    image = _image_of(connection, row)
    _move(
        connection,
        row,
        CopyEvent.REFUSED,
        now=now,
        reason=error,
        last_error=error,
        uploaded_bytes=0,
    )
    count_disk(connection, row.host_id, -row.disk_gib)
    give_up_builds(
        connection,
        row.host_id,
        row.image_id,
        reason=f"image {image.reference} could not be brought to host {row.host_name}: {error}",
        now=now,
        actor=row.claim_owner,
    )


def _record(
    connection: Connection,
    row: Row[Any],
    after: CopyState,
    event: CopyEvent,
    *,
    now: datetime,
    actor: str,
    reason: str | None,
) -> None:
    history = event_row(
        now,
        actor,
        "image_copy_state",
        "image",
        row.image_id,
        change=(CopyState(row.state), after),
        event=event,
        reason=reason,
        data={"host": row.host_name},
    )
    record(connection, [history])


def _set(connection: Connection, key: UUID, **values: Any) -> None:
    connection.execute(update(image_copies).where(image_copies.c.id == key).values(**values))
