"""Image copies that rounds and builds need on hosts, counted as disk in use.

The commit of the first VM of an image on a host requests the copy. Builds that wait for a copy are
not sent to workers, so they use no thread and no claim.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, and_, case, select, update

from registry.audit.changes import COPY
from registry.audit.events import event_row, record_events
from registry.db.bulk import chunks, insert_if_absent
from registry.db.ids import uuid7
from registry.db.row_conversion import record_of
from registry.db.schema import hosts, image_copies, images, inventories, request_images
from registry.images.images import disk_gib_of, to_image
from registry.lifecycle import CopyEvent, CopyState
from registry.records.images import BuildImage

_DISK: Final = "disk_gib"
#: States in which a copy counts as disk in use.
COUNTED: Final = tuple(state.value for state in CopyState if state != CopyState.FAILED)


def pairs_without_room(
    connection: Connection,
    chosen: Sequence[tuple[Any, UUID]],
    amounts: Mapping[UUID, Mapping[str, int]],
    disk_gib: Mapping[UUID, int] = MappingProxyType({}),
) -> set[tuple[UUID, UUID]]:
    """Return the (image, host) pairs for which the host's disk has no room for a copy.

    A copy takes disk in addition to the VMs based on it. Policies do not count it,
    since most hosts have it already; so it is checked here, with the hosts locked. ``disk_gib`` has
    the sizes of the volumes that a VM is placed with.
    """
    missing = _uncounted_copies(connection, _image_host_pairs(chosen))
    if not missing:
        return set()
    planned: defaultdict[UUID, int] = defaultdict(int)
    for vm, host_id in chosen:
        planned[host_id] += amounts[vm.vm_type_id].get(_DISK, 0) + disk_gib.get(vm.id, 0)
    extra: defaultdict[UUID, int] = defaultdict(int)
    for (_, host_id), gib in missing.items():
        extra[host_id] += gib
    full = set()
    for some in chunks(sorted(extra)):
        query = select(inventories).where(
            inventories.c.host_id.in_(some), inventories.c.resource == _DISK
        )
        for row in connection.execute(query):
            offered = (row.override if row.override is not None else row.detected) or 0
            offered -= row.reserved + row.foreign_amount + extra[row.host_id]
            capacity = max(0, offered * row.ratio_thousandths // 1000)
            if row.committed + planned[row.host_id] > capacity:
                full.add(row.host_id)
    return {(image_id, host_id) for image_id, host_id in missing if host_id in full}


def request_copies(
    connection: Connection, chosen: Sequence[tuple[Any, UUID]], *, now: datetime, actor: str
) -> None:
    """Request copies of the VMs' images on their hosts, unless they exist."""
    history: list[dict[str, Any]] = []
    missing = _uncounted_copies(connection, _image_host_pairs(chosen))
    names = _host_names(connection, {host_id for _, host_id in missing})
    for (image_id, host_id), gib in sorted(missing.items(), key=lambda each: each[0][::-1]):
        made = insert_if_absent(
            connection,
            image_copies,
            id=uuid7(),
            host_id=host_id,
            image_id=image_id,
            state=CopyState.ABSENT.value,
            disk_gib=gib,
            created_at=now,
        )
        before: CopyState | None = None
        if not made:
            step = COPY.step(CopyState.FAILED, CopyEvent.WANTED)
            before = step.before
            connection.execute(
                update(image_copies)
                .where(image_copies.c.host_id == host_id, image_copies.c.image_id == image_id)
                .values(state=step.after.value, interruptions=0, sent_at=None)
            )
        reduce_disk(connection, host_id, gib)
        history.append(
            event_row(
                now,
                actor,
                "image_copy_state",
                "image",
                image_id,
                change=(before, CopyState.ABSENT),
                event=CopyEvent.WANTED,
                data={"host": names[host_id]},
            )
        )
    record_events(connection, history)


def _host_names(connection: Connection, keys: Collection[UUID]) -> Mapping[UUID, str]:
    """Return the names of hosts by their ids."""
    names: dict[UUID, str] = {}
    for some in chunks(sorted(keys)):
        query = select(hosts.c.id, hosts.c.name).where(hosts.c.id.in_(some))
        names |= {row.id: row.name for row in connection.execute(query)}
    return names


def lacks_image(host_id: ColumnElement[Any], request_id: ColumnElement[Any]) -> ColumnElement[bool]:
    """Return the condition that the request's image is not on the host."""
    # SQLAlchemy does not correlate two levels down by itself: a copy on any host would count.
    there = (
        select(image_copies.c.id)
        .where(
            image_copies.c.image_id == request_images.c.image_id,
            image_copies.c.host_id == host_id,
            image_copies.c.state == CopyState.PRESENT.value,
        )
        .correlate_except(image_copies)
    )
    return (
        select(request_images.c.request_id)
        .where(request_images.c.request_id == request_id, ~there.exists())
        .exists()
    )


def image_on_host(connection: Connection, request_id: UUID, host_id: UUID) -> BuildImage | None:
    """Return the copy of a request's image on a host; None if the request has no image."""
    row = connection.execute(
        select(images, image_copies.c.volume)
        .join(request_images, request_images.c.image_id == images.c.id)
        .join(
            image_copies,
            and_(image_copies.c.image_id == images.c.id, image_copies.c.host_id == host_id),
        )
        .where(request_images.c.request_id == request_id)
    ).one_or_none()
    if row is None:
        return None
    return record_of(BuildImage, row, reference=to_image(row).reference)


def reduce_disk(connection: Connection, host_id: UUID, gib: int) -> None:
    """Reduce the disk that a host offers by ``gib``; the next report computes the same sum."""
    amount = inventories.c.foreign_amount + gib
    connection.execute(
        update(inventories)
        .where(inventories.c.host_id == host_id, inventories.c.resource == _DISK)
        .values(foreign_amount=case((amount > 0, amount), else_=0))
    )


def _image_host_pairs(chosen: Iterable[tuple[Any, UUID]]) -> set[tuple[UUID, UUID]]:
    """Return which images the chosen VMs need on which hosts."""
    return {(vm.image_id, host_id) for vm, host_id in chosen if vm.image_id is not None}


def _uncounted_copies(
    connection: Connection, pairs: Collection[tuple[UUID, UUID]]
) -> dict[tuple[UUID, UUID], int]:
    """Return the (image, host) pairs whose copy takes no disk yet, with the GiB it will take."""
    missing = set(pairs)
    for some in chunks(sorted({host_id for _, host_id in pairs})):
        query = select(image_copies.c.image_id, image_copies.c.host_id).where(
            image_copies.c.host_id.in_(some), image_copies.c.state.in_(COUNTED)
        )
        missing -= {(row.image_id, row.host_id) for row in connection.execute(query)}
    sizes: dict[UUID, int] = {}
    for some in chunks(sorted({image_id for image_id, _ in missing})):
        known = select(images.c.id, images.c.size_bytes).where(images.c.id.in_(some))
        sizes |= {row.id: disk_gib_of(row.size_bytes) for row in connection.execute(known)}
    return {(image_id, host_id): sizes[image_id] for image_id, host_id in missing}
