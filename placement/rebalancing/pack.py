"""Pack: empty hosts, so that they can be switched off, where the gain exceeds the price.

The game of `placement.rebalancing.balance` with another private term,
`placement.rebalancing.local_search.host_costs.Emptiness`. A host half emptied saves nothing, so
a step here is all VMs of one host: it counts only if the potential rises by at least the price of
all that it carries and a least gain, or no VM of the host moves. Each step lowers the
number of hosts in use by one, so packing ends.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from placement.model.arrays import BoolArray, IntArray
from placement.model.budget import Budget
from placement.rebalancing.local_search.arrival_gains import INFEASIBLE, ArrivalGains
from placement.rebalancing.local_search.better_responses import MoveResponse
from placement.rebalancing.local_search.group_constraints import GroupConstraints
from placement.rebalancing.local_search.host_costs import Emptiness
from placement.rebalancing.local_search.objective import MoveObjective
from placement.rebalancing.local_search.plans import build_plan, movable_vms
from placement.rebalancing.model import MovePlan, MoveReason, RebalanceLimits, RunningState

#: The default objective of packing: a host in use costs about 1, so 1 TiB.
PACK_OBJECTIVE: Final = MoveObjective(price_per_gib=1e-3, least_gain=1e-3)


def pack(
    running: RunningState,
    objective: MoveObjective = PACK_OBJECTIVE,
    *,
    limits: RebalanceLimits | None = None,
    seed: int = 0,
    budget_units: int | None = None,
) -> MovePlan:
    """Plan moves that leave hosts empty, so that they can be switched off.

    Hosts are tried in turn, the least transfer first, again until none can be emptied
    in a whole turn. The VMs of one go, largest first, each to the host in use that gains
    most by it: the fullest that has room. A host stays as it is if one of its VMs rests,
    cannot move or has no destination, if anything else is committed there, or if the step is not
    larger in gain than its price. Nothing moves to a host that is empty or was emptied, or from one
    that received a VM in this plan. Every move keeps eligibility, room, groups and spreads, soft
    ones too.

    Parameters, what is returned and raised are as with `placement.rebalancing.balance.balance`,
    without skewness and reconsiderations.
    """
    limits, budget = limits or RebalanceLimits(), Budget(budget_units)
    term = Emptiness(ranking=objective.ranking_of(running.snapshot))
    kinds: IntArray = np.unique(running.kind[movable_vms(running)])
    made: list[MoveResponse] = []
    cut_by: str | None = "work"
    if budget.spend(len(kinds) * len(running.receives)):
        emptying = _HostEmptier(running, term, kinds, objective, budget)
        while emptying.empty_one_round():
            pass
        made, cut_by = emptying.made, emptying.cut_by
    return build_plan(
        running,
        term,
        made,
        why=MoveReason.PACKS,
        parameters={**objective.document(), "budget_units": budget_units},
        seed=seed,
        limits=limits,
        work=budget.spent,
        cut_by=cut_by,
    )


class _HostEmptier:
    """Empties one host after the other, where the gain exceeds the price."""

    def __init__(
        self,
        running: RunningState,
        term: Emptiness,
        kinds: IntArray,
        objective: MoveObjective,
        budget: Budget,
    ) -> None:
        self._running, self._objective, self._budget = running, objective, budget
        self._in_use: BoolArray = np.any(running.snapshot.capacity > running.room, axis=1)
        self._weighing = ArrivalGains(running, term, kinds, running.receives & self._in_use)
        self._group_constraints = GroupConstraints(running)
        self._kind = np.searchsorted(kinds, running.kind)  # of VMs that may move
        self._vms = _vms_by_size(running)
        self._of_host = np.searchsorted(
            running.host[self._vms], np.arange(len(running.receives) + 1)
        )
        self._waiting = self._candidate_hosts()
        self._transfer_mib = 0
        self.made: list[MoveResponse] = []
        self.cut_by: str | None = None  #: what kept it from emptying more: moves, gib or work

    def empty_one_round(self) -> bool:
        """Try once to empty each candidate host; return whether any was emptied."""
        before = len(self.made)
        self.cut_by = None
        received = {each.destination for each in self.made}
        still: list[int] = []
        for host in self._waiting:
            if host in received:
                continue
            step = self._empty_host(host)
            if step is None:
                if self.cut_by == "work":
                    return False
                still.append(host)
                continue
            self.made += step
            received.update(each.destination for each in step)
        self._waiting = [host for host in still if host not in received]
        return len(self.made) > before

    def _empty_host(self, host: int) -> list[MoveResponse] | None:
        """Empty a host; undo it and return None if that is impossible or gains too little."""
        vms = self._vms_on(host)
        transfer_mib = int(self._running.transfer_mib[vms].sum())
        if not self._is_within_bounds(len(vms), transfer_mib):
            return None
        weighing = self._weighing
        open_to = weighing.open_to(host)
        weighing.close(host)
        step: list[MoveResponse] = []
        for vm in vms.tolist():
            response = self._response_of_vm(vm)
            if response is None:
                break
            step.append(response)
        pays = sum(each.gain for each in step) >= self._objective.price(transfer_mib)
        if len(step) == len(vms) and pays:
            self._transfer_mib += transfer_mib
            return step
        for each in reversed(step):
            weighing.move(int(self._kind[each.vm]), each.destination, host)
            self._group_constraints.move(each.vm, host)
        weighing.reopen(host, open_to)
        return None

    def _response_of_vm(self, vm: int) -> MoveResponse | None:
        """Return the best move of one VM off its host; None if there is none."""
        weighing, kind = self._weighing, int(self._kind[vm])
        alone = bool(self._group_constraints.bound[vm])
        units = len(weighing.best) * 2 + len(weighing.cost) * alone
        if weighing.best[kind] == INFEASIBLE:
            return None
        if not self._budget.spend(units):
            self.cut_by = "work"
            return None
        destination = weighing.best_host(kind)
        if alone:
            gains = np.where(
                self._group_constraints.allowed_hosts(vm), weighing.entering[kind], INFEASIBLE
            )
            destination = int(gains.argmax())
            if gains[destination] == INFEASIBLE:
                return None
        source = int(self._group_constraints.host[vm])
        before = weighing.cost[[source, destination]].sum()
        weighing.move(kind, source, destination)
        self._group_constraints.move(vm, destination)
        gain = float(before - weighing.cost[[source, destination]].sum())
        return MoveResponse(vm, source, destination, gain)

    def _is_within_bounds(self, moves: int, transfer_mib: int) -> bool:
        """Return whether the plan may have this many more moves and this transfer."""
        most_moves, most_mib = self._objective.most_moves, self._objective.max_mib
        if most_moves is not None and len(self.made) + moves > most_moves:
            self.cut_by = self.cut_by or "moves"
            return False
        if most_mib is not None and self._transfer_mib + transfer_mib > most_mib:
            self.cut_by = self.cut_by or "gib"
            return False
        return True

    def _vms_on(self, host: int) -> IntArray:
        """Return the movable VMs of a host, largest first."""
        return self._vms[self._of_host[host] : self._of_host[host + 1]]

    def _candidate_hosts(self) -> list[int]:
        """Return the hosts that could be emptied, sorted by transfer, least first."""
        running = self._running
        left = running.snapshot.capacity - running.room
        np.subtract.at(left, running.host[self._vms], running.demand[running.kind[self._vms]])
        transfer = np.zeros(len(running.receives), dtype=np.int64)
        np.add.at(transfer, running.host, running.transfer_mib)
        stays = np.zeros(len(running.receives), dtype=np.bool_)
        stays[running.host[running.rests | ~running.movable]] = True
        hosts = np.flatnonzero(self._in_use & ~left.any(axis=1) & ~stays)
        ordered: list[int] = hosts[np.argsort(transfer[hosts], kind="stable")].tolist()
        return ordered


def _vms_by_size(running: RunningState) -> IntArray:
    """Return the movable VMs host by host, those with the largest demand first."""
    vms = movable_vms(running)
    pool = np.maximum(running.snapshot.capacity.sum(axis=0), 1)
    largest = (running.demand / pool).max(axis=1, initial=0.0)[running.kind[vms]]
    ordered: IntArray = vms[np.lexsort((vms, -largest, running.host[vms]))]
    return ordered
