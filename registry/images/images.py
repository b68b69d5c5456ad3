"""Images, the backing files of VMs' disks. They are immutable; new content is a new revision."""

from __future__ import annotations

import re
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, Select, and_, func, insert, select, tuple_, update

from registry.audit.changes import COPY, IMAGE
from registry.audit.events import record_event, record_events
from registry.db.clock import db_now
from registry.db.engine import Repository, retry_on_rollback
from registry.db.idempotency_keys import store_result
from registry.db.ids import uuid7
from registry.db.locks import take_advisory_lock
from registry.db.names import MAX_AMOUNT, check_int, check_name, check_new_name
from registry.db.pages import DEFAULT_LIMIT, Page, check_limit, decode_cursor, page_of
from registry.db.row_conversion import record_of
from registry.db.schema import hosts, image_copies, images, request_images, requests, vms
from registry.errors import ConflictError, InvalidError, NotFoundError
from registry.images.holds import release_image
from registry.lifecycle import FINISHED, CopyEvent, CopyState, HostAdmin, ImageEvent, ImageState
from registry.records.catalogue import VmType
from registry.records.images import Image, ImageCopy, NewImage

GIB: Final = 1 << 30
MAX_REVISION: Final = 2**31 - 1
_REFERENCE: Final = re.compile(r"(?P<name>[a-z0-9][a-z0-9._-]*)(:(?P<revision>[0-9]{1,9}))?")
_COLUMNS: Final = tuple(images.c[name] for name in Image.__dataclass_fields__)


class Images(Repository):
    """Adds, reads and removes images."""

    @retry_on_rollback
    def add(
        self,
        new: NewImage,
        *,
        id: UUID,  # noqa: A002 - the contract's name
        sha256: str,
        size_bytes: int,
        virtual_size_bytes: int,
        source: str,
        actor: str,
        opened: bool = True,
        signed_by: str | None = None,
    ) -> Image:
        """Register an image whose content is in the store under ``id``, complete and checked.

        If no QEMU was available to test whether it can be ``opened``, a worker tests it first, as
        it does with images that it fetches.

        If the newest revision of the name is identical, that revision is returned and nothing is
        created, so a caller may repeat the call.
        """
        check_int("size_bytes", size_bytes, 1, 2**62)
        check_int("virtual_size_bytes", virtual_size_bytes, 1, 2**62)
        with self._database.write() as connection:
            newest = _lock_newest_revision(connection, new)
            if newest is not None and _has_same_content(newest, new, sha256):
                return store_result(connection, _record_signer(connection, newest, signed_by))
            image = _insert_image(
                connection,
                new,
                newest,
                actor=actor,
                id=id,
                state=(ImageState.READY if opened else ImageState.IMPORTING).value,
                sha256=sha256,
                size_bytes=size_bytes,
                received_bytes=size_bytes,
                virtual_size_bytes=virtual_size_bytes,
                source=source,
                signed_by=signed_by,
            )
            return store_result(connection, image)

    @retry_on_rollback
    def fetch(
        self, new: NewImage, *, url: str, sha256: str, actor: str, signature: str | None = None
    ) -> Image:
        """Register an image that a worker is to fetch from a checked URL.

        If the newest revision of that name is identical, or is being fetched,
        that one is returned and nothing is created.
        """
        with self._database.write() as connection:
            newest = _lock_newest_revision(connection, new)
            if newest is not None and _has_same_content(newest, new, sha256):
                return store_result(connection, newest)
            image = _insert_image(
                connection,
                new,
                newest,
                actor=actor,
                id=uuid7(),
                state=ImageState.IMPORTING.value,
                sha256=sha256,
                source=url,
                signature=signature,
            )
            return store_result(connection, image)

    def by_id(self, image_id: UUID) -> Image:
        """Return an image by its id, also a removed one."""
        with self._database.read() as connection:
            return _get_image(connection, image_id)

    def is_removed(self, image_id: UUID) -> bool:
        """Return whether an image was removed."""
        with self._database.read() as connection:
            return _get_image(connection, image_id).state == ImageState.REMOVED

    def list(
        self,
        *,
        name: str | None = None,
        include_removed: bool = False,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
    ) -> Page[Image]:
        """Return a page of images, by name and revision.

        Without ``include_removed``, a failed revision is left out once a newer one is ready.
        """
        query = select(*_COLUMNS).order_by(images.c.name, images.c.revision)
        query = query.limit(check_limit(limit) + 1)
        if name is not None:
            query = query.where(images.c.name == name)
        if not include_removed:
            query = query.where(images.c.state != ImageState.REMOVED.value, ~_IS_SUPERSEDED)
        if cursor is not None:
            after = decode_cursor(cursor, str, int)
            query = query.where(tuple_(images.c.name, images.c.revision) > after)
        with self._database.read() as connection:
            found = [to_image(row) for row in connection.execute(query)]
        return page_of(found, limit, lambda image: (image.name, image.revision))

    def get(self, reference: str) -> Image:
        """Return the image of a reference; without a revision, the newest that is ready."""
        with self._database.read() as connection:
            return find_image(connection, reference)

    def copies(self, reference: str) -> tuple[ImageCopy, ...]:
        """Return an image's copies on hosts that are not retired, by host."""
        with self._database.read() as connection:
            image = find_image(connection, reference)
            query = (
                select(image_copies, hosts.c.name.label("host"))
                .join(hosts, hosts.c.id == image_copies.c.host_id)
                .where(
                    image_copies.c.image_id == image.id, hosts.c.admin != HostAdmin.RETIRED.value
                )
                .order_by(hosts.c.name)
            )
            return tuple(_to_copy(row, image) for row in connection.execute(query))

    @retry_on_rollback
    def remove(self, reference: str, *, actor: str) -> Image:
        """Remove an image and its copies on hosts; a repeated call is no error.

        Raises
        ------
        ConflictError
            If a VM has it as backing file, or a request with it is not placed yet.
        """
        with self._database.write() as connection:
            image = find_image(connection, reference, removed=True)
            # A request with this image locks the row too, so one of the two sees the other.
            connection.execute(
                select(images.c.id).where(images.c.id == image.id).with_for_update(key_share=True)
            )
            image = _get_image(connection, image.id)
            if image.state == ImageState.REMOVED:
                return image
            _check_image_unused(connection, image)
            now = db_now(connection)
            step = IMAGE.step(image.state, ImageEvent.REMOVED)
            connection.execute(
                update(images)
                .where(images.c.id == image.id)
                .values(state=step.after.value, removed_at=now, lease_token=None, lease_until=None)
            )
            history = [step.row(now, actor, image.id, data={"image": image.reference})]
            history += _release_copies(connection, image, now, actor)
            record_events(connection, history)
            return _get_image(connection, image.id)

    @retry_on_rollback
    def release(self, reference: str, *, actor: str) -> Image:
        """Release the hold on an image; without a hold nothing changes."""
        with self._database.write() as connection:
            key = find_image(connection, reference).id
            connection.execute(
                select(images.c.id).where(images.c.id == key).with_for_update(key_share=True)
            )
            image = _get_image(connection, key)
            if image.held_at is None:
                return image
            release_image(connection, image, now=db_now(connection), actor=actor)
            return _get_image(connection, key)


_newer = images.alias("newer")
#: A failed revision with a newer one that is ready.
_IS_SUPERSEDED: Final = and_(
    images.c.state == ImageState.FAILED.value,
    select(_newer.c.id)
    .where(
        _newer.c.name == images.c.name,
        _newer.c.revision > images.c.revision,
        _newer.c.state == ImageState.READY.value,
    )
    .exists(),
)


def find_image(connection: Connection, reference: str, *, removed: bool = False) -> Image:
    """Return the image of a reference, or raise `NotFoundError`.

    Without a revision it is the newest ready one, or the newest if none is ready. With
    ``removed``, removed revisions are found by their number, or if no other of the name is left.
    """
    match = _REFERENCE.fullmatch(reference) if len(reference) <= 80 else None
    if match is None:
        raise NotFoundError("image", reference)
    gone = images.c.state == ImageState.REMOVED.value
    ready = images.c.state == ImageState.READY.value
    query = select(*_COLUMNS).where(images.c.name == match["name"])
    if match["revision"] is not None:
        query = query.where(images.c.revision == min(int(match["revision"]), MAX_REVISION))
    if not removed:
        query = query.where(~gone)
    best = query.order_by(gone, ready.desc(), images.c.revision.desc()).limit(1)
    row = connection.execute(best).one_or_none()
    if row is None:
        raise NotFoundError("image", reference)
    return to_image(row)


def lock_request_image(connection: Connection, reference: str, vm_type: VmType) -> Image:
    """Return a request's image and lock it against removal until this transaction ends.

    Raises
    ------
    NotFoundError
        If there is no such image.
    InvalidError
        If its content is not in the store, or it does not fit into a VM of the type.
    """
    key = find_image(connection, reference).id
    connection.execute(select(images.c.id).where(images.c.id == key).with_for_update(read=True))
    image = _get_image(connection, key)
    if image.state == ImageState.REMOVED:
        raise NotFoundError("image", reference)
    if image.state != ImageState.READY or image.virtual_size_bytes is None:
        raise InvalidError(
            "image", f"{image.reference}, which is {image.state}", "an image that is ready"
        )
    disk_gib = vm_type.resources.get("disk_gib", 0)
    if image.virtual_size_bytes > disk_gib * GIB:
        raise InvalidError(
            "image",
            f"{image.reference}, whose disk has {_format_gib(image.virtual_size_bytes)} GiB",
            f"an image of at most {disk_gib} GiB, the disk of VM type {vm_type.name}",
        )
    memory_mib = vm_type.resources.get("memory_mib", 0)
    if image.min_memory_mib > memory_mib:
        raise InvalidError(
            "image",
            f"{image.reference}, which needs {image.min_memory_mib} MiB of memory",
            f"an image that {memory_mib} MiB suffice for, the memory of VM type {vm_type.name}",
        )
    return image


def to_image(row: Row[Any]) -> Image:
    """Return the record of an image from its row."""
    return record_of(Image, row)


def disk_gib_of(size_bytes: int) -> int:
    """Return the GiB of a host's disk that an image's file takes, rounded up."""
    return -(-size_bytes // GIB)


def _format_gib(size_bytes: int) -> str:
    """Return a size of an image in GiB as text, rounded up."""
    return f"{-(-size_bytes * 100 // GIB) / 100:g}"


def _lock_newest_revision(connection: Connection, new: NewImage) -> Image | None:
    """Check a new image, lock its name, and return the newest revision with the name."""
    check_name("name", new.name)
    check_int("min_memory_mib", new.min_memory_mib, 0, MAX_AMOUNT)
    take_advisory_lock(connection, "images")
    row = connection.execute(
        select(*_COLUMNS)
        .where(images.c.name == new.name)
        .order_by(images.c.revision.desc())
        .limit(1)
    ).one_or_none()
    if row is None:  # a further revision keeps its name
        check_new_name("name", new.name)
        return None
    return to_image(row)


def _has_same_content(image: Image, new: NewImage, sha256: str) -> bool:
    """Return whether an image in use is identical to a new one with this hash."""
    return image.state in (ImageState.READY, ImageState.IMPORTING) and (
        image.sha256,
        image.format,
        image.seed_kind,
        image.min_memory_mib,
    ) == (sha256, new.format, new.seed_kind, new.min_memory_mib)


def _record_signer(connection: Connection, image: Image, signed_by: str | None) -> Image:
    """Record who signed an image that was stored without a signer."""
    if signed_by is None or image.signed_by is not None:
        return image
    connection.execute(update(images).where(images.c.id == image.id).values(signed_by=signed_by))
    return _get_image(connection, image.id)


def _insert_image(
    connection: Connection, new: NewImage, newest: Image | None, *, actor: str, **values: Any
) -> Image:
    """Insert the next revision of an image and record the event."""
    now = db_now(connection)
    revision = check_int("revision", newest.revision + 1 if newest else 1, 1, MAX_REVISION)
    connection.execute(
        insert(images).values(
            name=new.name,
            revision=revision,
            format=new.format,
            seed_kind=new.seed_kind,
            min_memory_mib=new.min_memory_mib,
            created_at=now,
            **values,
        )
    )
    image = _get_image(connection, values["id"])
    record_event(
        connection,
        now,
        actor,
        "image_added",
        "image",
        image.id,
        change=(None, image.state),
        data={
            "image": image.reference,
            "sha256": image.sha256,
            "source": image.source,
            "signed_by": image.signed_by,
        },
    )
    return image


def _get_image(connection: Connection, key: UUID) -> Image:
    """Return an image by its id, or raise `NotFoundError`."""
    row = connection.execute(select(*_COLUMNS).where(images.c.id == key)).one_or_none()
    if row is None:
        raise NotFoundError("image", key)
    return to_image(row)


def _check_image_unused(connection: Connection, image: Image) -> None:
    """Raise `ConflictError` if VMs or unplaced requests use an image."""
    finished = [state.value for state in FINISHED]
    of_it = (
        select(func.count())
        .select_from(requests)
        .join(request_images, request_images.c.request_id == requests.c.id)
        .where(request_images.c.image_id == image.id)
    )
    standing: Select[Any] = of_it.join(vms, vms.c.request_id == requests.c.id).where(
        vms.c.deleted_at.is_(None)
    )
    resting = connection.execute(standing).scalar_one()
    unfinished = connection.execute(of_it.where(requests.c.state.not_in(finished))).scalar_one()
    if resting or unfinished:
        raise ConflictError(
            f"image {image.reference} cannot be removed: VMs that rest on it: {resting}, unfinished"
            f" requests for it: {unfinished}; delete them first"
        )


def _release_copies(
    connection: Connection, image: Image, now: Any, actor: str
) -> list[dict[str, Any]]:
    """Mark an image's copies for removal by workers; return an event for each."""
    history = []
    rows = connection.execute(
        select(image_copies, hosts.c.name.label("host"))
        .join(hosts, hosts.c.id == image_copies.c.host_id)
        .where(image_copies.c.image_id == image.id)
        .order_by(image_copies.c.host_id)
        .with_for_update(of=image_copies, key_share=True)
    ).all()
    for row in rows:
        step = COPY.step(row.state, CopyEvent.IMAGE_REMOVED)
        data = {"image": image.reference, "host": row.host}
        history.append(step.row(now, actor, image.id, data=data))
    connection.execute(
        update(image_copies)
        .where(image_copies.c.id.in_([row.id for row in rows]))
        .values(
            state=CopyState.REMOVING.value,
            lease_token=None,
            lease_owner=None,
            lease_until=None,
            sent_at=None,
        )
    )
    return history


def _to_copy(row: Row[Any], image: Image) -> ImageCopy:
    """Return the record of an image's copy on a host from its row."""
    return record_of(ImageCopy, row, image=image.reference, size_bytes=image.size_bytes or 0)
