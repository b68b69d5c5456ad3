"""Groups of tenants and quotas, as the control centre keeps them, from files."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from placement import Allowance, FloatArray, IntArray, TenantTree
from registry import VMS
from simulation.errors import InputError
from simulation.rows import table_of

_MOST_LIMIT: Final = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The most that a tenant, or all tenants below a group, may hold of one thing."""

    owner: str
    resource: str  #: "vms": their number
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy:
    """Who is part of which group, and what tenants and groups may hold at most."""

    groups: tuple[str, ...] = ()  #: in the order in which they go among equals
    parents: Mapping[str, str] = field(default_factory=dict)  #: of groups and tenants with one
    weights: Mapping[str, float] = field(default_factory=dict)  #: of those who have another than 1
    quotas: tuple[Quota, ...] = ()

    def above(self, name: str) -> Iterator[str]:
        """Yield the groups above a tenant or group, the nearest first."""
        parent = self.parents.get(name)
        while parent is not None:
            yield parent
            parent = self.parents.get(parent)

    def tree(self, tenants: Sequence[str], weight: FloatArray) -> TenantTree | None:
        """Return the tree over tenants, None where none of them is in a group.

        Layer by layer, of siblings groups first; groups without a tenant below
        them are left out, as they share nothing.
        """
        inner = {group for tenant in tenants for group in self.above(tenant)}
        if not inner:
            return None
        below: dict[str | None, list[tuple[str, int, float]]] = {}  # name, leaf or -1, weight
        for group in self.groups:
            if group in inner:
                its_own = (group, -1, self.weights.get(group, 1.0))
                below.setdefault(self.parents.get(group), []).append(its_own)
        for leaf, (tenant, its_weight) in enumerate(zip(tenants, weight.tolist(), strict=True)):
            below.setdefault(self.parents.get(tenant), []).append((tenant, leaf, its_weight))
        parents, weights, node_of_leaf = [-1], [1.0], [0] * len(tenants)
        waiting: deque[tuple[str | None, int]] = deque([(None, 0)])
        while waiting:
            parent, node = waiting.popleft()
            for name, leaf, its_weight in below.get(parent, ()):
                if leaf < 0:
                    waiting.append((name, len(parents)))
                else:
                    node_of_leaf[leaf] = len(parents)
                parents.append(node)
                weights.append(its_weight)
        return TenantTree(parent=tuple(parents), weight=np.array(weights), leaf=tuple(node_of_leaf))

    def allowances(
        self, tenants: Sequence[str], resources: Sequence[str], held: IntArray, vms: IntArray
    ) -> tuple[Allowance, ...]:
        """Return what quotas leave to tenants that hold ``held``, (N, R), in ``vms``, (N,).

        A quota of nobody who is there limits nobody.
        """
        if not self.quotas:
            return ()
        members: dict[str, list[int]] = {}
        for index, tenant in enumerate(tenants):
            for owner in (tenant, *self.above(tenant)):
                members.setdefault(owner, []).append(index)
        found = []
        for quota in self.quotas:
            if its_tenants := members.get(quota.owner):
                resource = None if quota.resource == VMS else resources.index(quota.resource)
                taken = vms if resource is None else held[:, resource]
                room = max(0, quota.limit - int(taken[its_tenants].sum()))
                found.append(Allowance(tenants=tuple(its_tenants), resource=resource, room=room))
        return tuple(found)


def read_hierarchy(tree: str | None, quotas: str | None) -> Hierarchy:
    """Return what a CSV file of ``name``, ``parent`` and ``weight``, and one of quotas, say.

    Who is the parent of others is a group, everybody else a tenant.

    Raises
    ------
    InputError
        For names that stand twice or nowhere, circles, and numbers out of range.
    """
    found = Hierarchy() if tree is None else _read_tree(tree)
    if quotas is None:
        return found
    return Hierarchy(
        groups=found.groups,
        parents=found.parents,
        weights=found.weights,
        quotas=_read_quotas(quotas),
    )


def _read_tree(path: str) -> Hierarchy:
    parents: dict[str, str] = {}
    weights: dict[str, float] = {}
    lines: dict[str, int] = {}
    for line, row in table_of(path, ("name", "parent")):
        name, where = row["name"], f"{path}:{line}"
        if not name or name in lines:
            raise InputError(where, f"name: {name!r} stands twice" if name else "name: missing")
        lines[name] = line
        if row["parent"]:
            parents[name] = row["parent"]
        weights[name] = _weight(row.get("weight"), where)
    for name, parent in parents.items():
        if parent not in lines:
            raise InputError(f"{path}:{lines[name]}", f"parent: nobody is called {parent!r}")
    inner = set(parents.values())
    hierarchy = Hierarchy(
        groups=tuple(name for name in lines if name in inner), parents=parents, weights=weights
    )
    for group in hierarchy.groups:
        for steps, above in enumerate(hierarchy.above(group)):
            if above == group or steps > len(inner):
                raise InputError(f"{path}:{lines[group]}", f"{group!r} is in a circle of parents")
    return hierarchy


def _weight(found: str | None, where: str) -> float:
    try:
        weight = float(found or 1)
    except ValueError:
        weight = 0.0
    if not 0 < weight < 1e9:
        raise InputError(where, f"weight: found {found!r}, expected a number above 0")
    return weight


def _read_quotas(path: str) -> tuple[Quota, ...]:
    quotas: dict[tuple[str, str], Quota] = {}
    for line, row in table_of(path, ("owner", "resource", "limit")):
        where, key = f"{path}:{line}", (row["owner"], row["resource"])
        limit = int(row["limit"]) if row["limit"].isdecimal() else _MOST_LIMIT + 1
        if limit > _MOST_LIMIT:
            raise InputError(where, f"limit: found {row['limit']!r}, expected a whole number")
        if key in quotas:
            raise InputError(where, f"a quota of {key[0]!r} on {key[1]} stands above")
        quotas[key] = Quota(owner=key[0], resource=key[1], limit=limit)
    return tuple(quotas.values())
