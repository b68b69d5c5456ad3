"""The model of mechanisms, as in the papers: tasks are divisible.

A *user* of the papers is a tenant with one demand, a *server* a class of hosts
that are alike. Axes: N tenants, K host classes, R resources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from placement.errors import ShapeMismatchError
from placement.model.arrays import BoolArray, FloatArray, IntArray
from placement.model.tenant_tree import TenantTree


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DivisibleProblem:
    """Tenants with their demands, and classes of hosts that can run their tasks.

    Shares, gamma and mu are taken of ``capacity``; what is divided is ``free``.
    Amounts are floats in the resource's own unit; mechanisms that solve linear
    programs scale them to fractions of the pool.
    """

    resources: tuple[str, ...]
    capacity: FloatArray  #: (K, R) of a whole class: hosts in it times one host's
    free: FloatArray  #: (K, R) of a whole class, 0 <= free <= capacity
    hosts: IntArray  #: (K,) hosts in each class, at least 1
    demand: FloatArray  #: (N, R) one task of each tenant, >= 0
    speed: FloatArray  #: (N, K) divides a task's demand on that class; 1 unless given
    eligible: BoolArray  #: (N, K) may the tenant's tasks run there?
    count: FloatArray  #: (N,) tasks wanted, possibly infinite
    weight: FloatArray  #: (N,) above 0
    held: FloatArray  #: (N, R) what running VMs hold; counts in shares, absent from free
    tree: TenantTree | None = None  #: None: tenants are all children of the root

    def __post_init__(self) -> None:
        classes, resources = self.capacity.shape
        tenants = len(self.weight)
        expected = {
            "capacity": (classes, len(self.resources)),
            "free": (classes, resources),
            "hosts": (classes,),
            "demand": (tenants, resources),
            "speed": (tenants, classes),
            "eligible": (tenants, classes),
            "count": (tenants,),
            "held": (tenants, resources),
        }
        for name, shape in expected.items():
            array = getattr(self, name)
            if array.shape != shape:
                raise ShapeMismatchError(name, array.shape, shape)
            array.setflags(write=False)
        self.weight.setflags(write=False)

    @property
    def pool(self) -> FloatArray:
        """Capacity of all host classes together, shape (R,)."""
        pool: FloatArray = self.capacity.sum(axis=0)
        return pool


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Division:
    """The result of a mechanism: the tasks of each tenant on each host class.

    ``tasks`` has shape (N, K); a mechanism that knows only one pool (``pooled``)
    answers with shape (N, 1).
    """

    tasks: FloatArray
    pooled: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)  #: JSON values, tenants by index

    @property
    def totals(self) -> FloatArray:
        """Tasks of each tenant, shape (N,)."""
        totals: FloatArray = self.tasks.sum(axis=1)
        return totals


class Mechanism(Protocol):
    """Divides resources among tenants; picked by name. Pure: same input, same division."""

    def divide(self, problem: DivisibleProblem, rng: np.random.Generator) -> Division:
        """Divide the free capacity of host classes among the tenants' tasks."""
        ...
