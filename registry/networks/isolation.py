"""VMs on isolated networks whose MACs are not of the block that hosts' filters match.

A VM keeps the MAC that it was created with. If its network was not isolated then, only rules
for addresses keep it from VMs on other hosts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, func, select

from registry.db.schema import interfaces, networks, vms
from registry.networks.addresses import ISOLATED_PREFIX
from registry.subnets import parse_subnet, reachable_ranges

_NAMED: Final = 20


def isolation_warning(connection: Connection, network_id: UUID) -> str | None:
    """Return a warning with the number of VMs that a network's filters do not isolate, or None."""
    row = connection.execute(select(networks).where(networks.c.id == network_id)).one()
    count = _count_unisolated_vms(connection, row) if _filters_by_mac(row) else 0
    if not count:
        return None
    return (
        f"its filters know isolated VMs on other hosts by MACs that begin with {ISOLATED_PREFIX}:"
        f" they do not isolate {_vms_text(count)} created before; fuga doctor names them"
    )


def check_isolation(connection: Connection) -> Iterator[str]:
    """Yield a sentence on each network with VMs that its filters do not isolate."""
    query = select(networks).where(networks.c.isolated).order_by(networks.c.name)
    for row in connection.execute(query).all():
        count = _count_unisolated_vms(connection, row) if _filters_by_mac(row) else 0
        if not count:
            continue
        some = (
            select(vms.c.name)
            .join(interfaces, interfaces.c.vm_id == vms.c.id)
            .where(*_unisolated_vm_conditions(row.id))
            .order_by(vms.c.name)
            .limit(_NAMED)
        )
        names = ", ".join(connection.scalars(some))
        rest = f" and {count - _NAMED} more" if count > _NAMED else ""
        yield (
            f"network {row.name} is isolated, but the MACs of {_vms_text(count)} do not begin with"
            f" {ISOLATED_PREFIX}, by which filters of other hosts know isolated VMs:"
            f" {names}{rest}; replace them by new VMs"
        )


def _filters_by_mac(row: Row[Any]) -> bool:
    """Return whether the filters of an isolated network match VMs on other hosts by MAC."""
    if not (row.isolated and row.filtered):
        return False
    subnet = parse_subnet(row.cidr, row.gateway, row.dns, row.excluded)
    return subnet is None or not reachable_ranges(subnet)


def _count_unisolated_vms(connection: Connection, row: Row[Any]) -> int:
    """Return the number of VMs of an isolated network that hosts' filters do not identify."""
    query = (
        select(func.count())
        .select_from(interfaces)
        .join(vms, vms.c.id == interfaces.c.vm_id)
        .where(*_unisolated_vm_conditions(row.id))
    )
    return connection.execute(query).scalar_one()


def _unisolated_vm_conditions(network_id: UUID) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions for VMs on a network whose MACs are not of the isolated block."""
    return (
        interfaces.c.network_id == network_id,
        interfaces.c.mac.not_like(f"{ISOLATED_PREFIX}%"),
        vms.c.deleted_at.is_(None),
    )


def _vms_text(count: int) -> str:
    """Return a number of VMs as text."""
    return f"{count} VMs" if count > 1 else "1 VM"
