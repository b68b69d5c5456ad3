"""Older names that are now reserved words: they stay valid, and the doctor lists them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlalchemy import Connection, Table, select

from registry.db.names import WORDS, WORDS_OF_CALLERS
from registry.db.schema import (
    hosts,
    images,
    networks,
    requests,
    reservations,
    resources,
    ssh_keys,
    tenants,
    tokens,
    vm_types,
)
from registry.lifecycle import FINISHED

_NAMED: Final[tuple[tuple[str, Table], ...]] = (
    ("host", hosts),
    ("image", images),
    ("network", networks),
    ("request", requests),
    ("reservation", reservations),
    ("resource", resources),
    ("SSH key", ssh_keys),
    ("tenant or group", tenants),
    ("token", tokens),
    ("VM type", vm_types),
)


def reserved_names(connection: Connection) -> Iterator[tuple[str, str]]:
    """Yield kind and name of everything that is named like a reserved word."""
    for kind, table in _NAMED:
        words = WORDS | WORDS_OF_CALLERS if table is tenants else WORDS
        query = select(table.c.name).where(table.c.name.in_(sorted(words))).distinct()
        if table is requests:
            query = query.where(table.c.state.not_in([each.value for each in FINISHED]))
        if "removed_at" in table.c:
            query = query.where(table.c.removed_at.is_(None))
        if "revoked_at" in table.c:
            query = query.where(table.c.revoked_at.is_(None))
        for name in connection.scalars(query.order_by(table.c.name)):
            yield kind, name
