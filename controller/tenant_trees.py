"""The tree of tenants as placement knows it, from what the register center tells."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import numpy as np

from placement import TenantTree
from registry import GroupView, TenantView


def tree_of(
    tenants: Sequence[TenantView], groups: Sequence[GroupView]
) -> tuple[TenantTree | None, tuple[tuple[GroupView, int], ...]]:
    """Return the tree that parents make, and the node of each group; None if it is flat.

    Groups without a tenant below them are left out: they share nothing. Layer
    by layer, siblings in order of creation, groups first.
    """
    by_id = {group.id: group for group in groups}
    inner: set[UUID] = set()
    for tenant in tenants:
        parent = tenant.parent_id
        while parent is not None and parent not in inner:
            inner.add(parent)
            parent = by_id[parent].parent_id
    if not inner:
        return None, ()
    children: dict[UUID | None, list[TenantView | GroupView]] = {}
    members: list[TenantView | GroupView] = [group for group in groups if group.id in inner]
    for each in (*members, *tenants):
        children.setdefault(each.parent_id, []).append(each)
    parents, weights = [-1], [1.0]
    node_of: dict[UUID | None, int] = {None: 0}
    layer: list[UUID | None] = [None]
    while layer:
        below = [child for parent in layer for child in children.get(parent, ())]
        for child in below:
            node_of[child.id] = len(parents)
            parents.append(node_of[child.parent_id])
            weights.append(child.weight)
        layer = [child.id for child in below]
    tree = TenantTree(
        parent=tuple(parents),
        weight=np.array(weights),
        leaf=tuple(node_of[tenant.id] for tenant in tenants),
    )
    return tree, tuple((group, node_of[group.id]) for group in groups if group.id in inner)
