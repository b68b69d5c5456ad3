"""Converts rows of tenants, groups and quotas to the tree and the allowances of placement."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import numpy as np

from placement import QuotaHeadroom, TenantTree
from registry.catalogue import VMS, VOLUMES
from registry.rounds import ClusterView, GroupView, TenantView


def build_tenant_tree(
    tenants: Sequence[TenantView], groups: Sequence[GroupView]
) -> tuple[TenantTree | None, tuple[tuple[GroupView, int], ...]]:
    """Return the tenant tree and the node of each group; None if no tenant is in a group.

    Groups without tenants are left out. Nodes are numbered layer by layer, siblings in order of
    creation with groups first.
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


def build_allowances(
    view: ClusterView,
) -> tuple[tuple[QuotaHeadroom, ...], tuple[tuple[str, str, int, int], ...]]:
    """Return the headroom of each quota, and (owner's name, resource, quota, held) of each.

    A group's quota counts all tenants below it together; without tenants it limits nothing. If more
    is held than the quota allows, the headroom is 0.
    """
    parent_of = {group.id: group.parent_id for group in view.groups}
    members: dict[UUID, list[int]] = {}
    for index, tenant in enumerate(view.tenants):
        members.setdefault(tenant.id, []).append(index)
        above = tenant.parent_id
        while above is not None:
            members.setdefault(above, []).append(index)
            above = parent_of[above]
    allowances: list[QuotaHeadroom] = []
    names: list[tuple[str, str, int, int]] = []
    for quota in view.quotas:
        tenants = members.get(quota.owner_id, [])
        if not tenants or quota.resource == VOLUMES:
            continue  # rounds place VMs
        resource = None if quota.resource == VMS else view.resources.index(quota.resource)
        held = sum(_amount_held(view.tenants[each], resource) for each in tenants)
        room = max(0, quota.limit - held)
        allowances.append(QuotaHeadroom(tenants=tuple(tenants), resource=resource, room=room))
        names.append((quota.owner, quota.resource, quota.limit, held))
    return tuple(allowances), tuple(names)


def _amount_held(tenant: TenantView, resource: int | None) -> int:
    """Return what a tenant holds that counts towards a quota, including its spot VMs."""
    if resource is None:
        return tenant.vms
    return tenant.held[resource] + (tenant.spot_held[resource] if tenant.spot_held else 0)
