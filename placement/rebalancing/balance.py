"""Balance: level the load of hosts by moves that gain more than they cost.

Hosts play FUGA's game with another private term: the utility of a host is ``v(A) - cost(m)``,
with `placement.rebalancing.local_search.host_costs.LoadImbalance` as the cost. Moves change
nothing that a tenant holds, so shares, quotas and v(A) do not change. A move of a VM from one
host to another raises the potential ``v(A) - sum_m cost(m)`` by as much as the costs of
these two hosts fall. A move counts only if that is at least the price of what it carries
and a least gain. The potential is at most v(A), so balancing ends, also over many plans,
and no VM can go to and fro: each time, the potential would have risen.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

import numpy as np

from placement.model.arrays import IntArray
from placement.model.budget import Budget
from placement.parameters import Reader, integer_reader, number_reader, read_parameters
from placement.rebalancing.local_search.arrival_gains import ArrivalGains
from placement.rebalancing.local_search.better_responses import BetterResponses, MoveResponse
from placement.rebalancing.local_search.group_constraints import GroupConstraints
from placement.rebalancing.local_search.host_costs import LoadImbalance
from placement.rebalancing.local_search.objective import MoveObjective
from placement.rebalancing.local_search.plans import build_plan, movable_vms
from placement.rebalancing.model import MovePlan, MoveReason, RebalanceLimits, RunningState

#: The default objective of balancing. Between two hosts of 256 GiB, a VM of
#: 1 GiB and as great a part of the CPUs moves where their loads differ by 2 points, one of
#: 16 GiB where they differ by 7.
BALANCE_OBJECTIVE: Final = MoveObjective(price_per_gib=1e-4, least_gain=1e-4)

#: A weight of skewness whose game leads another way, and until how much work it is followed too:
#: of many hosts, both methods lead about as high.
_OTHER_WEIGHT: Final = 0.1
_FEW_UNITS: Final = 50_000

_READERS: Final[Mapping[str, Reader]] = {
    "skewness": number_reader("a number, 0 or more", lambda value: 0 <= value < np.inf),
    "reconsiderations": integer_reader(0, 100),
}


def balance(
    running: RunningState,
    objective: MoveObjective = BALANCE_OBJECTIVE,
    *,
    skewness: float = 0.01,
    reconsiderations: int = 2,
    limits: RebalanceLimits | None = None,
    seed: int = 0,
    budget_units: int | None = None,
) -> MovePlan:
    """Plan moves that bring the load of hosts closer to that of the whole pool.

    Again and again the move is made that raises the potential most beyond its price, until
    none gains more than its price. VMs that rest or cannot move stay, each VM moves once at
    most, and every move keeps eligibility, room, groups and spreads, soft ones too.

    Parameters
    ----------
    running : RunningState
    objective : MoveObjective
        Price, least gain, and the most moves and gibibytes of the plan.
    skewness : float
        Weight of FUGA's skewness relative to the level of load, 0 or more.
    reconsiderations : int
        How many times each move is undone and the best one made instead, all others being
        what they are; 0 or more.
    limits : RebalanceLimits, optional
        How many moves may go on at once.
    seed : int
        Stored with the plan. Nothing is drawn: equals go by the lowest index.
    budget_units : int or None
        Kinds of VM weighed on hosts: at first each on every host, then, for each move,
        each on two. None for as many as it takes.

    Returns
    -------
    MovePlan
        See `placement.rebalancing.local_search.plans.build_plan` for its ``details``.

    Raises
    ------
    ParameterError
        For a ranking resource that the snapshot does not have, or a number beyond its bounds.
    """
    limits, budget = limits or RebalanceLimits(), Budget(budget_units)
    read_parameters(_READERS, {"skewness": skewness, "reconsiderations": reconsiderations})
    term = LoadImbalance.of_pool(running, objective.ranking_of(running.snapshot), skewness=skewness)
    responses, cut_by = _find_responses(running, term, objective, reconsiderations, budget)
    return build_plan(
        running,
        term,
        responses,
        why=MoveReason.BALANCES,
        parameters={
            **objective.document(),
            "skewness": skewness,
            "reconsiderations": reconsiderations,
            "budget_units": budget_units,
        },
        seed=seed,
        limits=limits,
        work=budget.spent,
        cut_by=cut_by,
    )


def _find_responses(
    running: RunningState,
    term: LoadImbalance,
    objective: MoveObjective,
    reconsiderations: int,
    budget: Budget,
) -> tuple[list[MoveResponse], str | None]:
    """Return the moves that raise the potential most, and the bound that ended the search, if any.

    The steepest responses are one way up among many. What they become once each was
    reconsidered is followed too, as far as it pays, steepest first; on small clusters so are
    those of the game with another weight of skewness. The way that leads highest is taken.
    """
    vms = movable_vms(running)
    kinds: IntArray = np.unique(running.kind[vms])
    units = len(kinds) * len(running.receives)

    def begin_responses(of: LoadImbalance) -> BetterResponses:
        """Return the search of a game with this private term, before its first move."""
        weighing = ArrivalGains(running, of, kinds, running.receives)
        return BetterResponses(
            running,
            weighing,
            GroupConstraints(running),
            kinds,
            vms,
            objective=objective,
            budget=budget,
        )

    if not budget.spend(units):
        return [], "work"
    best = begin_responses(term)
    best.make_responses()
    if not best.responses or not reconsiderations:
        return best.responses, best.cut_by
    for skewness in (term.skewness, _OTHER_WEIGHT):
        if skewness != term.skewness and budget.spent > _FEW_UNITS:
            break
        if not budget.spend(2 * units):
            break
        guide = begin_responses(dataclasses.replace(term, skewness=skewness))
        guide.make_responses()
        _reconsider_responses(guide, reconsiderations)
        guide.make_responses()
        way = begin_responses(term)
        way.follow_responses(guide.responses)
        way.make_responses()
        if way.net_gain > best.net_gain:
            best = way
    return best.responses, best.cut_by


def _reconsider_responses(responses: BetterResponses, times: int) -> None:
    """Replace each move by a better one, until none changes or ``times`` passes are over."""
    for _ in range(times):
        if not responses.reconsider():
            return
