"""The leaves of a tree of tenants as the mechanisms for one pool see them."""

from __future__ import annotations

from dataclasses import dataclass

from placement.mechanisms.max_min.levels import normalised_demands
from placement.mechanisms.model import DivisibleProblem
from placement.mechanisms.tasks_alone import check_no_speed, pool_fractions
from placement.model.arrays import BoolArray, FloatArray
from placement.model.tenant_tree import TenantTree


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Leaves:
    """Leaves with demand, in fractions of the pool."""

    tree: TenantTree
    shape: FloatArray  #: (N, R) normalised demand, the largest component 1
    unit: FloatArray  #: (N,) mu: the dominant share of one task
    held: FloatArray  #: (N, R)
    room: FloatArray  #: (R,) what is free
    active: BoolArray  #: (N,) has tasks to run, and the pool has what they demand

    @classmethod
    def of(cls, problem: DivisibleProblem, mechanism: str) -> Leaves:
        """Return the leaves of a problem's tree; without a tree all tenants are leaves of the root.

        Raises
        ------
        UnsupportedProblemError
            If a tenant's demand depends on the host.
        """
        check_no_speed(problem, mechanism)
        pool = problem.pool
        shape, unit = normalised_demands(problem.demand, pool)
        lacking = ((problem.demand > 0) & (pool <= 0)).any(axis=1)
        return cls(
            tree=TenantTree.flat(problem.weight) if problem.tree is None else problem.tree,
            shape=shape,
            unit=unit,
            held=pool_fractions(problem.held, pool),
            room=pool_fractions(problem.free.sum(axis=0), pool),
            active=problem.eligible.any(axis=1) & ~lacking & (unit > 0) & (problem.count > 0),
        )
