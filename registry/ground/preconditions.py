"""What an update rests on, judged inside the transaction that updates.

A client read something, thought, and now changes it: only if it still is what was
read. Between a look and a write another may write. So the look belongs into the
transaction of the write, behind the lock of the row in question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Column, Connection, select

from registry.ground.locks import has_one_writer, lock_tenants, lock_vms
from registry.ground.schema import hosts, networks, requests, tenants, vms

#: Kinds of things that a condition may be about: the column that tells them apart.
_KEYS: Final[Mapping[str, Column[Any]]] = {
    "host": hosts.c.name,
    "network": networks.c.name,
    "request": requests.c.id,
    "tenant": tenants.c.name,
    "vm": vms.c.id,
}


@dataclass(slots=True)
class _Condition:
    kind: str
    key: Any
    check: Callable[[], None]
    held: bool = False  #: the transaction that it was for is committed


_condition: ContextVar[_Condition | None] = ContextVar("condition", default=None)
_inside: ContextVar[Connection | None] = ContextVar("inside", default=None)


@contextmanager
def only_if(kind: str, key: Any, check: Callable[[], None]) -> Iterator[None]:
    """Run ``check`` first in the next transaction that writes, and nothing more if it raises.

    What it reads from the stores, it reads in that transaction, with the row
    of the thing locked.
    """
    token = _condition.set(_Condition(kind, key, check))
    try:
        yield
    finally:
        _condition.reset(token)


@contextmanager
def upheld(connection: Connection) -> Iterator[None]:
    """Judge what this transaction rests on; around all that it does."""
    condition = _condition.get()
    if condition is None or condition.held:
        yield
        return
    if not has_one_writer(connection):
        if condition.kind == "request":
            _keep_request(connection, condition.key)
        else:
            column = _KEYS[condition.kind]
            row = select(column).where(column == condition.key)
            connection.execute(row.with_for_update(key_share=True))
    token = _inside.set(connection)
    try:
        condition.check()
    finally:
        _inside.reset(token)
    yield


def _keep_request(connection: Connection, key: Any) -> None:
    """Keep others from changing a request, and its VMs from changing.

    Its own row comes last in the order of `registry.ground.locks`, after what its change has yet
    to lock. Whoever changes what was asked for holds one of these; a round that writes
    why it waits does not, and takes nothing back.
    """
    owner = connection.scalar(select(requests.c.tenant_id).where(requests.c.id == key))
    if owner is not None:
        lock_tenants(connection, owner)
        lock_vms(connection, vms.c.request_id == key)


def commit_held() -> None:
    """Remember that what was judged is written: later transactions rest on it."""
    condition = _condition.get()
    if condition is not None:
        condition.held = True


def transaction_to_read_in() -> Connection | None:
    """Return the transaction whose condition is being judged, if one is."""
    return _inside.get()
