"""What an update rests on, judged inside the transaction that updates.

A client read something, thought, and now changes it: only if it still is what was
read. Between a look and a write another may write. So the look belongs into the
transaction of the write, behind the lock of the row in question.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Column, Connection, select

from registry.db.dialect import has_one_writer
from registry.db.locks import lock_tenants, lock_vms
from registry.db.schema import hosts, networks, requests, tenants, vms

#: Kinds of things that a condition may be about: the column that identifies them.
_KEYS: Final[Mapping[str, Column[Any]]] = {
    "host": hosts.c.name,
    "network": networks.c.name,
    "quota": tenants.c.name,
    "request": requests.c.id,
    "tenant": tenants.c.name,
    "vm": vms.c.id,
}


@dataclass(slots=True)
class Condition:
    """The precondition of a caller's next transaction; later ones build on that one."""

    kind: str
    key: Any
    check: Callable[[Connection], None]  #: raises if the thing is another by now
    held: bool = False  #: the transaction that it was for is committed

    def judge(self, connection: Connection) -> None:
        """Lock the row of the thing, and look at it in this transaction."""
        if not has_one_writer(connection):
            if self.kind == "request":
                _keep_request(connection, self.key)
            else:
                column = _KEYS[self.kind]
                row = select(column).where(column == self.key)
                connection.execute(row.with_for_update(key_share=True))
        self.check(connection)


def _keep_request(connection: Connection, key: Any) -> None:
    """Keep others from changing a request, and its VMs from changing.

    Its own row comes last in the order of `registry.db.locks`, after what its change has yet
    to lock. A change of the request's own fields holds one of these locks; a round that writes
    why the request waits does not, and takes nothing back.
    """
    owner = connection.scalar(select(requests.c.tenant_id).where(requests.c.id == key))
    if owner is not None:
        lock_tenants(connection, owner)
        lock_vms(connection, vms.c.request_id == key)
