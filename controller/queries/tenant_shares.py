"""Shares and entitlements of tenants and groups.

The shares before and after a change of the tree are computed by the code of rounds, on the rows
that a round would read before and after the change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np

from controller.rounds.snapshots import drop_spot_requests, to_snapshot
from controller.rounds.tenant_trees import build_tenant_tree
from placement import FloatArray, TenantTree, fractions_of_pool, shares_in_tree, target_holdings
from registry.rounds import Accounts, ClusterView, GroupView, TenantView


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantShare:
    """The share of a tenant or group now, and its entitlement."""

    name: str
    is_group: bool
    parent: str | None
    weight: float
    share: float  #: dominant share of the pool of all that it holds
    entitlement: float  #: its part of the pool if all tenants ask alike


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The effect of a change of the tree on a tenant or group; None before or after it exists."""

    name: str
    is_group: bool
    parent_before: str | None
    parent_after: str | None
    share: float  #: of what it holds now, in the tree as it is
    entitlement_before: float | None
    entitlement_after: float | None
    target_before: float | None  #: the share that would be fair after the next round
    target_after: float | None


def tenant_shares(accounts: Accounts) -> tuple[TenantShare, ...]:
    """Return the share and entitlement of every tenant and group, groups before their members."""
    held = np.array([tenant.held for tenant in accounts.tenants], dtype=np.int64)
    held = held.reshape(len(accounts.tenants), len(accounts.resources))
    holdings = fractions_of_pool(held, np.array(accounts.pool, dtype=np.int64))
    tree = _NamedTree.of(accounts.tenants, accounts.groups)
    shares, entitlements = tree.shares(holdings), tree.entitlements()
    return tuple(
        TenantShare(
            name=each.name,
            is_group=isinstance(each, GroupView),
            parent=tree.parent_name(each),
            weight=each.weight,
            share=float(shares[node]),
            entitlement=float(entitlements[node]),
        )
        for each, node in tree.in_order()
    )


def share_effects(before: ClusterView, after: ClusterView) -> tuple[Effect, ...]:
    """Return the effect of a change on the entitlement and fair target of each tenant and group."""
    old, new = _share_positions(before), _share_positions(after)
    return tuple(
        Effect(
            name=name,
            is_group=here.is_group,
            parent_before=was.parent if was is not None else None,
            parent_after=here.parent,
            share=here.share if was is None else was.share,
            entitlement_before=was.entitlement if was is not None else None,
            entitlement_after=here.entitlement,
            target_before=was.target if was is not None else None,
            target_after=here.target,
        )
        for name, here in new.items()
        for was in (old.get(name),)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _SharePosition:
    """Share, entitlement and fair target of a tenant or group, and its parent."""

    is_group: bool
    parent: str | None
    share: float
    entitlement: float
    target: float


def _share_positions(view: ClusterView) -> Mapping[str, _SharePosition]:
    """Return share, entitlement and fair target of each tenant and group, by name."""
    snapshot, _ = to_snapshot(drop_spot_requests(view))
    tree = _NamedTree.of(view.tenants, view.groups)
    shares = tree.shares(fractions_of_pool(snapshot.held, snapshot.pool))
    targets = tree.shares(target_holdings(snapshot))
    entitlements = tree.entitlements()
    return {
        each.name: _SharePosition(
            is_group=isinstance(each, GroupView),
            parent=tree.parent_name(each),
            share=float(shares[node]),
            entitlement=float(entitlements[node]),
            target=float(targets[node]),
        )
        for each, node in tree.in_order()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _NamedTree:
    """The tenant tree with the names of tenants and groups; a group without tenants has no node."""

    tree: TenantTree
    node_of: Mapping[str, int]
    members: Mapping[str | None, Sequence[TenantView | GroupView]]
    names: Mapping[UUID, str]

    @classmethod
    def of(cls, tenants: Sequence[TenantView], groups: Sequence[GroupView]) -> _NamedTree:
        found, nodes = build_tenant_tree(tenants, groups)
        tree = found or TenantTree.flat(np.array([tenant.weight for tenant in tenants]))
        node_of = {tenant.name: node for tenant, node in zip(tenants, tree.leaf, strict=True)}
        node_of |= {group.name: node for group, node in nodes}
        names = {group.id: group.name for group in groups}
        members: dict[str | None, list[TenantView | GroupView]] = {}
        everybody: list[TenantView | GroupView] = [*groups, *tenants]
        for each in everybody:
            above = None if each.parent_id is None else names[each.parent_id]
            members.setdefault(above, []).append(each)
        return cls(tree=tree, node_of=node_of, members=members, names=names)

    def parent_name(self, node: TenantView | GroupView) -> str | None:
        return None if node.parent_id is None else self.names[node.parent_id]

    def shares(self, holdings: FloatArray) -> FloatArray:
        """Return the dominant share of every node, followed by 0 for index -1 (no node)."""
        return np.append(shares_in_tree(self.tree, holdings), 0.0)

    def entitlements(self) -> FloatArray:
        """Return the entitlement of every node, followed by 0 for index -1 (no node)."""
        return np.append(self.tree.entitlements(), 0.0)

    def in_order(self) -> list[tuple[TenantView | GroupView, int]]:
        """Return tenants and groups with their nodes, groups before their members; -1: no node."""
        found: list[tuple[TenantView | GroupView, int]] = []
        stack = list(reversed(self.members.get(None, ())))
        while stack:
            each = stack.pop()
            found.append((each, self.node_of.get(each.name, -1)))
            if isinstance(each, GroupView):
                stack += reversed(self.members.get(each.name, ()))
        return found
