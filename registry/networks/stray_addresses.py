"""Addresses of VMs that do not need them, and VMs that lack an address."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sqlalchemy import Connection, Row, Select, and_, or_, select, update

from registry.audit.events import event_row, record_events
from registry.db.clock import db_now
from registry.db.schema import assignments, interfaces, is_place, network_addresses, networks, vms
from registry.subnets import address_text


def check_addresses(connection: Connection) -> Iterator[str]:
    """Yield a sentence for each IP address of a VM that is stray or missing."""
    given = select(network_addresses.c.vm_id).where(network_addresses.c.vm_id.is_not(None)).limit(1)
    # SQLite has no statistics of an empty table, and would start from all VMs that ever existed.
    strays = connection.execute(_STRAY) if connection.scalar(given) is not None else ()
    for stray in strays:
        yield f"{_stray_message(stray)}; `fuga doctor --repair` frees it"
    lacking = (
        select(vms.c.name, vms.c.id, networks.c.name.label("network"))
        .join(interfaces, interfaces.c.vm_id == vms.c.id)
        .join(networks, networks.c.id == interfaces.c.network_id)
        .join(assignments, and_(assignments.c.vm_id == vms.c.id, is_place))
        .outerjoin(network_addresses, network_addresses.c.vm_id == vms.c.id)
        .where(networks.c.cidr.is_not(None), network_addresses.c.address.is_(None))
        .order_by(vms.c.id)
    )
    for row in connection.execute(lacking):
        yield f"VM {row.name} ({row.id}) has a place and no address of network {row.network}"


def free_stray_addresses(connection: Connection, *, actor: str) -> list[str]:
    """Free the stray IP addresses that `check_addresses` finds; return a sentence for each."""
    # Locking the addresses is enough, as VMs only get free ones.
    rows = connection.execute(_STRAY.with_for_update(of=network_addresses)).all()
    for row in rows:
        connection.execute(
            update(network_addresses)
            .where(
                network_addresses.c.network_id == row.network_id,
                network_addresses.c.address == row.address,
            )
            .values(vm_id=None)
        )
    rendered = [_stray_message(row) for row in rows]
    now = db_now(connection)
    history = [
        event_row(now, actor, "stray_address_freed", "vm", row.vm_id, reason=sentence)
        for row, sentence in zip(rows, rendered, strict=True)
    ]
    record_events(connection, history)
    return rendered


_STRAY: Final[Select[Any]] = (
    select(
        network_addresses.c.network_id,
        network_addresses.c.address,
        network_addresses.c.vm_id,
        networks.c.name.label("network"),
        vms.c.name,
        vms.c.deleted_at,
        vms.c.generation,
    )
    .join(networks, networks.c.id == network_addresses.c.network_id)
    .join(vms, vms.c.id == network_addresses.c.vm_id)
    .join(interfaces, interfaces.c.vm_id == vms.c.id)
    .where(
        or_(
            vms.c.deleted_at.is_not(None),
            vms.c.generation == 0,  # an address comes with the first place
            interfaces.c.network_id.is_(None),
            interfaces.c.network_id != network_addresses.c.network_id,
        )
    )
    .order_by(network_addresses.c.network_id, network_addresses.c.address)
)


def _stray_message(row: Row[Any]) -> str:
    """Return text that a VM has an IP address which it does not need, and why."""
    why = "is of another network"
    if row.deleted_at is not None:
        why = "is gone"
    elif not row.generation:
        why = "never had a place"
    address = address_text(row.address)
    return f"address {address} of network {row.network} is that of VM {row.name}, which {why}"
