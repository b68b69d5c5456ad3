"""Evacuate: move every VM of some hosts to the best other host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from placement.model.budget import Budget
from placement.rebalancing.destination_search import (
    SearchLimits,
    UnitDestinations,
    find_destinations,
)
from placement.rebalancing.measures import measure_moves
from placement.rebalancing.model import (
    MovePlan,
    MoveReason,
    RebalanceLimits,
    RunningState,
    StayingVm,
    StayReason,
)
from placement.rebalancing.placement_state import PlacementState
from placement.rebalancing.stay_reasons import StayExplainer
from placement.rebalancing.units import MoveUnit, UnitBuilder
from placement.rebalancing.waves import UnitDestination, order_in_waves


def evacuate(
    running: RunningState,
    hosts: Sequence[int],
    *,
    limits: RebalanceLimits | None = None,
    search: SearchLimits | None = None,
    seed: int = 0,
    budget_units: int | None = None,
) -> MovePlan:
    """Plan the moves that empty some hosts, all hosts at once.

    Parameters
    ----------
    hosts : sequence of int
        Indices of H. They take nothing while the plan is carried out.
    budget_units : int or None
        Hosts weighed for a VM; None for as many as it takes.

    Returns
    -------
    MovePlan
        Each VM goes to the host of most utility in the FUGA game, chosen VM by VM
        from the whole cluster (`placement.rebalancing.destination_search.find_destinations`); a
        unit without a destination is named with the reason, and with what the host that lacks
        least lacks. ``details`` have how many orders were tried and the solver's result.
    """
    limits, search = limits or RebalanceLimits(), search or SearchLimits()
    closed = tuple(sorted(set(hosts)))
    running = running.with_closed_hosts(closed)
    budget = Budget(budget_units)
    where = PlacementState(running)
    units, stays = UnitBuilder(running, limits).units_of(running.vms_on(closed).tolist())
    rng = np.random.default_rng(seed)
    places = find_destinations(where, units, rng=rng, budget=budget, search=search)
    wanted = [
        UnitDestination(unit=units[number], destination=host, why=MoveReason.EVACUATES)
        for number, host in places.hosts.items()
    ]
    order = order_in_waves(running, wanted, limits)
    stays += [
        StayingVm(vm=vm, why=StayReason.NO_ORDER) for each in order.left for vm in each.unit.vms
    ]
    stays += explain_stays(where, units, places)
    return MovePlan(
        policy="evacuate",
        parameters=plan_parameters(search, budget_units, hosts=list(closed)),
        seed=seed,
        limits=limits,
        moves=order.moves,
        measures=measure_moves(running, order.moves, search.ranking),
        closed=closed,
        stays=tuple(sorted(stays, key=lambda each: each.vm)),
        work=budget.spent,
        cut=places.cut,
        details={"tries": places.tries, "solver": places.solver},
    )


def explain_stays(
    where: PlacementState, units: Sequence[MoveUnit], places: UnitDestinations
) -> list[StayingVm]:
    """Return why units of a plan have no destination once all other units have moved.

    Then ``where`` is as it was.
    """
    missed = [number for number in range(len(units)) if number not in places.hosts]
    if not missed:
        return []
    if places.cut and places.tries == 1:
        return [
            StayingVm(vm=vm, why=StayReason.CUT) for number in missed for vm in units[number].vms
        ]
    for number, host in places.hosts.items():
        where.move(units[number].vms, host)
    explaining = StayExplainer(where)
    stays = [each for number in missed for each in explaining.stays(units[number])]
    for number in places.hosts:
        where.move(units[number].vms, int(where.running.host[units[number].vms[0]]))
    return stays


def plan_parameters(
    search: SearchLimits, budget_units: int | None, **more: object
) -> Mapping[str, Any]:
    """Return the parameters of a move plan as JSON values, from which it can be computed again."""
    return {
        **more,
        "tries": search.tries,
        "pairs": search.pairs,
        "ranking": list(search.ranking),
        "budget_units": budget_units,
    }
