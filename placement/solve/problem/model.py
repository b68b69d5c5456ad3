"""A problem file as validated values, before a mechanism or a policy takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

#: One exact amount per resource, in the order of `Problem.resources`.
Amounts: TypeAlias = tuple[Decimal, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEntry:
    """A host of the problem file, or ``count`` hosts alike."""

    name: str
    capacity: Amounts  #: of one host
    free: Amounts  #: of one host, at most its capacity
    count: int
    labels: frozenset[str]

    def member_names(self) -> tuple[str, ...]:
        """Names of the entry's hosts: ``s1``, or ``s1#1``, ``s1#2``, ... of a class."""
        if self.count == 1:
            return (self.name,)
        return tuple(f"{self.name}#{number}" for number in range(1, self.count + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantEntry:
    """A tenant, or a group: a tenant that others name as their parent."""

    name: str
    weight: float
    parent: int | None  #: an index of `Problem.tenants`; None: a child of the root
    held: Amounts  #: by VMs that run already; it is absent from `free`


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandEntry:
    """VMs of one size that one tenant requests."""

    name: str
    tenant: int  #: an index of `Problem.tenants`
    per_vm: Amounts
    count: int | None  #: None: as many as there is room for
    min_count: int  #: at least 1
    hosts: tuple[int, ...] | None  #: indices of `Problem.hosts`; None: all
    requires: frozenset[str]  #: labels that a host must carry
    speed: Mapping[int, float]  #: by index of `Problem.hosts`; 1 where absent


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A whole problem file. Every index is valid, every limit kept."""

    resources: tuple[str, ...]
    hosts: tuple[HostEntry, ...]
    tenants: tuple[TenantEntry, ...]
    demands: tuple[DemandEntry, ...]
    parameters: Mapping[str, object]  #: plain JSON values, without ``seed``
    seed: int | None
