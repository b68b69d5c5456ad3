"""From a `Problem` to the `DivisibleProblem` that a mechanism divides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import numpy as np

from placement.mechanisms import MECHANISMS, DivisibleProblem, MechanismEntry
from placement.mechanisms.errors import UnsupportedProblemError
from placement.model.arrays import BoolArray, FloatArray
from placement.solve.problem.faults import Place, ProblemFaults, place_text, quote_text, refuse_file
from placement.solve.problem.model import Amounts, DemandEntry, Problem
from placement.solve.problem.tenant_trees import build_tree, leaf_tenants

#: Tenants × entries of hosts: what a linear program has as unknowns.
MAX_PAIRS: Final = 5_000_000


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DividedProblem:
    """A problem as mechanisms see it: one demand per tenant, hosts in classes."""

    problem: Problem
    divisible: DivisibleProblem
    #: (N,) indices of `Problem.tenants`: leaves in the order of their demands in the
    #: file, so that ties go to the first; those without a demand come last
    tenants: tuple[int, ...]
    demand: tuple[int | None, ...]  #: (N,) indices of `Problem.demands`


def to_divisible(problem: Problem, name: str, entry: MechanismEntry) -> DividedProblem:
    """Convert a problem file into the form that the mechanism called ``name`` divides.

    Every entry of hosts is a class; its ``count`` multiplies what it offers.

    Raises
    ------
    ProblemError
        If a tenant has several demands, for gangs, for a tree of tenants where
        the mechanism takes none, or for more than the documented limit.
    """
    faults = ProblemFaults()
    _refuse_unsupported_fields(problem, name, entry, faults)
    demand_of = _demand_of_tenants(problem, faults)
    faults.raise_if_any()

    leaves = leaf_tenants(problem)
    last = len(problem.demands)
    order = tuple(sorted(leaves, key=lambda tenant: (demand_of.get(tenant, last), tenant)))
    if len(order) * len(problem.hosts) > MAX_PAIRS:
        refuse_file(
            ("tenants",),
            f"{len(order):,} tenants × {len(problem.hosts):,} entries of hosts "
            f"must be at most {MAX_PAIRS:,}",
        )
    demands = [problem.demands[demand_of[each]] if each in demand_of else None for each in order]
    hosts = np.array([host.count for host in problem.hosts], dtype=np.int64)
    nothing: Amounts = (Decimal(0),) * len(problem.resources)
    divisible = DivisibleProblem(
        resources=problem.resources,
        capacity=_float_matrix([host.capacity for host in problem.hosts]) * hosts[:, None],
        free=_float_matrix([host.free for host in problem.hosts]) * hosts[:, None],
        hosts=hosts,
        demand=_float_matrix([nothing if each is None else each.per_vm for each in demands]),
        speed=_speed_matrix(demands, len(hosts)),
        eligible=_eligibility_matrix(problem, demands),
        count=np.array([_task_count(each) for each in demands], dtype=np.float64),
        weight=np.array([problem.tenants[each].weight for each in order]),
        held=_float_matrix([problem.tenants[each].held for each in order]),
        tree=build_tree(problem, order),
    )
    return DividedProblem(
        problem=problem,
        divisible=divisible,
        tenants=order,
        demand=tuple(demand_of.get(tenant) for tenant in order),
    )


def unsupported_field_place(error: UnsupportedProblemError, problem: Problem) -> str:
    """Return the place in the problem file of what a mechanism cannot use."""
    places: dict[str, Place] = {}
    for index, demand in reversed(list(enumerate(problem.demands))):
        for host, speed in demand.speed.items():
            if speed != 1.0:
                places["speed"] = ("demands", index, "speed", problem.hosts[host].name)
        if demand.count is not None:
            places["count"] = ("demands", index, "count")
    return place_text(places.get(error.field, (error.field,)))


def _refuse_unsupported_fields(
    problem: Problem, name: str, entry: MechanismEntry, faults: ProblemFaults
) -> None:
    """Record the fields of a problem file that the mechanism does not take as faults."""
    for index, demand in enumerate(problem.demands):
        if demand.min_count > 1:
            faults.add(
                ("demands", index, "min_count"),
                f"gangs are for policies; a mechanism takes 0 or 1, found {demand.min_count}",
            )
    if not entry.reads_tree:
        trees = ", ".join(known for known, each in MECHANISMS.items() if each.reads_tree)
        for index, tenant in enumerate(problem.tenants):
            if tenant.parent is not None:
                faults.add(
                    ("tenants", index, "parent"),
                    f"{name} divides without a tree of tenants and takes null only; "
                    f"trees are for {trees}, and for every policy",
                )


def _demand_of_tenants(problem: Problem, faults: ProblemFaults) -> dict[int, int]:
    """Return the demand of each tenant; a second demand of one tenant is a fault."""
    demand_of: dict[int, int] = {}
    for index, demand in enumerate(problem.demands):
        first = demand_of.setdefault(demand.tenant, index)
        if first != index:
            tenant = quote_text(problem.tenants[demand.tenant].name)
            faults.add(
                ("demands", index, "tenant"),
                f"mechanisms take one demand per tenant, and demands[{first}] is of {tenant} "
                "already; policies take any number",
            )
    return demand_of


def _float_matrix(rows: Sequence[Amounts]) -> FloatArray:
    """Return rows of exact amounts as a matrix of floats."""
    return np.array([[float(amount) for amount in row] for row in rows], dtype=np.float64)


def _task_count(demand: DemandEntry | None) -> float:
    """Return the tasks that a tenant wants; unbounded without a demand, which gets nothing."""
    return np.inf if demand is None or demand.count is None else float(demand.count)


def _speed_matrix(demands: Sequence[DemandEntry | None], hosts: int) -> FloatArray:
    """Return the speed of each tenant's tasks on each host entry, (N, K); 1 by default."""
    speed = np.ones((len(demands), hosts))
    for row, demand in enumerate(demands):
        for host, each in demand.speed.items() if demand else ():
            speed[row, host] = each
    return speed


def _eligibility_matrix(problem: Problem, demands: Sequence[DemandEntry | None]) -> BoolArray:
    """Return which host entries each tenant's tasks may use, (N, K)."""
    labelled: dict[frozenset[str], BoolArray] = {}
    eligible = np.zeros((len(demands), len(problem.hosts)), dtype=np.bool_)
    for row, demand in enumerate(demands):
        if demand is None:
            continue
        if demand.requires not in labelled:
            labelled[demand.requires] = np.array(
                [demand.requires <= host.labels for host in problem.hosts], dtype=np.bool_
            )
        eligible[row] = labelled[demand.requires]
        if demand.hosts is not None:
            listed = np.zeros(len(problem.hosts), dtype=np.bool_)
            listed[list(demand.hosts)] = True
            eligible[row] &= listed
    return eligible
