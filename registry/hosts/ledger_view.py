"""The ledger's data of hosts, with which reports are compared, read for many at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, select

from registry.db.bulk import chunks, is_any_of
from registry.db.locks import lock_vms_on
from registry.db.schema import assignments, host_fences, leftovers, strangers, vms
from registry.images.copies import lock_copies
from registry.ledger.release import HELD

_MORE: Final = (
    assignments.c.activated_at,
    vms.c.switched_at,
    vms.c.paused_since,
    vms.c.name.label("vm_name"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLedger:
    """The ledger's data of one host that is locked with its VMs."""

    fence: Row[Any] | None
    live: Mapping[UUID, Row[Any]]  #: see `live_assignments`
    copies: Sequence[Row[Any]]  #: of images, whatever their state
    strangers: Collection[UUID]  #: domains known to be foreign
    leftovers: Sequence[Row[Any]]


def read_ledgers(connection: Connection, host_ids: Collection[UUID]) -> dict[UUID, HostLedger]:
    """Return the ledger's data of locked hosts, to compare with reports, and lock their VMs."""
    fences: dict[UUID, Row[Any]] = {}
    copies: defaultdict[UUID, list[Row[Any]]] = defaultdict(list)
    known: defaultdict[UUID, set[UUID]] = defaultdict(set)
    left: defaultdict[UUID, list[Row[Any]]] = defaultdict(list)
    keys = sorted(host_ids)
    for some in chunks(keys):
        fenced = select(host_fences).where(is_any_of(connection, host_fences.c.host_id, some))
        fenced = fenced.order_by(host_fences.c.host_id).with_for_update()
        fences |= {fence.host_id: fence for fence in connection.execute(fenced)}
    lock_vms_on(connection, *keys)
    live = live_assignments(connection, *keys)
    for some in chunks(keys):
        for row in lock_copies(connection, some):
            copies[row.host_id].append(row)
        of_strangers = select(strangers.c.host_id, strangers.c.domain_uuid)
        for stranger in connection.execute(
            of_strangers.where(is_any_of(connection, strangers.c.host_id, some))
        ):
            known[stranger.host_id].add(stranger.domain_uuid)
        of_leftovers = select(leftovers).where(is_any_of(connection, leftovers.c.host_id, some))
        for leftover in connection.execute(of_leftovers):
            left[leftover.host_id].append(leftover)
    return {
        key: HostLedger(
            fence=fences.get(key),
            live=live[key],
            copies=copies[key],
            strangers=known[key],
            leftovers=left[key],
        )
        for key in keys
    }


def live_assignments(connection: Connection, *host_ids: UUID) -> dict[UUID, dict[UUID, Row[Any]]]:
    """Return hosts' unreleased assignments with the desired and observed states of their VMs."""
    found: dict[UUID, dict[UUID, Row[Any]]] = {key: {} for key in host_ids}
    for some in chunks(sorted(host_ids)):
        query = HELD.add_columns(*_MORE).where(is_any_of(connection, assignments.c.host_id, some))
        for row in connection.execute(query):
            found[row.host_id][row.id] = row
    return found
