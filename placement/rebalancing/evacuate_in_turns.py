"""Empty hosts in turns, some at once; plan all turns ahead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from placement.rebalancing.evacuate import evacuate
from placement.rebalancing.model import MovePlan, RebalanceLimits, RunningState


def evacuate_in_turns(
    running: RunningState,
    turns: Sequence[Sequence[int]],
    *,
    limits: RebalanceLimits | None = None,
    seed: int = 0,
    budget_units: int | None = None,
) -> Iterator[MovePlan]:
    """Yield the plan that empties the hosts of each turn, after the plans of all before it.

    Once a turn is over its hosts take VMs again, if they did before.

    Parameters
    ----------
    turns : sequence of sequence of int
        Indices of H; each turn is emptied at once.
    budget_units : int or None
        The budget of each plan; see `placement.rebalancing.evacuate.evacuate`.
    """
    for number, hosts in enumerate(turns):
        later = {host for turn in turns[number + 1 :] for host in turn}
        plan = evacuate_before(
            running, hosts, later, limits=limits, seed=seed, budget_units=budget_units
        )
        yield plan
        running = running.after_moves(plan.moves)


def evacuate_before(
    running: RunningState,
    hosts: Sequence[int],
    later: set[int],
    *,
    limits: RebalanceLimits | None = None,
    seed: int = 0,
    budget_units: int | None = None,
) -> MovePlan:
    """Plan to empty hosts; avoid hosts that are emptied later, if the others have room.

    Without that, VMs would go before the roll from host to host, and move again with each turn.
    """
    if later:
        ahead = running.with_closed_hosts(sorted(later))
        plan = evacuate(ahead, hosts, limits=limits, seed=seed, budget_units=budget_units)
        if not plan.stays:
            return plan
    return evacuate(running, hosts, limits=limits, seed=seed, budget_units=budget_units)
