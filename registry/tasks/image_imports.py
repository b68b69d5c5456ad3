"""Imports of images by workers, which start over when a worker's lease expires."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, select

from registry.audit.changes import IMAGE
from registry.db.clock import db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.row_leases import IMPORTS, is_claimed
from registry.db.schema import images
from registry.errors import ClaimLostError
from registry.images.images import to_image
from registry.images.incoming_file import StoredFile
from registry.lifecycle import ImageEvent, ImageState
from registry.records.work import Import, ImportClaim


class ImageImports(Repository):
    """Claims and results of image imports."""

    @retry_on_rollback
    def claim(self, image_id: UUID, owner: str, lease_s: float) -> Import | None:
        """Claim the import of an image; None if it is over or claimed."""
        with self._database.write() as connection:
            row = _lock_image(connection, image_id)
            now = db_now(connection)
            if row is None or row.state != ImageState.IMPORTING:
                return None
            if is_claimed(row, now):
                return None
            token = IMPORTS.claim(connection, image_id, owner, lease_s, now=now, received_bytes=0)
            return Import(
                claim=ImportClaim(image_id=image_id, token=token),
                image=to_image(row),
                url=row.source,
                signature=row.signature,
            )

    @retry_on_rollback
    def record_progress(self, claim: ImportClaim, received_bytes: int, lease_s: float) -> None:
        """Record the progress of an image's import, and extend the claim."""
        with self._database.write() as connection:
            _lock_claimed_import(connection, claim)
            IMPORTS.extend(connection, claim.image_id, lease_s, received_bytes=received_bytes)

    @retry_on_rollback
    def finish(self, claim: ImportClaim, stored: StoredFile) -> None:
        """Record that an imported image is in the store, so that it is ready."""
        with self._database.write() as connection:
            row = _lock_claimed_import(connection, claim)
            _end_import(
                connection,
                row,
                ImageEvent.IMPORTED,
                None,
                signed_by=stored.signed_by or row.signed_by,
                size_bytes=stored.size_bytes,
                received_bytes=stored.size_bytes,
                virtual_size_bytes=stored.virtual_size_bytes,
            )

    @retry_on_rollback
    def record_failure(self, claim: ImportClaim, error: str) -> None:
        """Record that the import of an image failed, and why."""
        with self._database.write() as connection:
            _end_import(
                connection, _lock_claimed_import(connection, claim), ImageEvent.FAILED, error
            )

    @retry_on_rollback
    def yield_claim(self, claim: ImportClaim) -> None:
        """Release the unfinished import of an image, which is sent again later."""
        with self._database.write() as connection:
            IMPORTS.retry_later(connection, _lock_claimed_import(connection, claim).id)


def _lock_image(connection: Connection, image_id: UUID) -> Row[Any] | None:
    """Lock and return the row of an image, or None."""
    return connection.execute(
        select(images).where(images.c.id == image_id).with_for_update(key_share=True)
    ).one_or_none()


def _lock_claimed_import(connection: Connection, claim: ImportClaim) -> Row[Any]:
    """Lock and return the row of an image whose import is claimed, or raise `ClaimLostError`."""
    row = IMPORTS.check_claim(_lock_image(connection, claim.image_id), claim.image_id, claim.token)
    if row.state != ImageState.IMPORTING:
        raise ClaimLostError(f"image {claim.image_id}", f"it is {row.state}")
    return row


def _end_import(
    connection: Connection, row: Row[Any], event: ImageEvent, error: str | None, **values: Any
) -> None:
    """Change the state of an imported image, release the claim, and record the event."""
    step = IMAGE.step(row.state, event)
    IMPORTS.release_claim(connection, row.id, state=step.after.value, last_error=error, **values)
    now, data = db_now(connection), {"image": to_image(row).reference}
    step.record_event(connection, now, row.lease_owner, row.id, reason=error, data=data)
