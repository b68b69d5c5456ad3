"""Tenants and groups as usage counts in them: all that ever were, in their present places."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from sqlalchemy import Connection, select

from registry.db.schema import tenants
from registry.errors import UnknownNameError


class TenantNames:
    """All tenants and groups that ever were, with their present places."""

    def __init__(self, connection: Connection) -> None:
        query = select(tenants.c.id, tenants.c.name, tenants.c.parent_id, tenants.c.is_group)
        self._nodes = {row.id: row for row in connection.execute(query)}
        self._keys = {row.name: row.id for row in self._nodes.values()}

    def name_of(self, key: UUID) -> str:
        """Return the name of a tenant."""
        return str(self._nodes[key].name)

    def groups_of(self, key: UUID) -> tuple[str, ...]:
        """Return the names of the groups above a tenant, the nearest first."""
        found = []
        above: UUID | None = self._nodes[key].parent_id
        while above is not None:
            found.append(self.name_of(above))
            above = self._nodes[above].parent_id
        return tuple(found)

    def tenants_below(self, owners: Collection[UUID]) -> Mapping[UUID, Sequence[UUID]]:
        """Return for each tenant itself, and for each group all tenants below it."""
        found: dict[UUID, list[UUID]] = {owner: [] for owner in owners}
        for key, node in self._nodes.items():
            above: UUID | None = None if node.is_group else key
            while above is not None:
                if above in found:
                    found[above].append(key)
                above = self._nodes[above].parent_id
        return found

    def count(self) -> int:
        """Return the number of all tenants and groups."""
        return len(self._nodes)

    def key_of(self, field: str, name: str, *, is_group: bool = False) -> UUID:
        """Return the id of a tenant or group; raise `UnknownNameError` if it never was."""
        key: UUID | None = self._keys.get(name)
        if key is None or self._nodes[key].is_group != is_group:
            raise UnknownNameError(field, "group of tenants" if is_group else "tenant", name)
        return key

    def selected(self, tenant: str | None, group: str | None) -> Sequence[UUID] | None:
        """Return the ids of a tenant, or of all below a group; None if neither is named."""
        found = None
        if tenant is not None:
            found = {self.key_of("tenant", tenant)}
        if group is not None:
            self.key_of("group", group, is_group=True)
            below = {key for key in self._nodes if group in self.groups_of(key)}
            found = below if found is None else found & below
        return None if found is None else sorted(found)
