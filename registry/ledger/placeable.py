"""VMs that a round may place, found at a cost that does not depend on how many wait.

The conditions that `ix_vms_request_id_unplaced` names are written as literals, so that
both databases can prove that it serves a query.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Row,
    Uuid,
    and_,
    bindparam,
    column,
    func,
    literal_column,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY

from registry.db.bulk import chunks
from registry.db.schema import assignments, is_place, preserved_disks, vms
from registry.ledger.shared_disks import KeptDisk
from registry.lifecycle import VmDesired

#: The condition for VMs that are wanted and absent: they wait or are being built.
ABSENT: Final = and_(
    vms.c.observed == literal_column("'absent'"), vms.c.desired != literal_column("'deleted'")
)
_RUNNING: Final = vms.c.desired == VmDesired.RUNNING.value
_PLACE: Final = select(assignments.c.id).where(assignments.c.vm_id == vms.c.id, is_place)
#: A borrowed VM has a place or ends.
_STAYS: Final = ~vms.c.borrowed
#: Subquery per VM: a join would start from the assignments of all VMs.
_WITHOUT_PLACE: Final = and_(ABSENT, _STAYS, _PLACE.correlate(vms).scalar_subquery().is_(None))


def is_waiting_vm() -> ColumnElement[bool]:
    """Return the condition for a VM that a round may place.

    Such a VM should run, is absent, and no assignment of it holds capacity: a failed build that is
    not proven absent must not run twice. A borrowed VM does not wait: it is created with its place.
    """
    return and_(ABSENT, _STAYS, _RUNNING, ~_PLACE.exists())


def is_borrowed_without_place() -> ColumnElement[bool]:
    """Return the condition for a borrowed VM that lost its place, or never got one."""
    no_place = ~_PLACE.correlate(vms).exists()  # also in a query of assignments
    return and_(vms.c.borrowed, vms.c.deleted_at.is_(None), ABSENT, no_place)


def kept_disks_of_requests(
    connection: Connection, waits: ColumnElement[bool]
) -> Mapping[UUID, Mapping[UUID, KeptDisk]]:
    """Return the disks in shared pools kept for waiting VMs, by request and VM."""
    kept = {
        row.vm_id: KeptDisk(
            shared_pool=row.shared_pool, disk_of=row.disk_of, generation=row.disk_generation
        )
        for row in connection.execute(select(preserved_disks))
    }
    found: dict[UUID, dict[UUID, KeptDisk]] = {}
    # By key: a join may start from all waiting VMs, and mostly no disk is kept.
    for some in chunks(sorted(kept)):
        query = select(vms.c.id, vms.c.request_id).where(vms.c.id.in_(some), waits)
        for row in connection.execute(query):
            found.setdefault(row.request_id, {})[row.id] = kept[row.id]
    return found


def oldest_waiting_vms(connection: Connection, wanted: Mapping[UUID, int]) -> list[UUID]:
    """Return the oldest waiting VMs of each request, up to its number in ``wanted``."""
    return [row.id for row in _oldest_vms(connection, wanted, and_(_WITHOUT_PLACE, _RUNNING))]


def count_waiting(connection: Connection, at_most: Mapping[UUID, int]) -> Mapping[UUID, int]:
    """Return how many VMs of each request wait for a host; counting stops at the given limit."""
    rows = _oldest_vms(connection, at_most, and_(_WITHOUT_PLACE, _RUNNING))
    return Counter(row.request_id for row in rows)


def waiting_requests(connection: Connection, request_ids: Collection[UUID]) -> set[UUID]:
    """Return which of these requests have a VM that a round may place."""
    return set(count_waiting(connection, dict.fromkeys(request_ids, 1)))


def requests_lacking_places(connection: Connection, request_ids: Collection[UUID]) -> set[UUID]:
    """Return which of these requests have a wanted VM, running or stopped, without a host."""
    rows = _oldest_vms(connection, dict.fromkeys(request_ids, 1), _WITHOUT_PLACE)
    return {row.request_id for row in rows}


def _oldest_vms(
    connection: Connection, numbers: Mapping[UUID, int], condition: ColumnElement[bool]
) -> Iterator[Row[UUID, UUID]]:
    """Yield the oldest VMs of requests that meet a condition, up to a number for each request."""
    which = select(vms.c.id, vms.c.request_id).where(condition).order_by(vms.c.id)
    keys = sorted(numbers)
    if connection.dialect.name == "sqlite":
        for key in keys:
            of_one = which.where(vms.c.request_id == key).limit(numbers[key])
            yield from connection.execute(of_one).all()
        return
    demanded = func.unnest(
        bindparam("keys", type_=ARRAY(Uuid)), bindparam("numbers", type_=ARRAY(Integer))
    ).table_valued(column("request_id", Uuid), column("number", Integer), name="limits")
    demanded = demanded.render_derived()
    first = (
        which.where(vms.c.request_id == demanded.c.request_id).limit(demanded.c.number).lateral()
    )
    query: Any = select(first.c.id, first.c.request_id).select_from(demanded.join(first, true()))
    for some in chunks(keys):
        given = {"keys": list(some), "numbers": [numbers[key] for key in some]}
        yield from connection.execute(query, given).all()
