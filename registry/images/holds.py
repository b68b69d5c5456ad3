"""Holds on images during whose upload hosts stop answering.

An image that crashes hosts must not be brought to all hosts of the
cluster. Until one host has it whole, only a few hosts at a time get it.
If several hosts stop answering during its upload, or right after, it is held: it goes to no
host and no VM of it is placed until an operator releases it. If hosts fail for another
reason, hosts without the image mostly fail too, and an image in wide use has hosts
that keep running with it; then it is not held.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, and_, func, or_, select, update

from registry.audit.events import record_event
from registry.db.bulk import chunks
from registry.db.schema import (
    assignments,
    hosts,
    image_copies,
    images,
    request_images,
    requests,
    vms,
)
from registry.lifecycle import FINISHED, OUT_OF_REACH, AssignmentState, CopyState, HostAdmin
from registry.records.images import Image

IMAGE_HELD: Final = "image_held"
#: How many hosts at a time get an image that none has whole yet.
HOSTS_AT_STAKE: Final = 2
#: How long hosts lost with the image count, ...
_BATCH_WINDOW: Final = timedelta(hours=1)
#: ... and how close in time hosts lost without it count against that.
_AT_ONCE: Final = timedelta(minutes=10)
#: Surviving hosts for each lost one at which the image is not to blame.
_BEARING: Final = 3
_NAMED: Final = 5

#: The condition that an upload began and did not succeed; one that never began has no volume.
_BEGUN: Final = and_(
    image_copies.c.state.in_((CopyState.ABSENT.value, CopyState.UPLOADING.value)),
    image_copies.c.volume.is_not(None),
)
#: The condition that a host or its pool does not answer now.
_SILENT: Final = or_(hosts.c.missed_polls > 0, hosts.c.pool_silent_since.is_not(None))


def may_copy_image(connection: Connection, image: Image, host_id: UUID, now: datetime) -> bool:
    """Return whether an image may be copied to one more host.

    A held image may not. Until one host has it complete, at most `HOSTS_AT_STAKE` hosts receive
    it at once, because an image may crash hosts.
    """
    if image.held_at is not None:
        return False
    there = select(image_copies.c.id).where(
        image_copies.c.image_id == image.id,
        image_copies.c.state == CopyState.PRESENT.value,
        image_copies.c.host_lost_at.is_(None),
    )
    if connection.execute(there.limit(1)).first() is not None:
        return True
    # Concurrent transactions would not see each other's uploads.
    mine = select(images.c.held_at).where(images.c.id == image.id).with_for_update(key_share=True)
    if connection.scalars(mine).one() is not None:
        return False
    under_way = (
        select(func.count())
        .select_from(image_copies)
        .join(hosts, hosts.c.id == image_copies.c.host_id)
        .where(
            image_copies.c.image_id == image.id,
            image_copies.c.host_id != host_id,
            # A host that never returns, or is removed, must not block the image for ever.
            hosts.c.admin != HostAdmin.RETIRED.value,
            or_(image_copies.c.lease_until > now, and_(_BEGUN, _SILENT, _is_recent_loss(now))),
        )
    )
    return connection.execute(under_way).scalar_one() < HOSTS_AT_STAKE


def record_lost_hosts(
    connection: Connection, lost: Mapping[UUID, datetime | None], *, now: datetime, actor: str
) -> None:
    """Record images in transfer to hosts that stopped answering, and hold suspect images.

    The hosts are locked. ``lost`` has the time at which each last answered; copies that were
    finished later count too. Images are locked in the order of their keys.
    """
    hosts_with: defaultdict[UUID, list[UUID]] = defaultdict(list)
    for host_id, answered_at in lost.items():
        for image_id in _images_in_transfer(connection, host_id, answered_at):
            hosts_with[image_id].append(host_id)
    for image_id in sorted(hosts_with):
        for some in chunks(hosts_with[image_id]):
            connection.execute(
                update(image_copies)
                .where(image_copies.c.host_id.in_(some), image_copies.c.image_id == image_id)
                .values(host_lost_at=now)
            )
        _hold_suspect_image(connection, image_id, now=now, actor=actor)


def release_image(connection: Connection, image: Image, *, now: datetime, actor: str) -> None:
    """Release the hold on an image, which is locked, and reset its losses."""
    connection.execute(
        update(images).where(images.c.id == image.id).values(held_at=None, held_reason=None)
    )
    connection.execute(
        update(image_copies)
        .where(image_copies.c.image_id == image.id, image_copies.c.host_lost_at.is_not(None))
        .values(host_lost_at=None)
    )
    data = {"image": image.reference}
    record_event(
        connection, now, actor, "image_released", "image", image.id, reason=None, data=data
    )


def is_not_held(image_id: ColumnElement[Any]) -> ColumnElement[bool]:
    """Return the condition that no hold keeps an image from hosts."""
    held = select(images.c.id).where(images.c.id == image_id, images.c.held_at.is_not(None))
    return ~held.correlate_except(images).exists()


def requests_of_held_images(connection: Connection) -> dict[UUID, str]:
    """Return the unfinished requests whose image is held, each with its image."""
    query = (
        select(request_images.c.request_id, images.c.name, images.c.revision)
        .join(images, images.c.id == request_images.c.image_id)
        .join(requests, requests.c.id == request_images.c.request_id)
        .where(
            images.c.held_at.is_not(None),
            requests.c.state.not_in([state.value for state in FINISHED]),
        )
    )
    return {row.request_id: f"{row.name}:{row.revision}" for row in connection.execute(query)}


def _is_recent_loss(now: datetime) -> ColumnElement[bool]:
    """Return the condition that an image copy's host is not marked as lost, or was lost lately."""
    lost_at = image_copies.c.host_lost_at
    return or_(lost_at.is_(None), lost_at >= now - _BATCH_WINDOW)


def _images_in_transfer(
    connection: Connection, host_id: UUID, answered_at: datetime | None
) -> set[UUID]:
    """Return the images being copied to a host, or copied there since it last answered.

    Images whose first VM was being built there are included.
    """
    since = _BEGUN
    if answered_at is not None:
        came = and_(
            image_copies.c.state == CopyState.PRESENT.value,
            image_copies.c.present_at >= answered_at,
        )
        since = or_(_BEGUN, came)
    copies = select(image_copies.c.image_id).where(image_copies.c.host_id == host_id, since)
    built = (
        select(request_images.c.image_id)
        .select_from(assignments)
        .join(vms, vms.c.id == assignments.c.vm_id)
        .join(request_images, request_images.c.request_id == vms.c.request_id)
    )
    creating = built.where(
        assignments.c.host_id == host_id, assignments.c.state == AssignmentState.CREATING.value
    )
    ran = built.where(
        assignments.c.host_id == host_id, assignments.c.state == AssignmentState.ACTIVE.value
    )
    first = set(connection.scalars(creating)) - set(connection.scalars(ran))
    return {*connection.scalars(copies), *first}


def _hold_suspect_image(
    connection: Connection, image_id: UUID, *, now: datetime, actor: str
) -> None:
    """Hold an image if several hosts stopped answering as they received it, and few survived."""
    row = connection.execute(
        select(images).where(images.c.id == image_id).with_for_update(key_share=True)
    ).one()
    if row.held_at is not None:
        return
    lost = _hosts_lost_with(connection, image_id, now)
    if len(lost) < HOSTS_AT_STAKE or _count_survivors(connection, image_id) >= _BEARING * len(lost):
        return
    if _count_lost_without(connection, lost, now) > len(lost):
        return
    names = ", ".join(list(lost.values())[:_NAMED])
    more = f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
    reason = (
        f"{len(lost)} hosts, or their pools, stopped answering while it was brought to them:"
        f" {names}{more}"
    )
    connection.execute(
        update(images).where(images.c.id == image_id).values(held_at=now, held_reason=reason)
    )
    data = {"image": f"{row.name}:{row.revision}"}
    record_event(connection, now, actor, "image_held", "image", image_id, reason=reason, data=data)


def _hosts_lost_with(connection: Connection, image_id: UUID, now: datetime) -> dict[UUID, str]:
    """Return the names, by id, of hosts that stopped answering as they received an image."""
    query = (
        select(hosts.c.id, hosts.c.name)
        .join(image_copies, image_copies.c.host_id == hosts.c.id)
        .where(
            image_copies.c.image_id == image_id, image_copies.c.host_lost_at >= now - _BATCH_WINDOW
        )
        .order_by(hosts.c.name)
    )
    return {row.id: row.name for row in connection.execute(query)}


def _count_survivors(connection: Connection, image_id: UUID) -> int:
    """Count the hosts that have an image and answered after they received it."""
    query = (
        select(func.count())
        .select_from(image_copies)
        .join(hosts, hosts.c.id == image_copies.c.host_id)
        .where(
            image_copies.c.image_id == image_id,
            image_copies.c.state == CopyState.PRESENT.value,
            image_copies.c.host_lost_at.is_(None),
            image_copies.c.present_at < hosts.c.last_polled_at,
            hosts.c.health.not_in(OUT_OF_REACH),
            hosts.c.pool_silent_since.is_(None),
        )
    )
    return connection.execute(query).scalar_one()


def _count_lost_without(connection: Connection, lost: Collection[UUID], now: datetime) -> int:
    """Count other hosts that recently stopped answering, also those still marked as up."""
    lately = now - _AT_ONCE
    query = select(func.count()).where(
        or_(
            and_(hosts.c.missed_polls > 0, hosts.c.last_polled_at >= lately),
            hosts.c.pool_silent_since >= lately,
        ),
        hosts.c.id.not_in(lost),
    )
    return connection.execute(query).scalar_one()
