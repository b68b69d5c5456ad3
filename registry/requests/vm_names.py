"""Checks that names of requests and VMs are unique among a tenant's existing ones.

Creating VMs needs the lock of their tenant, so a name that is free here stays free until the
transaction ends. A unique index of the database refuses writes that bypass the lock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Final
from uuid import UUID

from sqlalchemy import Connection, bindparam, literal, select, union_all

from registry.db.bulk import chunks
from registry.db.schema import requests, vms
from registry.errors import DuplicateError
from registry.lifecycle import FINISHED, VmDesired


def free_numbers(
    connection: Connection, owner: UUID, stem: str, first: int, count: int
) -> list[int]:
    """Return ``count`` numbers, from ``first`` on, whose VM names ``STEM-NUMBER`` are free."""
    found: list[int] = []
    while len(found) < count:
        numbers = range(first, first + count - len(found))
        taken = VmNames(connection, {owner}, [f"{stem}-{number}" for number in numbers])
        found += [number for number in numbers if taken.is_free(owner, f"{stem}-{number}")]
        first = numbers.stop
    return found


class VmNames:
    """Finds names that living VMs of tenants have taken; the tenants' rows are locked."""

    def __init__(
        self, connection: Connection, owners: Collection[UUID], names: Sequence[str]
    ) -> None:
        self._taken: defaultdict[UUID, set[tuple[str, str]]] = defaultdict(set)
        for some in chunks(sorted(names)):
            given = {"owners": sorted(owners), "names": some}
            for owner, kind, name in connection.execute(_TAKEN, given):
                self._taken[owner].add((kind, name))

    def check(self, owner: UUID, of_vms: Collection[str], request: str | None = None) -> None:
        """Raise `DuplicateError` if a name of a new request's VMs, or its own, is taken."""
        wanted = {*of_vms, request}
        found = {each for each in self._taken[owner] if each[1] in wanted}
        # That another request has its name is said where nothing else is in the way.
        for taken in (found - {("request", request)}, found):
            if taken:
                kind, name = min(taken, key=lambda each: (each[1] != request, each))
                raise DuplicateError(kind, "name", name)

    def is_free(self, owner: UUID, name: str) -> bool:
        """Return whether no open request or VM of the tenant has the name."""
        return not {("request", name), ("VM", name)} & self._taken[owner]

    def reserve(self, owner: UUID, of_vms: Iterable[str], request: str) -> None:
        """Reserve the names of VMs for a request that this transaction will write."""
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
