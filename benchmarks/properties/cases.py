"""Small problems in whole numbers: drawn by seed, written as a line, read back, made smaller."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import numpy as np

from placement.mechanisms import DivisibleProblem, TenantTree

Family: TypeAlias = Literal["plain", "constraints", "zeros", "finite"]
FAMILIES: Final[tuple[Family, ...]] = ("plain", "constraints", "zeros", "finite")
Row: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyCase:
    """Hosts, and tenants who ask for divisible tasks.

    ``says`` is what the first tenant claims to demand, where the property depends on it.
    """

    hosts: tuple[Row, ...]  #: capacities
    demands: tuple[Row, ...]
    weights: Row
    allowed: tuple[Row, ...]  #: 1 where a tenant may use a host
    counts: tuple[int | None, ...]  #: None: as many tasks as there is room for
    says: Row | None = None
    groups: Row = ()  #: each tenant's group, 0: a child of the root; empty: no tree

    def problem(self) -> DivisibleProblem:
        """Return the case as mechanisms read it."""
        capacity = np.array(self.hosts, dtype=np.float64)
        demand = np.array(self.demands, dtype=np.float64)
        return DivisibleProblem(
            resources=tuple(f"r{r}" for r in range(capacity.shape[1])),
            capacity=capacity,
            free=capacity.copy(),
            hosts=np.ones(len(capacity), dtype=np.int64),
            demand=demand,
            speed=np.ones((len(demand), len(capacity))),
            eligible=np.array(self.allowed) > 0,
            count=np.array([np.inf if n is None else n for n in self.counts], dtype=np.float64),
            weight=np.array(self.weights, dtype=np.float64),
            held=np.zeros_like(demand),
            tree=self.tree(),
        )

    def tree(self) -> TenantTree | None:
        """Return the tree: groups of weight 1 under the root, tenants in them or under the root."""
        if not self.groups:
            return None
        names = sorted({*self.groups} - {0})
        node = {0: 0, **{name: place for place, name in enumerate(names, start=1)}}
        return TenantTree(
            parent=(-1, *([0] * len(names)), *(node[group] for group in self.groups)),
            weight=np.array([1.0] * (1 + len(names)) + [float(w) for w in self.weights]),
            leaf=tuple(range(1 + len(names), 1 + len(names) + len(self.groups))),
        )

    def size(self) -> tuple[int, int]:
        """Fewer and smaller numbers are smaller."""
        numbers = [n for row in (*self.hosts, *self.demands) for n in row]
        special = sum(w != 1 for w in self.weights) + sum(n is not None for n in self.counts)
        special += sum(group != 0 for group in self.groups)
        special += sum(each == 0 for row in self.allowed for each in row)
        return len(numbers) + special, sum(numbers) + sum(self.weights) + sum(self.says or ())

    def __str__(self) -> str:
        parts = [f"hosts {_rows(self.hosts)}", f"demands {_rows(self.demands)}"]
        if set(self.weights) != {1}:
            parts.append("weights " + " ".join(map(str, self.weights)))
        if not all(map(all, self.allowed)):
            parts.append("allowed " + " ".join("".join(map(str, row)) for row in self.allowed))
        if any(n is not None for n in self.counts):
            parts.append("counts " + " ".join("∞" if n is None else str(n) for n in self.counts))
        if self.groups:
            parts.append("groups " + " ".join(map(str, self.groups)))
        if self.says is not None:
            parts.append(f"tenant 1 says {_rows([self.says])}")
        return "; ".join(parts)

    @classmethod
    def read(cls, text: str) -> PropertyCase:
        """Return the case that was written as ``text``."""
        parts = dict(
            re.findall(r"(hosts|demands|weights|allowed|counts|groups|says) ([^;]*)", text)
        )
        rows = {
            key: tuple(tuple(map(int, row.split(","))) for row in re.findall(r"\(([^)]*)\)", part))
            for key, part in parts.items()
        }
        tenants, hosts = len(rows["demands"]), len(rows["hosts"])
        return cls(
            hosts=rows["hosts"],
            demands=rows["demands"],
            weights=tuple(map(int, parts.get("weights", " 1" * tenants).split())),
            allowed=tuple(
                tuple(map(int, row))
                for row in parts.get("allowed", f" {'1' * hosts}" * tenants).split()
            ),
            counts=tuple(
                None if n == "∞" else int(n) for n in parts.get("counts", " ∞" * tenants).split()
            ),
            groups=tuple(map(int, parts.get("groups", "").split())),
            says=rows["says"][0] if "says" in parts else None,
        )

    def smaller(self) -> Iterator[PropertyCase]:
        """Yield cases with one thing less, those that lose most first."""
        tenants, hosts, width = len(self.demands), len(self.hosts), len(self.hosts[0])
        for i in range(1 if self.says else 0, tenants if tenants > 1 else 0):
            yield self.without_tenant(i)
        for host in range(hosts if hosts > 1 else 0):
            yield replace(
                self,
                hosts=_without(self.hosts, host),
                allowed=tuple(_without(row, host) for row in self.allowed),
            )
        for r in range(width if width > 1 else 0):
            yield replace(
                self,
                hosts=tuple(_without(row, r) for row in self.hosts),
                demands=tuple(_without(row, r) for row in self.demands),
                says=_without(self.says, r) if self.says else None,
            )
        for i in range(tenants):
            yield replace(self, weights=_put(self.weights, i, 1))
            yield replace(self, counts=_put(self.counts, i, None))
            if self.groups:
                yield replace(self, groups=_put(self.groups, i, 0))
            yield replace(self, allowed=_put(self.allowed, i, (1,) * hosts))
        for table in ("hosts", "demands"):
            rows = getattr(self, table)
            for row in range(len(rows)):
                for r in range(width):
                    for number in sorted({1, rows[row][r] // 2, rows[row][r] - 1}):
                        if 0 < number < rows[row][r]:
                            changed = _put(rows, row, _put(rows[row], r, number))
                            yield replace(self, **{table: changed})
        for r in range(width if self.says else 0):
            assert self.says is not None
            if self.says[r] > 1:
                yield replace(self, says=_put(self.says, r, self.says[r] - 1))

    def without_tenant(self, i: int) -> PropertyCase:
        """Return the case after tenant ``i`` has left."""
        return replace(
            self,
            demands=_without(self.demands, i),
            weights=_without(self.weights, i),
            allowed=_without(self.allowed, i),
            counts=_without(self.counts, i),
            groups=_without(self.groups, i),
        )


def draw(
    rng: np.random.Generator, family: Family, *, one_host: bool = False, bottleneck: bool = False
) -> PropertyCase:
    """Return a random case of up to four tenants, three hosts and three resources.

    Parameters
    ----------
    family : str
        What it has in addition to positive demands without end, everybody everywhere:
        ``constraints``, hosts that some tenants may not use or that lack a
        resource; ``zeros``, demands that are zero; ``finite``, counts.
    bottleneck : bool
        The first resource is that of which everybody's task needs the largest
        part of every host.
    """
    tenants, hosts = int(rng.integers(2, 5)), 1 if one_host else int(rng.integers(1, 4))
    width = int(rng.integers(2, 4))
    capacity = rng.integers(1, 13, (hosts, width))
    demand = rng.integers(1, 5, (tenants, width))
    if family == "zeros":
        demand[rng.random(demand.shape) < 0.3] = 0
    if bottleneck:
        demand[:, 0] = np.maximum(demand[:, 0], 1)
        most = (demand / demand[:, :1]).max(axis=0)
        capacity = np.maximum(capacity, np.ceil(capacity[:, :1] * most).astype(np.int64))
    allowed = np.ones((tenants, hosts), dtype=np.int64)
    if family == "constraints":
        allowed[rng.random(allowed.shape) < 0.3] = 0
        if not bottleneck:
            capacity[rng.random(capacity.shape) < 0.1] = 0
    counts: list[int | None] = [None] * tenants
    if family == "finite":
        counts = [int(rng.integers(1, 8)) if rng.random() < 0.6 else None for _ in counts]
    weighted = rng.random() < 0.3
    return PropertyCase(
        hosts=_tuples(capacity),
        demands=_tuples(demand),
        weights=tuple(int(rng.integers(1, 4)) if weighted else 1 for _ in counts),
        allowed=_tuples(allowed),
        counts=tuple(counts),
    )


def in_groups(case: PropertyCase, rng: np.random.Generator) -> PropertyCase:
    """Return the case with its tenants in up to two groups, some outside them."""
    return replace(case, groups=tuple(int(n) for n in rng.integers(0, 3, len(case.demands))))


def with_a_lie(case: PropertyCase, rng: np.random.Generator, family: Family) -> PropertyCase:
    """Return the case with another demand that its first tenant claims to have."""
    least = 0 if family == "zeros" else 1
    return replace(case, says=tuple(int(n) for n in rng.integers(least, 7, len(case.hosts[0]))))


def _rows(rows: tuple[Row, ...] | list[Row]) -> str:
    return " ".join(f"({','.join(map(str, row))})" for row in rows)


def _tuples(table: np.ndarray) -> tuple[Row, ...]:
    return tuple(tuple(int(n) for n in row) for row in table)


def _without(row: tuple, place: int) -> tuple:
    return row[:place] + row[place + 1 :]


def _put(row: tuple, place: int, value: object) -> tuple:
    return (*row[:place], value, *row[place + 1 :])
