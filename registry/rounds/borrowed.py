"""Borrowed VMs as rounds read them, and those that a round lends to requests.

A request with a ``max_count`` may borrow VMs beyond its ``count`` once all of that are placed. A
borrowed VM is created with its first place, so it never waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, func, select

from registry.db.bulk import chunks, is_any_of
from registry.db.locks import lock_tenants
from registry.db.schema import requests, vms
from registry.lifecycle import RequestState, VmDesired
from registry.records.cluster import BorrowedView, RequestView
from registry.records.round_commits import Placement
from registry.requests.resize import add_vms
from registry.rounds.spot import placed_preemptible_vms

#: As `ix_vms_id_borrowed` has it.
_LIVE: Final = (vms.c.borrowed, vms.c.deleted_at.is_(None))
#: A request whose time is not over, and whose own VMs are all placed.
_MAY_BORROW: Final = (
    requests.c.max_count.is_not(None),
    requests.c.state == RequestState.PLACED.value,
    requests.c["count"] >= 1,
    requests.c.ending_since.is_(None),
)


def borrows_anything(connection: Connection) -> bool:
    """Return whether a request may borrow VMs, or a borrowed VM exists."""
    any_vm = select(vms.c.id).where(*_LIVE).exists()
    any_request = select(requests.c.id).where(*_MAY_BORROW).exists()
    return bool(connection.scalar(select(any_vm | any_request)))


def count_to_borrow(
    connection: Connection, request_ids: Collection[UUID] | None = None
) -> Mapping[UUID, int]:
    """Return how many more VMs requests may borrow, of those that may borrow any."""
    wanted = (
        select(requests.c.id, requests.c.max_count, func.count(vms.c.id).label("wanted"))
        .join(vms, vms.c.request_id == requests.c.id)
        .where(*_MAY_BORROW, vms.c.desired != VmDesired.DELETED.value)
        .group_by(requests.c.id, requests.c.max_count)
    )
    queries = [wanted]
    if request_ids is not None:
        queries = [
            wanted.where(is_any_of(connection, requests.c.id, some))
            for some in chunks(sorted(request_ids))
        ]
    rows = [row for query in queries for row in connection.execute(query)]
    return {row.id: row.max_count - row.wanted for row in rows if row.max_count > row.wanted}


def borrowed_view(
    connection: Connection, axis: tuple[str, ...], asks: Sequence[RequestView]
) -> BorrowedView:
    """Return the placed borrowed VMs, and the requests that may borrow more."""
    return BorrowedView(
        vms=placed_preemptible_vms(connection, axis, _LIVE),
        asks=tuple(replace(each, borrowed=True, min_count=1, age=0) for each in asks),
    )


def lock_borrowers(connection: Connection, placements: Sequence[Placement]) -> None:
    """Lock the tenants whose requests borrow VMs, so that none is resized or deleted before."""
    keys: set[UUID] = set()
    for some in chunks(sorted({each.request_id for each in placements})):
        query = select(requests.c.tenant_id).where(is_any_of(connection, requests.c.id, some))
        keys.update(connection.scalars(query))
    lock_tenants(connection, *sorted(keys))


def lend_vms(
    connection: Connection, placements: Sequence[Placement], now: datetime
) -> tuple[list[tuple[UUID, UUID]], list[Placement]]:
    """Create the VMs that placements lend; return pairs of VM and host, and what is refused.

    The caller has locked the tenants. A request gets no more than it may borrow by now.
    """
    if not placements:
        return [], []
    wanted: Counter[UUID] = Counter()
    for part in placements:
        wanted[part.request_id] += part.count
    left = count_to_borrow(connection, wanted)
    lent: dict[UUID, Any] = {}
    for row in _request_rows(connection, sorted(left)):
        number = min(wanted[row.id], left[row.id])
        lent[row.id] = iter(add_vms(connection, row, row.tenant_id, number, now=now, borrowed=True))
    found: list[tuple[UUID, UUID]] = []
    refused: list[Placement] = []
    for part in placements:
        some = list(islice(lent.get(part.request_id, iter(())), part.count))
        found += [(vm, part.host_id) for vm in some]
        if len(some) < part.count:
            refused.append(replace(part, count=part.count - len(some)))
    return found, refused


def _request_rows(connection: Connection, keys: Sequence[UUID]) -> list[Any]:
    """Return what the VMs of requests have of their requests."""
    columns = [requests.c[name] for name in ("id", "name", "tenant_id", "labels", "hostname")]
    return [
        row
        for some in chunks(keys)
        for row in connection.execute(
            select(*columns, requests.c.spot)
            .where(is_any_of(connection, requests.c.id, some))
            .order_by(requests.c.id)
        )
    ]
