"""Images that workers fetch: claimed by lease like other work, and begun anew when it ran out."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid4

from sqlalchemy import Connection, Row, or_, select, update

from registry.clock import db_now
from registry.engine import Database, retried
from registry.errors import ClaimLostError
from registry.events import event_row, record
from registry.image_store import Stored
from registry.images import to_image
from registry.lifecycle import IMAGE_TRANSITIONS, ImageEvent, ImageState, next_state
from registry.records import Import, ImportClaim
from registry.schema import images

_UNCLAIMED: Final[dict[str, Any]] = {
    "claim_token": None,
    "claim_owner": None,
    "claim_until": None,
}


class ImageImports:
    """What workers do with images that are to be fetched."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @retried
    def claim(self, image_id: UUID, owner: str, lease_s: float) -> Import | None:
        """Claim an import; None: it is over, or somebody is at it."""
        with self._database.write() as connection:
            row = _lock(connection, image_id)
            now = db_now(connection)
            if row is None or row.state != ImageState.IMPORTING:
                return None
            if row.claim_until is not None and row.claim_until > now:
                return None
            token, until = uuid4(), now + timedelta(seconds=lease_s)
            _set(
                connection,
                image_id,
                claim_token=token,
                claim_owner=owner,
                claim_until=until,
                received_bytes=0,
            )
            return Import(
                claim=ImportClaim(image_id=image_id, token=token),
                image=to_image(row),
                url=row.source,
            )

    @retried
    def progress(self, claim: ImportClaim, received_bytes: int, lease_s: float) -> None:
        """Write how far the import is, and keep the claim for longer."""
        with self._database.write() as connection:
            _ours(connection, claim)
            until = db_now(connection) + timedelta(seconds=lease_s)
            _set(connection, claim.image_id, received_bytes=received_bytes, claim_until=until)

    @retried
    def imported(self, claim: ImportClaim, stored: Stored) -> None:
        """Write that the image's content is in the store: it is on offer."""
        with self._database.write() as connection:
            _end(
                connection,
                _ours(connection, claim),
                ImageEvent.IMPORTED,
                None,
                size_bytes=stored.size_bytes,
                received_bytes=stored.size_bytes,
                virtual_size_bytes=stored.virtual_size_bytes,
            )

    @retried
    def failed(self, claim: ImportClaim, error: str) -> None:
        """Write that the image cannot be had, and why."""
        with self._database.write() as connection:
            _end(connection, _ours(connection, claim), ImageEvent.FAILED, error)

    @retried
    def yielded(self, claim: ImportClaim) -> None:
        """Give an import back unfinished; it is sent again later."""
        with self._database.write() as connection:
            row = _ours(connection, claim)
            _set(connection, row.id, sent_at=db_now(connection), **_UNCLAIMED)


def due_imports(
    connection: Connection, limit: int, *, now: datetime, stale: datetime
) -> tuple[UUID, ...]:
    """Return the images that nobody fetches, and mark them as sent."""
    keys = connection.scalars(
        select(images.c.id)
        .where(
            images.c.state == ImageState.IMPORTING.value,
            or_(images.c.claim_until.is_(None), images.c.claim_until <= now),
            or_(images.c.sent_at.is_(None), images.c.sent_at <= stale),
        )
        .order_by(images.c.sent_at.nulls_first(), images.c.id)
        .limit(limit)
        .with_for_update(skip_locked=True, key_share=True)
    ).all()
    if keys:
        connection.execute(update(images).where(images.c.id.in_(keys)).values(sent_at=now))
    return tuple(keys)


def _lock(connection: Connection, image_id: UUID) -> Row[Any] | None:
    return connection.execute(
        select(images).where(images.c.id == image_id).with_for_update(key_share=True)
    ).one_or_none()


def _ours(connection: Connection, claim: ImportClaim) -> Row[Any]:
    row = _lock(connection, claim.image_id)
    if row is None or row.claim_token != claim.token or row.state != ImageState.IMPORTING:
        found = "it does not exist" if row is None else f"it is {row.state}, or another has it"
        raise ClaimLostError(f"image {claim.image_id}", found)
    return row


def _end(
    connection: Connection, row: Row[Any], event: ImageEvent, error: str | None, **values: Any
) -> None:
    before = ImageState(row.state)
    after = next_state(IMAGE_TRANSITIONS, before, event)
    _set(connection, row.id, state=after.value, last_error=error, **_UNCLAIMED, **values)
    history = event_row(
        db_now(connection),
        row.claim_owner,
        "image_state",
        "image",
        row.id,
        change=(before, after),
        event=event,
        reason=error,
        data={"image": to_image(row).reference},
    )
    record(connection, [history])


def _set(connection: Connection, key: UUID, **values: Any) -> None:
    connection.execute(update(images).where(images.c.id == key).values(**values))
