"""The workers' side of image copies: uploads to hosts, failures, and removals.

Each attempt uploads to a volume with a new name, and builds get only the name of a complete
upload. So a half-written volume is never used as an image.

Changing a copy needs the lock of its host.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, Select, delete, func, select

from registry.audit.changes import COPY
from registry.audit.events import record_event
from registry.db.clock import db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.host_access import to_host_access
from registry.db.locks import lock_hosts
from registry.db.row_leases import COPIES, is_claimed
from registry.db.schema import hosts, image_copies, images
from registry.errors import ClaimLostError
from registry.images.copies import COPY_ROWS, change_copy
from registry.images.holds import may_copy_image
from registry.images.host_copies import reduce_disk
from registry.images.images import to_image
from registry.ledger.release import end_builds
from registry.ledger.shared_disks import machine_of_host, read_pool_neighbours
from registry.lifecycle import OUT_OF_REACH, CopyEvent, CopyState
from registry.records.images import Image
from registry.records.work import CopyClaim, CopyRemoval, Upload

#: Attempts in a row that may end for a passing reason before a copy counts as failed.
MAX_INTERRUPTIONS: Final = 5


class ImageCopyTasks(Repository):
    """Claims and results of uploads and removals of image copies."""

    @retry_on_rollback
    def claim_upload(self, copy_id: UUID, owner: str, lease_s: float) -> Upload | None:
        """Claim an image copy to upload it; None if this worker must not upload it now.

        A host gets one upload at a time. An image that no host has yet goes to a few hosts at a
        time, and an image on hold to none.
        """
        with self._database.write() as connection:
            row = _lock_copy(connection, copy_id)
            now = db_now(connection)
            if row is None or row.health in OUT_OF_REACH or is_claimed(row, now):
                return None
            if row.pool_silent_since is not None:
                return None
            before = CopyState(row.state)
            if before == CopyState.ABSENT:
                event = CopyEvent.CLAIMED
            elif before == CopyState.UPLOADING:
                event = CopyEvent.RECLAIMED
            else:
                return None
            if _count_uploads(connection, row.host_id, now):
                return None
            image = _get_copied_image(connection, row)
            if not may_copy_image(connection, image, row.host_id, now):
                return None
            attempt = row.attempts + 1
            step = COPY.step(before, event)
            values = {"state": step.after.value, "attempts": attempt, "uploaded_bytes": 0}
            token = COPIES.claim(connection, row.id, owner, lease_s, now=now, **values)
            step.record_event(connection, now, owner, row.image_id, data={"host": row.host_name})
            return Upload(
                claim=CopyClaim(copy_id=row.id, token=token),
                image=image,
                host=to_host_access(row),
                volume=f"fuga-image-{row.id}.{attempt}.{image.format}",
                left_volume=row.volume,
            )

    @retry_on_rollback
    def record_volume(self, claim: CopyClaim, volume: str) -> None:
        """Record the name of an image copy's volume before the upload begins."""
        with self._database.write() as connection:
            row = _lock_claimed_copy(connection, claim)
            COPIES.update_row(connection, row.id, volume=volume)

    @retry_on_rollback
    def record_progress(self, claim: CopyClaim, uploaded_bytes: int, lease_s: float) -> None:
        """Record the progress of an image upload, and extend the claim."""
        with self._database.write() as connection:
            row = _lock_claimed_copy(connection, claim)
            COPIES.extend(connection, row.id, lease_s, uploaded_bytes=uploaded_bytes)

    @retry_on_rollback
    def finish_upload(self, claim: CopyClaim) -> None:
        """Record that an image copy is complete and can be a backing file."""
        with self._database.write() as connection:
            row = _lock_claimed_copy(connection, claim)
            now = db_now(connection)
            size_bytes = _get_copied_image(connection, row).size_bytes
            change_copy(
                connection,
                row,
                CopyEvent.UPLOADED,
                now=now,
                last_error=None,
                present_at=now,
                uploaded_bytes=size_bytes,
                interruptions=0,
                host_lost_at=None,
            )

    @retry_on_rollback
    def retry_upload(self, claim: CopyClaim, error: str | None) -> None:
        """Release an image upload to be repeated; with an ``error`` up to five times in a row."""
        with self._database.write() as connection:
            row = _lock_claimed_copy(connection, claim)
            now = db_now(connection)
            interruptions = row.interruptions + (error is not None)
            if error is not None and interruptions >= MAX_INTERRUPTIONS:
                _refuse_copy(connection, row, error, now)
                return
            change_copy(
                connection,
                row,
                CopyEvent.INTERRUPTED,
                now=now,
                reason=error,
                last_error=error or row.last_error,
                interruptions=interruptions,
                sent_at=now,
            )

    @retry_on_rollback
    def fail_upload(self, claim: CopyClaim, error: str) -> None:
        """Record that a host refused an image.

        VMs that waited for it there lose their place and are placed again; their requests avoid
        the host for a while. Other VMs may still be placed on the host, so that one bad image
        cannot close the cluster.
        """
        with self._database.write() as connection:
            row = _lock_claimed_copy(connection, claim)
            _refuse_copy(connection, row, error, db_now(connection))

    @retry_on_rollback
    def claim_removal(self, copy_id: UUID, owner: str, lease_s: float) -> CopyRemoval | None:
        """Claim the copy of a removed image; None if this worker must not remove it."""
        with self._database.write() as connection:
            row = _lock_copy(connection, copy_id)
            now = db_now(connection)
            if row is None or row.state != CopyState.REMOVING or is_claimed(row, now):
                return None
            token = COPIES.claim(connection, row.id, owner, lease_s, now=now)
            pool: Select[Any] = select(hosts.c.shared_pool, machine_of_host().label("machine"))
            its = connection.execute(pool.where(hosts.c.id == row.host_id)).one()
            return CopyRemoval(
                claim=CopyClaim(copy_id=row.id, token=token),
                image=_get_copied_image(connection, row).reference,
                host=to_host_access(row),
                volume=row.volume,
                neighbours=read_pool_neighbours(connection, its),
            )

    @retry_on_rollback
    def extend_removal(self, claim: CopyClaim, lease_s: float) -> None:
        """Extend the claim on the removal of an image copy."""
        with self._database.write() as connection:
            row = _lock_claimed_copy(connection, claim, CopyState.REMOVING)
            COPIES.extend(connection, row.id, lease_s)

    @retry_on_rollback
    def finish_removal(self, claim: CopyClaim) -> None:
        """Record that an image copy is removed, and free its disk space."""
        with self._database.write() as connection:
            row = _lock_claimed_copy(connection, claim, CopyState.REMOVING)
            connection.execute(delete(image_copies).where(image_copies.c.id == row.id))
            if row.counted:
                reduce_disk(connection, row.host_id, -row.disk_gib)
            image = _get_copied_image(connection, row)
            record_event(
                connection,
                db_now(connection),
                row.lease_owner,
                "image_copy_removed",
                "image",
                image.id,
                data={"image": image.reference, "host": row.host_name},
            )

    @retry_on_rollback
    def yield_removal(self, claim: CopyClaim, error: str | None) -> None:
        """Release the unfinished removal of an image copy, which is sent again later."""
        with self._database.write() as connection:
            row = _lock_claimed_copy(connection, claim, CopyState.REMOVING)
            COPIES.retry_later(connection, row.id, last_error=error or row.last_error)


def _lock_copy(connection: Connection, copy_id: UUID) -> Row[Any] | None:
    """Lock the host of an image copy and then the copy; return its row or None."""
    host_id = connection.scalars(
        select(image_copies.c.host_id).where(image_copies.c.id == copy_id)
    ).one_or_none()
    if host_id is None:
        return None
    lock_hosts(connection, host_id)
    return connection.execute(COPY_ROWS.where(image_copies.c.id == copy_id)).one_or_none()


def _lock_claimed_copy(
    connection: Connection, claim: CopyClaim, state: CopyState = CopyState.UPLOADING
) -> Row[Any]:
    """Lock and return the row of a claimed image copy, or raise `ClaimLostError`."""
    row = COPIES.check_claim(_lock_copy(connection, claim.copy_id), claim.copy_id, claim.token)
    if row.state != state.value:
        raise ClaimLostError(f"image copy {claim.copy_id}", f"it is {row.state}")
    return row


def _count_uploads(connection: Connection, host_id: UUID, now: datetime) -> int:
    """Return how many image uploads to a host workers have claimed."""
    query = select(func.count()).select_from(image_copies)
    under_way = (
        image_copies.c.host_id == host_id,
        image_copies.c.state == CopyState.UPLOADING.value,
        image_copies.c.lease_until > now,
    )
    return connection.execute(query.where(*under_way)).scalar_one()


def _get_copied_image(connection: Connection, row: Row[Any]) -> Image:
    """Return the image of which a row is a copy."""
    return to_image(connection.execute(select(images).where(images.c.id == row.image_id)).one())


def _refuse_copy(connection: Connection, row: Row[Any], error: str, now: datetime) -> None:
    """Record that a host refused an image, and end the builds there that wait for it."""
    image = _get_copied_image(connection, row)
    change_copy(
        connection,
        row,
        CopyEvent.REFUSED,
        now=now,
        reason=error,
        last_error=error,
        uploaded_bytes=0,
    )
    reduce_disk(connection, row.host_id, -row.disk_gib)
    end_builds(
        connection,
        row.host_id,
        row.image_id,
        reason=f"image {image.reference} could not be brought to host {row.host_name}: {error}",
        now=now,
        actor=row.lease_owner,
    )
