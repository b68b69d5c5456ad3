"""Plans of optional moves, made from responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from placement.model.arrays import IntArray
from placement.rebalancing.local_search.better_responses import MoveResponse
from placement.rebalancing.local_search.group_constraints import GroupConstraints
from placement.rebalancing.local_search.host_costs import HostCost
from placement.rebalancing.local_search.wave_schedule import schedule_waves
from placement.rebalancing.measures import measure_moves
from placement.rebalancing.model import (
    Mobility,
    MovePlan,
    MoveReason,
    RebalanceLimits,
    RebalanceMove,
    RunningState,
)

_POLICY: Final = {MoveReason.BALANCES: "balance", MoveReason.PACKS: "pack"}


def movable_vms(running: RunningState) -> IntArray:
    """Return the VMs that balancing and packing may move, (X,): they can move and do not rest."""
    return np.flatnonzero(running.movable & ~running.rests).astype(np.int64)


def build_plan(
    running: RunningState,
    term: HostCost,
    responses: Sequence[MoveResponse],
    *,
    why: MoveReason,
    parameters: Mapping[str, Any],
    seed: int,
    limits: RebalanceLimits,
    work: int,
    cut_by: str | None,
) -> MovePlan:
    """Build a move plan from better responses: moves in waves, with the gain of each.

    Parameters
    ----------
    responses : sequence of MoveResponse
        Feasible in this order.
    cut_by : str or None
        What kept the search from going on: ``moves``, ``gib`` or ``work``.

    Returns
    -------
    MovePlan
        ``details`` has ``outcome`` (``no_useful_move`` if nothing was useful from the
        beginning, ``settled`` if nothing is afterwards, or ``cut_by``), the ``potential``
        before and after without v(A), which moves do not change, and the ``gains`` of the
        moves in their order.
    """
    gains = {each.vm: each.gain for each in responses}
    moves = schedule_waves(
        running,
        GroupConstraints(running),
        [
            RebalanceMove(
                vm=each.vm,
                source=each.source,
                destination=each.destination,
                wave=0,
                why=why,
                live=bool(running.mobility[each.vm] == Mobility.LIVE),
                transfer_mib=int(running.transfer_mib[each.vm]),
            )
            for each in responses
        ],
        limits,
    )
    capacity = running.snapshot.capacity
    before = 0.0 - float(term.cost(capacity - running.room, capacity).sum())
    settled = "settled" if moves else "no_useful_move"
    return MovePlan(
        policy=_POLICY[why],
        parameters=dict(parameters),
        seed=seed,
        limits=limits,
        moves=moves,
        measures=measure_moves(running, moves, term.ranking.tolist()),
        work=work,
        cut=cut_by is not None,
        details={
            "outcome": cut_by or settled,
            "potential": [before, before + sum(gains[move.vm] for move in moves)],
            "gains": [gains[move.vm] for move in moves],
        },
    )
