"""If-Match preconditions, checked in the transaction that updates.

A client changes a resource only if it is still as the client read it. Another client may
write between a read and a write. So the check is part of the
transaction of the write, after the row is locked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Column, Connection, select

from registry.db.dialect import has_one_writer
from registry.db.locks import lock_tenants, lock_vms
from registry.db.schema import hosts, networks, requests, tenants, vms, volumes

#: The key column of each kind of resource with preconditions.
_KEYS: Final[Mapping[str, Column[Any]]] = {
    "host": hosts.c.name,
    "network": networks.c.name,
    "quota": tenants.c.name,
    "request": requests.c.id,
    "tenant": tenants.c.name,
    "vm": vms.c.id,
    "volume": volumes.c.id,
}


@dataclass(slots=True)
class Condition:
    """The precondition of a caller's next transaction; it is not checked again after its commit."""

    kind: str
    key: Any
    check: Callable[[Connection], None]  #: raises if the resource has changed
    held: bool = False  #: its transaction is committed

    def check_locked(self, connection: Connection) -> None:
        """Lock the row of the resource and check its ETag against If-Match in this transaction."""
        if not has_one_writer(connection):
            if self.kind == "request":
                _lock_request(connection, self.key)
            else:
                column = _KEYS[self.kind]
                row = select(column).where(column == self.key)
                connection.execute(row.with_for_update(key_share=True))
        self.check(connection)


def _lock_request(connection: Connection, key: Any) -> None:
    """Lock a request and its VMs against changes.

    A request's row comes last in the order of `registry.db.locks`, so it cannot be locked before
    the rows that its change still has to lock. The locks taken here are those of which each change
    of the request holds one. A round that writes why a request waits holds none, and changes no
    field of a client.
    """
    owner = connection.scalar(select(requests.c.tenant_id).where(requests.c.id == key))
    if owner is not None:
        lock_tenants(connection, owner)
        lock_vms(connection, vms.c.request_id == key)
