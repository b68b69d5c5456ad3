"""Groups of tenants and quotas, as the control centre keeps them, from files."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

import numpy as np

from placement import FloatArray, IntArray, QuotaHeadroom, TenantTree
from registry.catalogue import VMS
from simulation.errors import InputError
from simulation.traces.table_files import read_table

_MAX_LIMIT: Final = 2**62
_MAX_TIME_S: Final = 1e12
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedQuota:
    """The most that a tenant, or all tenants below a group, may hold of one resource, or VMs."""

    owner: str
    resource: str  #: "vms": their number
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy:
    """Groups of tenants with weights, and quotas of tenants and groups, as files give them."""

    groups: tuple[str, ...] = ()  #: in the order that breaks ties
    #: of tenants, which breaks ties; tenants that it does not name follow
    order: Mapping[str, int] = field(default_factory=dict)
    parents: Mapping[str, str] = field(default_factory=dict)  #: of groups and tenants with one
    weights: Mapping[str, float] = field(default_factory=dict)  #: other than 1
    quotas: tuple[SimulatedQuota, ...] = ()

    def groups_above(self, name: str) -> Iterator[str]:
        """Yield the groups above a tenant or group, the nearest first."""
        parent = self.parents.get(name)
        while parent is not None:
            yield parent
            parent = self.parents.get(parent)

    def tree(self, tenants: Sequence[str], weight: FloatArray) -> TenantTree | None:
        """Return the tree over these tenants; None if none of them is in a group.

        Layer by layer, of siblings groups first; groups without a tenant below
        them are left out, as they share nothing.
        """
        found = self.named_tree(tenants, weight)
        return None if found is None else found[0]

    def named_tree(
        self, tenants: Sequence[str], weight: FloatArray
    ) -> tuple[TenantTree, tuple[str, ...]] | None:
        """Return the tree over these tenants and the name of each node; see `tree`."""
        inner = {group for tenant in tenants for group in self.groups_above(tenant)}
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
        names = [""]
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
                names.append(name)
        tree = TenantTree(parent=tuple(parents), weight=np.array(weights), leaf=tuple(node_of_leaf))
        return tree, tuple(names)

    def allowances(
        self, tenants: Sequence[str], resources: Sequence[str], held: IntArray, vms: IntArray
    ) -> tuple[QuotaHeadroom, ...]:
        """Return the headroom that quotas leave to tenants that hold ``held``, (N, R), in ``vms``.

        A quota of an absent tenant or group has no effect.
        """
        if not self.quotas:
            return ()
        members: dict[str, list[int]] = {}
        for index, tenant in enumerate(tenants):
            for owner in (tenant, *self.groups_above(tenant)):
                members.setdefault(owner, []).append(index)
        found = []
        for quota in self.quotas:
            if its_tenants := members.get(quota.owner):
                resource = None if quota.resource == VMS else resources.index(quota.resource)
                taken = vms if resource is None else held[:, resource]
                room = max(0, quota.limit - int(taken[its_tenants].sum()))
                found.append(
                    QuotaHeadroom(tenants=tuple(its_tenants), resource=resource, room=room)
                )
        return tuple(found)


#: Seconds of the trace, and what holds from then on.
TimedHierarchy = tuple[float, Hierarchy]


def read_hierarchy(tree: str | None, quotas: str | None) -> tuple[TimedHierarchy, ...]:
    """Read groups of tenants and quotas from CSV files.

    A name that is ever a parent is a group, every other a tenant. Where a file
    has a column ``at_s``, a row with a time holds from then on.

    Returns
    -------
    tuple of (float, Hierarchy)
        What holds from which time on; the first from 0 on.

    Raises
    ------
    InputError
        For names that stand twice or nowhere, circles, and numbers out of range.
    """
    places = {} if tree is None else _read_tree(tree)
    limits = {} if quotas is None else _read_quotas(quotas)
    named = (*places.values(), *limits.values())
    times = sorted({0.0, *(at_s for rows in named for at_s in rows)})
    inner = {row.parent for rows in places.values() for row in rows.values() if row.parent}
    first = Hierarchy(
        groups=tuple(name for name in places if name in inner),
        order={name: place for place, name in enumerate(places)},
    )
    found = []
    for at_s in times:
        rows = {name: _row_at(at_s, its) for name, its in places.items()}
        quota = {key: _row_at(at_s, its) for key, its in limits.items()}
        hierarchy = replace(
            first,
            parents={name: row.parent for name, row in rows.items() if row and row.parent},
            weights={name: row.weight for name, row in rows.items() if row},
            quotas=tuple(
                SimulatedQuota(owner=owner, resource=resource, limit=limit)
                for (owner, resource), limit in quota.items()
                if limit is not None
            ),
        )
        _check_cycles(hierarchy, f"{tree}: from {at_s:g} s on")
        found.append((at_s, hierarchy))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _TreePosition:
    """The position of a tenant or group in the tree, at a time."""

    parent: str
    weight: float


def _read_tree(path: str) -> Mapping[str, Mapping[float, _TreePosition]]:
    """Read the file of the tree: positions by name, and by the time from which they hold."""
    places: dict[str, dict[float, _TreePosition]] = {}
    parents: dict[str, int] = {}
    for line, row in read_table(path, ("name", "parent")):
        name, where = row["name"], f"{path}:{line}"
        if not name:
            raise InputError(where, "name: missing")
        its, at_s = places.setdefault(name, {}), _read_time(row.get("at_s"), where)
        if at_s in its:
            raise InputError(where, f"name: {name!r} stands twice")
        if its and at_s < max(its):
            raise InputError(where, f"at_s: {name!r} has a later row above")
        its[at_s] = _TreePosition(row["parent"], _read_weight(row.get("weight"), where))
        if row["parent"]:
            parents.setdefault(row["parent"], line)
    for parent, line in parents.items():
        if parent not in places:
            raise InputError(f"{path}:{line}", f"parent: no row is named {parent!r}")
    return places


def _check_cycles(hierarchy: Hierarchy, where: str) -> None:
    """Raise if a group is its own ancestor."""
    for group in hierarchy.groups:
        for steps, above in enumerate(hierarchy.groups_above(group)):
            if above == group or steps > len(hierarchy.groups):
                raise InputError(where, f"{group!r} is in a circle of parents")


def _read_time(found: str | None, where: str) -> float:
    """Read a time of the trace, in seconds; 0 for none."""
    try:
        at_s = float(found or 0)
    except ValueError:
        at_s = -1.0
    if not 0 <= at_s < _MAX_TIME_S:
        raise InputError(where, f"at_s: found {found!r}, expected seconds of the trace")
    return at_s


def _read_weight(found: str | None, where: str) -> float:
    """Read the weight of a tenant or group; 1 for none."""
    try:
        weight = float(found or 1)
    except ValueError:
        weight = 0.0
    if not 0 < weight < 1e9:
        raise InputError(where, f"weight: found {found!r}, expected a number above 0")
    return weight


def _read_quotas(path: str) -> Mapping[tuple[str, str], Mapping[float, int | None]]:
    """Read the file of quotas: limits by owner and resource, and by the time they hold from."""
    quotas: dict[tuple[str, str], dict[float, int | None]] = {}
    for line, row in read_table(path, ("owner", "resource", "limit")):
        where, key = f"{path}:{line}", (row["owner"], row["resource"])
        its, at_s = quotas.setdefault(key, {}), _read_time(row.get("at_s"), where)
        if at_s in its:
            raise InputError(where, f"a quota of {key[0]!r} on {key[1]} stands above")
        if its and at_s < max(its):
            raise InputError(where, f"at_s: {key[0]!r} has a later quota on {key[1]} above")
        its[at_s] = None if at_s and not row["limit"] else _read_limit(row["limit"], where)
    return quotas


def _read_limit(found: str, where: str) -> int:
    """Read the limit of a quota, a whole number."""
    limit = int(found) if found.isdecimal() else _MAX_LIMIT + 1
    if limit > _MAX_LIMIT:
        raise InputError(where, f"limit: found {found!r}, expected a whole number")
    return limit


def _row_at(at_s: float, rows: Mapping[float, Value]) -> Value | None:
    """Return the row of a tenant, group or quota that holds at a time; None before the first."""
    return next((rows[since] for since in sorted(rows, reverse=True) if since <= at_s), None)
