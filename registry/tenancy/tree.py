"""The tree of tenants and groups: paths, descendants and changes.

Groups are inner nodes without requests; tenants are leaves and have requests. Changes of the
tree are serialized (`take_advisory_lock`), so that no two of them form a cycle together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final
from uuid import UUID

from sqlalchemy import Connection, ScalarSelect, bindparam, select

from registry.db.bulk import chunks, is_any_of
from registry.db.locks import take_advisory_lock
from registry.db.names import lookup_name
from registry.db.schema import tenants
from registry.errors import ConflictError, InvalidError, NotFoundError

#: Levels of groups and tenants together; so that walks along a path end.
MAX_DEPTH: Final = 16
#: The key under which `take_advisory_lock` serializes changes of the tree.
_TREE: Final = "tenants"
_NAMED: Final = select(tenants.c.id, tenants.c.is_group).where(
    tenants.c.name == bindparam("named"), tenants.c.removed_at.is_(None)
)
_LOCKED: Final = _NAMED.with_for_update(key_share=True)


def key_query(name: str) -> ScalarSelect[UUID]:
    """Return a scalar subquery for the id of the tenant or group with a name, or NULL.

    The database evaluates it first. With a join it could not know that the rows of one tenant are
    in the order of an index.
    """
    return select(tenants.c.id).where(tenants.c.name == name).scalar_subquery()


def tenant_id(connection: Connection, name: str) -> UUID:
    """Return the id of a tenant or group that is not removed, or raise `NotFoundError`."""
    key, _ = _find_node(connection, name)
    return key


def lock_requesting_tenant(connection: Connection, name: str) -> UUID:
    """Lock a tenant that may request VMs, and return its id.

    Until this transaction ends, no other call creates requests for it.

    Raises
    ------
    NotFoundError
        If there is none of that name.
    InvalidError
        If it is a group: its tenants ask.
    """
    key, is_group = _find_node(connection, name, locked=True)
    if is_group:
        allowed = f"a tenant; {name} is a group, whose tenants ask for themselves"
        raise InvalidError("tenant", name, allowed)
    return key


def group_id(connection: Connection, name: str) -> UUID:
    """Return the id of a group of tenants; `InvalidError` if the name is a tenant's."""
    key, is_group = _find_node(connection, name)
    if not is_group:
        raise InvalidError("parent", name, f"a group; {name} is a tenant, which asks for itself")
    return key


def lock_tree(connection: Connection) -> None:
    """Lock the tree of tenants: no other transaction changes it until this one ends."""
    take_advisory_lock(connection, _TREE)


def read_path(connection: Connection, key: UUID) -> tuple[UUID, ...]:
    """Return a tenant or group and all groups above it, the nearest first."""
    return read_paths(connection, [key])[key]


def read_paths(connection: Connection, keys: Collection[UUID]) -> Mapping[UUID, tuple[UUID, ...]]:
    """Return the path of each tenant or group: itself and all groups above, the nearest first.

    All parents are read together, level by level.
    """
    parents: dict[UUID, UUID | None] = {}
    level: Collection[UUID] = set(keys)
    while level:
        for some in chunks(sorted(level)):
            query = select(tenants.c.id, tenants.c.parent_id).where(
                is_any_of(connection, tenants.c.id, some)
            )
            parents.update((row.id, row.parent_id) for row in connection.execute(query).all())
        above = {parents.get(key) for key in level}
        level = {parent for parent in above if parent is not None and parent not in parents}
    paths = {}
    for key in keys:
        path = [key]
        while (parent := parents.get(path[-1])) is not None:
            path.append(parent)
        paths[key] = tuple(path)
    return paths


def descendants(connection: Connection, key: UUID) -> tuple[UUID, ...]:
    """Return all tenants and groups below a group, level by level; a tenant has none."""
    found: list[UUID] = []
    layer = [key]
    while layer:
        query = select(tenants.c.id).where(
            tenants.c.parent_id.in_(layer), tenants.c.removed_at.is_(None)
        )
        layer = list(connection.scalars(query.order_by(tenants.c.id)))
        found += layer
    return tuple(found)


def check_parent(connection: Connection, key: UUID | None, parent_id: UUID | None) -> None:
    """Raise unless a tenant or group (None: a new one) may have this parent.

    Raises
    ------
    ConflictError
        If it would stand below itself, or deeper than `MAX_DEPTH`.
    """
    above = () if parent_id is None else read_path(connection, parent_id)
    if key is not None and key in above:
        raise ConflictError("a group cannot be moved below itself or a group that is part of it")
    depth = len(above) + (1 if key is None else _subtree_height(connection, key))
    if depth > MAX_DEPTH:
        found = f"the tree of tenants would be {depth} levels deep"
        raise ConflictError(f"{found}, {MAX_DEPTH} at most")


def _find_node(connection: Connection, name: str, *, locked: bool = False) -> tuple[UUID, bool]:
    """Return the id of the tenant or group with a name, and whether it is a group."""
    query = _LOCKED if locked else _NAMED
    found = connection.execute(query, {"named": lookup_name("tenant", name)}).one_or_none()
    if found is None:
        raise NotFoundError("tenant", name)
    return found.id, found.is_group


def _subtree_height(connection: Connection, key: UUID) -> int:
    """Return the number of levels of a tenant's or group's subtree, with its own."""
    height, layer = 0, [key]
    while layer:
        height += 1
        layer = list(connection.scalars(select(tenants.c.id).where(tenants.c.parent_id.in_(layer))))
    return height
