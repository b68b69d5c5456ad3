"""From a mechanism's `Division` to the answer object of `fuga solve`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from placement.mechanisms.model import DivisibleProblem, Division
from placement.mechanisms.tasks_alone import pool_fractions
from placement.model.arrays import FloatArray
from placement.model.snapshot import Reason
from placement.solve.answer import named_details
from placement.solve.problem.divisible import DividedProblem
from placement.solve.problem.tenant_trees import sums_over_groups

#: A dominant share of the pool below which nothing was given: a solver's noise.
_NOTHING: Final = 1e-12
#: The part of a count below which nothing is missing.
_ALL_BUT: Final = 1e-9


def division_answer(
    name: str, divided: DividedProblem, division: Division, *, seconds: float, details: bool = False
) -> dict[str, Any]:
    """Return the answer of `fuga solve` by a mechanism, as JSON values.

    Parameters
    ----------
    name : str
        Under which the catalogue has the mechanism.
    divided : DividedProblem
        What it divided.
    division : Division
        What it answered; feasible.
    seconds : float
        Spent inside the mechanism.
    details : bool
        List each host even where there are more than `FEW_HOSTS` entries.

    Returns
    -------
    dict
        As `placement.solve.answer.whole_vm_answer`, with tasks that need not be whole.
        ``host`` is null where the mechanism knows only one pool. A group's tasks
        and share are those of all tenants below it.
    """
    problem, divisible = divided.problem, divided.divisible
    tasks = np.maximum(division.tasks, 0.0)
    used = _used_by_tenants(divisible, tasks)
    pool = divisible.pool
    in_use = (divisible.capacity - divisible.free).sum(axis=0) + used.sum(axis=0)
    holds = sums_over_groups(problem, divided.tenants, divisible.held + used)
    totals = sums_over_groups(problem, divided.tenants, tasks.sum(axis=1))
    shares = pool_fractions(holds, pool).max(axis=1, initial=0.0)
    return {
        "policy": name,
        "divisible": True,
        "tasks": _divided_tasks(divided, tasks, pooled=division.pooled),
        "tenants": [
            {"name": tenant.name, "tasks": float(total), "dominant_share": float(share)}
            for tenant, total, share in zip(problem.tenants, totals, shares, strict=True)
        ],
        "utilization": {
            resource: float(part)
            for resource, part in zip(problem.resources, pool_fractions(in_use, pool), strict=True)
        },
        "left_out": _missing_tasks(divided, tasks.sum(axis=1)),
        "seconds": seconds,
        "details": named_details(
            division.details, _DivisionNaming(divided), len(problem.hosts), every_host=details
        ),
    }


def _used_by_tenants(divisible: DivisibleProblem, tasks: FloatArray) -> FloatArray:
    """Return the amounts that each tenant uses, (N, R); a fast host needs less for a task."""
    work = tasks / divisible.speed if tasks.shape == divisible.speed.shape else tasks
    used: FloatArray = work.sum(axis=1)[:, None] * divisible.demand
    return used


def _divided_tasks(
    divided: DividedProblem, tasks: FloatArray, *, pooled: bool
) -> list[dict[str, Any]]:
    """Return the tasks of a division by demand and host entry of the problem file."""
    divisible, problem = divided.divisible, divided.problem
    one_task = pool_fractions(divisible.demand, divisible.pool).max(axis=1, initial=0.0)
    rows = []
    for tenant, host in np.argwhere(tasks * one_task[:, None] > _NOTHING).tolist():
        demand = divided.demand[tenant]
        if demand is not None:
            rows.append(
                {
                    "demand": problem.demands[demand].name,
                    "host": None if pooled else problem.hosts[host].name,
                    "tasks": float(tasks[tenant, host]),
                }
            )
    return rows


def _missing_tasks(divided: DividedProblem, totals: FloatArray) -> list[dict[str, Any]]:
    """Return the wanted tasks that a division does not give, by demand, with the reason."""
    rows = []
    for tenant, (index, total) in enumerate(zip(divided.demand, totals.tolist(), strict=True)):
        demand = None if index is None else divided.problem.demands[index]
        if demand is None or demand.count is None:
            continue
        missing = demand.count - total
        if missing > _ALL_BUT * demand.count:
            rows.append(
                {
                    "demand": demand.name,
                    "count": missing,
                    "reason": _missing_reason(divided.divisible, tenant).value,
                }
            )
    return rows


def _missing_reason(divisible: DivisibleProblem, tenant: int) -> Reason:
    """Return why a tenant lacks tasks that it wants."""
    demanded = divisible.demand[tenant] > 0
    if not demanded.any():
        return Reason.NOTHING_ASKED
    open_to = divisible.eligible[tenant]
    if not open_to.any():
        return Reason.NO_ELIGIBLE_HOST
    if not (divisible.capacity[open_to][:, demanded] > 0).all(axis=1).any():
        return Reason.NO_HOST_LARGE_ENOUGH
    return Reason.NO_ROOM


# -------------------------------------------------------------------- details


class _DivisionNaming:
    """Replaces indices of tenants and hosts in a division's details by names.

    One value for each tenant, or one stop of the climb after another, is recognised by its
    key and its form; anything else passes as it is.
    """

    def __init__(self, divided: DividedProblem) -> None:
        self._tenants = [divided.problem.tenants[index].name for index in divided.tenants]
        self._hosts = [host.name for host in divided.problem.hosts]

    def with_names(self, key: str, value: Any) -> Any:
        """Return a detail of a division with names in place of indices."""
        match key, value:
            case ("levels" | "dominant_shares" | "weights", list()):
                return self._name_by_tenant(value)
            case ("rounds" | "stages", [{}, *_]):
                return self._name_stops(value)
            case _:
                return value

    def names_hosts(self, key: str, value: Any) -> bool:
        """Return whether a value has a row for each tenant, with one entry for each host."""
        match value:
            case [list() as row, *_]:
                return len(value) == len(self._tenants) and len(row) == len(self._hosts)
            case _:
                return False

    def _name_by_tenant(self, values: Sequence[Any]) -> Any:
        """Name the tenants of a detail with one value for each; leave other values."""
        if len(values) != len(self._tenants):
            return values
        return dict(zip(self._tenants, values, strict=True))

    def _name_stops(self, stops: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Name tenants and hosts in the stops of a climb."""
        return [
            {key: self._name_in_stop(key, value) for key, value in stop.items()} for stop in stops
        ]

    def _name_in_stop(self, key: str, value: Any) -> Any:
        """Name tenants and hosts in one value of a stop."""
        match key:
            case "frozen" | "stopped":
                return [self._tenants[tenant] for tenant in value]
            case "weights":
                return {
                    name: each for name, each in zip(self._tenants, value, strict=False) if each
                }
            case "used_up":
                return [
                    each if isinstance(each, str) else [self._hosts[each[0]], each[1]]
                    for each in value
                ]
            case _:
                return value
