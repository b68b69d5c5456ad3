"""The VMs of a request `web` are `web-1`, `web-2`, …: names unique among what a tenant has.

Whoever makes VMs holds the lock of their tenant, so what is looked up here stays true
until the transaction is over; the database's own index refuses what goes around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, insert, select

from registry.addresses import give_macs
from registry.bulk import chunks
from registry.errors import DuplicateError
from registry.hostnames import numbered
from registry.ids import uuid7
from registry.lifecycle import FINISHED, VmDesired, VmObserved
from registry.schema import request_networks, requests, vms


def check_request_name(connection: Connection, owner: UUID, name: str) -> None:
    """Refuse a name that a VM of the tenant has: commands take either by its name."""
    taken = select(vms.c.id).where(
        vms.c.tenant_id == owner, vms.c.name == name, vms.c.desired != VmDesired.DELETED.value
    )
    if connection.execute(taken).first() is not None:
        raise DuplicateError("VM", "name", name)


def insert_vms(
    connection: Connection,
    request_id: UUID,
    owner: UUID,
    name: str,
    *,
    count: int,
    labels: Mapping[str, str],
    hostname: str | None,
    now: datetime,
) -> None:
    """Give a request more VMs, each with a MAC address on the request's network.

    Numbers go on where they ended, also after deletions. The only VM that a request begins
    with has its host name as it is, all others have it with their number.
    """
    last = _last_number(connection, request_id)
    numbers = range(last + 1, last + count + 1)
    names = [f"{name}-{number}" for number in numbers]
    alone = last == 0 and count == 1
    _check_free(connection, owner, names)
    keys = [uuid7() for _ in names]
    connection.execute(
        insert(vms),
        [
            {
                "id": key,
                "name": each,
                "request_id": request_id,
                "tenant_id": owner,
                "desired": VmDesired.RUNNING.value,
                "observed": VmObserved.ABSENT.value,
                "labels": dict(labels),
                "hostname": (hostname if hostname is None or alone else numbered(hostname, number)),
                "created_at": now,
            }
            for key, each, number in zip(keys, names, numbers, strict=True)
        ],
    )
    network = select(request_networks.c.network_id).where(
        request_networks.c.request_id == request_id
    )
    give_macs(connection, keys, connection.scalars(network).one_or_none())


def _last_number(connection: Connection, request_id: UUID) -> int:
    query = select(vms.c.name).where(vms.c.request_id == request_id)
    return max((int(name.rpartition("-")[2]) for name in connection.scalars(query)), default=0)


def _check_free(connection: Connection, owner: UUID, names: list[str]) -> None:
    over = [state.value for state in FINISHED]
    for some in chunks(names):
        taken = (
            select(requests.c.name)
            .where(
                requests.c.tenant_id == owner,
                requests.c.name.in_(some),
                requests.c.state.not_in(over),
            )
            .order_by(requests.c.name)
        )
        found = connection.scalars(taken).first()
        if found is not None:
            raise DuplicateError("request", "name", found)
        held = (
            select(vms.c.name)
            .where(
                vms.c.tenant_id == owner,
                vms.c.name.in_(some),
                vms.c.desired != VmDesired.DELETED.value,
            )
            .order_by(vms.c.name)
        )
        found = connection.scalars(held).first()
        if found is not None:
            raise DuplicateError("VM", "name", found)
