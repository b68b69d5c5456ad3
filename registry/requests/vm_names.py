"""The VMs of a request `web` are `web-1`, `web-2`, …: names unique among what a tenant has.

Whoever makes VMs holds the lock of their tenant, so what is looked up here stays true
until the transaction is over; the database's own index refuses what goes around it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, bindparam, insert, literal, select, union_all

from registry.errors import DuplicateError
from registry.ground.bulk import chunks, each
from registry.ground.ids import uuid7
from registry.ground.schema import request_networks, requests, vms
from registry.lifecycle import FINISHED, VmDesired, VmObserved
from registry.networks.addresses import give_macs
from registry.records.requests import Request
from registry.requests.hostnames import numbered


def numbered_names(name: str, first: int, count: int) -> list[str]:
    """Return the names of so many VMs of a request, from a number on."""
    return [f"{name}-{number}" for number in range(first, first + count)]


def insert_vms(
    connection: Connection,
    request: Request,
    owner: UUID,
    *,
    first: int,
    count: int,
    network_id: UUID | None,
    now: datetime,
) -> None:
    """Give a request more VMs, each with a MAC address on the request's network.

    Their names must be free (`check_free`).
    """
    rows = vm_rows(request, owner, first=first, count=count, now=now)
    connection.execute(insert(vms), each(rows))
    give_macs(connection, [row["id"] for row in rows], network_id)


def vm_rows(
    request: Request, owner: UUID, *, first: int, count: int, now: datetime
) -> list[dict[str, Any]]:
    """Return the rows of so many VMs of a request.

    The only VM that a request begins with has its host name as it is, all others
    have it with their number.
    """
    hostname = request.hostname
    alone = first == 1 and count == 1
    return [
        {
            "id": uuid7(),
            "name": name,
            "request_id": request.id,
            "tenant_id": owner,
            "desired": VmDesired.RUNNING.value,
            "observed": VmObserved.ABSENT.value,
            "labels": dict(request.labels),
            "hostname": (hostname if hostname is None or alone else numbered(hostname, number)),
            "created_at": now,
        }
        for number, name in enumerate(numbered_names(request.name, first, count), start=first)
    ]


def add_vms(
    connection: Connection, request: Request, owner: UUID, count: int, *, now: datetime
) -> None:
    """Give a request more VMs. Numbers go on where they ended, also after deletions."""
    names = connection.scalars(select(vms.c.name).where(vms.c.request_id == request.id))
    first = 1 + max((int(name.rpartition("-")[2]) for name in names), default=0)
    check_free(connection, owner, numbered_names(request.name, first, count))
    network_id = connection.scalar(
        select(request_networks.c.network_id).where(request_networks.c.request_id == request.id)
    )
    insert_vms(connection, request, owner, first=first, count=count, network_id=network_id, now=now)


def check_free(connection: Connection, owner: UUID, names: Sequence[str]) -> None:
    """Refuse names for VMs if commands would find another by them."""
    Names(connection, {owner}, names).check(owner, names)


class Names:
    """The names that tenants, who are locked, have given to what lives, as far as asked for."""

    def __init__(
        self, connection: Connection, owners: Collection[UUID], names: Sequence[str]
    ) -> None:
        self._taken: defaultdict[UUID, set[tuple[str, str]]] = defaultdict(set)
        for some in chunks(sorted(names)):
            given = {"owners": sorted(owners), "names": some}
            for owner, kind, name in connection.execute(_TAKEN, given):
                self._taken[owner].add((kind, name))

    def check(self, owner: UUID, of_vms: Collection[str], request: str | None = None) -> None:
        """Refuse names for VMs, and one for their request, if commands would find another."""
        wanted = {*of_vms, request}
        found = {each for each in self._taken[owner] if each[1] in wanted}
        # That another request has its name is said where nothing else is in the way.
        for taken in (found - {("request", request)}, found):
            if taken:
                kind, name = min(taken, key=lambda each: (each[1] != request, each))
                raise DuplicateError(kind, "name", name)

    def give(self, owner: UUID, of_vms: Iterable[str], request: str) -> None:
        """Take them for a request that this transaction will write."""
        self._taken[owner] |= {("request", request), *(("VM", name) for name in of_vms)}


_TAKEN: Final = union_all(
    select(requests.c.tenant_id, literal("request"), requests.c.name).where(
        requests.c.tenant_id.in_(bindparam("owners", expanding=True)),
        requests.c.name.in_(bindparam("names", expanding=True)),
        requests.c.state.not_in([state.value for state in FINISHED]),
    ),
    select(vms.c.tenant_id, literal("VM"), vms.c.name).where(
        vms.c.tenant_id.in_(bindparam("owners", expanding=True)),
        vms.c.name.in_(bindparam("names", expanding=True)),
        vms.c.desired != VmDesired.DELETED.value,
    ),
)
