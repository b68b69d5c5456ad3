"""Intern names and vectors as numbers, which arrays can hold."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

import numpy as np

from placement import FloatArray, IntArray, QuotaHeadroom, TenantTree
from simulation.checkpoint import CheckpointData, MisfitError, read_array, read_texts
from simulation.errors import InputError
from simulation.topology.hierarchy import Hierarchy
from simulation.traces.request_constraints import RequestConstraints

Key = TypeVar("Key", bound=Hashable)


class Interner(Generic[Key]):
    """Numbers distinct values in order of first appearance, for arrays of numbers."""

    def __init__(self) -> None:
        self._number: dict[Key, int] = {}
        self.values: list[Key] = []

    def __len__(self) -> int:
        return len(self.values)

    def number(self, value: Key) -> int:
        """Return the number of a value; a new value gets the next number."""
        found = self._number.setdefault(value, len(self.values))
        if found == len(self.values):
            self.values.append(value)
        return found

    def numbers(self, values: Iterable[Key]) -> IntArray:
        """Return the number of each value."""
        return np.array([self.number(value) for value in values], dtype=np.int64)


class GrowingRows:
    """A matrix of integers that grows by rows of zeros."""

    def __init__(self, width: int) -> None:
        self._rows = np.zeros((16, width), dtype=np.int64)
        self._used = 0

    @classmethod
    def of(cls, rows: IntArray) -> GrowingRows:
        """Return a copy of some rows, (N, width), that can grow."""
        grown = cls(rows.shape[1])
        grown.grow(len(rows))
        grown.rows[:] = rows
        return grown

    def __len__(self) -> int:
        return self._used

    @property
    def rows(self) -> IntArray:
        """The rows of the matrix, a view of shape (N, width)."""
        return self._rows[: self._used]

    def grow(self, length: int) -> None:
        """Add rows of zeros up to a length."""
        if length > len(self._rows):
            more = max(length, 2 * len(self._rows)) - len(self._rows)
            self._rows = np.pad(self._rows, ((0, more), (0, 0)))
        self._used = max(self._used, length)


class InternedNames:
    """Tenants, VM kinds and constraint tables as numbers, and what each tenant holds."""

    def __init__(
        self,
        resources: tuple[str, ...],
        weights: Mapping[str, float],
        hierarchy: Hierarchy | None = None,
    ) -> None:
        self.resources = resources
        self._hierarchy = hierarchy or Hierarchy()
        self.tenants: Interner[str] = Interner()
        self.request_constraints: Interner[RequestConstraints] = Interner()
        self._kinds: Interner[tuple[int, ...]] = Interner()
        self._demand = GrowingRows(len(resources))
        self._held = GrowingRows(len(resources) + 1)  # the last column counts VMs
        self._weights = weights
        self._weight = np.zeros(0)

    @property
    def demand(self) -> IntArray:
        """The demand of one VM of each kind, shape (K, R)."""
        return self._demand.rows

    @property
    def held(self) -> IntArray:
        """The amounts that each tenant holds, shape (N, R)."""
        return self._held.rows[:, :-1]

    @property
    def vms(self) -> IntArray:
        """The number of running VMs of each tenant, shape (N,)."""
        return self._held.rows[:, -1]

    @property
    def weight(self) -> FloatArray:
        """The weight of each tenant, shape (N,); 1 by default."""
        if len(self._weight) < len(self.tenants):
            new = self.tenants.values[len(self._weight) :]
            more = np.array([self._weight_of(name) for name in new])
            self._weight = np.concatenate([self._weight, more])
        return self._weight

    def _weight_of(self, name: str) -> float:
        """Return the weight of a tenant: given, of the hierarchy, or 1."""
        return self._weights.get(name) or self._hierarchy.weights.get(name, 1.0)

    def set_hierarchy(self, hierarchy: Hierarchy) -> None:
        """Use other groups of tenants, weights and quotas from now on."""
        self._hierarchy = hierarchy
        self._weight = np.zeros(0)

    def tie_order(self, tenants: IntArray) -> IntArray:
        """Return tenants in the order that breaks ties between equal shares."""
        order = self._hierarchy.order
        if not order:
            return tenants
        places = [order.get(name, len(order)) for name in self._names(tenants)]
        return tenants[np.argsort(places, kind="stable")]

    def kinds_of(self, demand: IntArray) -> IntArray:
        """Return the number of each demand vector's kind of VM, (Q, R) to (Q,)."""
        if not len(demand):
            return np.zeros(0, dtype=np.int64)
        unique, inverse = np.unique(demand, axis=0, return_inverse=True)
        numbers = self._kinds.numbers(tuple(row) for row in unique.tolist())
        before = len(self._demand)
        self._demand.grow(len(self._kinds))
        for kind in range(before, len(self._kinds)):
            self._demand.rows[kind] = self._kinds.values[kind]
        return numbers[inverse.ravel()]

    def tenants_of(self, names: Iterable[str]) -> IntArray:
        """Return the number of each named tenant.

        Raises
        ------
        InputError
            For one that is a group of others: only tenants have requests.
        """
        before = len(self.tenants)
        numbers = self.tenants.numbers(names)
        self._held.grow(len(self.tenants))
        for name in self.tenants.values[before:]:
            if name in self._hierarchy.groups:
                raise InputError(f"tenant {name!r}", "requests VMs, but is the parent of others")
        return numbers

    def tree(self, tenants: IntArray) -> TenantTree | None:
        """Return the tree of tenants over some of them; None if none of them is in a group."""
        if not self._hierarchy.groups:
            return None
        return self._hierarchy.tree(self._names(tenants), self.weight[tenants])

    def whole_tree(self) -> tuple[TenantTree, tuple[str, ...]]:
        """Return the tree over all tenants, of the root alone without groups, and nodes' names."""
        names = self.tenants.values
        found = self._hierarchy.named_tree(names, self.weight)
        return found or (TenantTree.flat(self.weight), ("", *names))

    def allowances(self, tenants: IntArray) -> tuple[QuotaHeadroom, ...]:
        """Return the headroom that quotas leave to some tenants."""
        if not self._hierarchy.quotas:
            return ()
        held, vms = self.held[tenants], self.vms[tenants]
        return self._hierarchy.allowances(self._names(tenants), self.resources, held, vms)

    def _names(self, tenants: IntArray) -> list[str]:
        """Return the names of numbered tenants."""
        return [self.tenants.values[tenant] for tenant in tenants.tolist()]

    def state(self) -> CheckpointData:
        """Return the interned names and holdings for a checkpoint, without the inputs."""
        return {
            "tenants": self.tenants.values,
            "constraint_tables": [table.document() for table in self.request_constraints.values],
            "kinds": self.demand,
            "held": self._held.rows,
        }

    def restore(self, kept: CheckpointData) -> None:
        """Restore interned names and holdings from a checkpoint; weights are computed again."""
        tenants = read_texts(kept, "tenants")
        held = read_array(kept, "held", "int", (len(tenants), len(self.resources) + 1))
        kinds = read_array(kept, "kinds", "int", (None, len(self.resources)))
        self.tenants, self.request_constraints, self._kinds = Interner(), Interner(), Interner()
        self.tenants.numbers(tenants)
        self.request_constraints.numbers(
            RequestConstraints.from_document(each) for each in kept["constraint_tables"]
        )
        self._kinds.numbers(tuple(row) for row in kinds.tolist())
        if (len(self._kinds), len(self.request_constraints)) != (
            len(kinds),
            len(kept["constraint_tables"]),
        ):
            raise MisfitError("a kind of VM or a constraint table is there twice")
        for table, rows in ((self._demand, kinds), (self._held, held)):
            table.grow(len(rows))
            table.rows[:] = rows
        self._weight = np.zeros(0)

    def hold(self, tenants: IntArray, kinds: IntArray, counts: IntArray) -> None:
        """Add VMs to the amounts that simulated tenants hold; negative counts subtract."""
        np.add.at(self.held, tenants, counts[:, None] * self.demand[kinds])
        np.add.at(self.vms, tenants, counts)
