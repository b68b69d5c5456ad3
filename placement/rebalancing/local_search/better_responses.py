"""Better responses: move VMs one by one where the potential rises most.

`placement.rebalancing.balance` says what the game is and why it ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placement.model.arrays import BoolArray, IntArray
from placement.model.budget import Budget
from placement.rebalancing.local_search.arrival_gains import INFEASIBLE, ArrivalGains
from placement.rebalancing.local_search.group_constraints import GroupConstraints
from placement.rebalancing.local_search.objective import MIB_PER_GIB, MoveObjective
from placement.rebalancing.model import RunningState


@dataclass(frozen=True, slots=True)
class MoveResponse:
    """The move of one VM to another host, and the rise of the potential."""

    vm: int
    source: int
    destination: int
    gain: float


@dataclass(frozen=True, slots=True, eq=False)
class _VmItems:
    """The movable VMs in items: alike VMs of one kind, host and transfer, or a single VM."""

    first: IntArray  #: (I,) place of the first in `vms`
    end: IntArray  #: (I,) place after the last
    vms: IntArray  #: VMs item by item, ascending within each
    host: IntArray  #: (I,)
    kind: IntArray  #: (I,) an index of the weighed kinds
    transfer_mib: IntArray  #: (I,)
    alone: BoolArray  #: (I,) one VM that groups or spreads bind to others

    @classmethod
    def of(
        cls, running: RunningState, kinds: IntArray, vms: IntArray, bound: BoolArray
    ) -> _VmItems:
        """Group movable VMs into items, in order of host, kind and transfer."""
        kind = np.searchsorted(kinds, running.kind[vms])
        alone = np.where(bound[vms], vms, -1)
        keys = (running.host[vms], kind, running.transfer_mib[vms], alone)
        order = np.lexsort((vms, *reversed(keys)))
        sorted_keys = np.stack([key[order] for key in keys])
        starts = np.flatnonzero(
            np.append(True, (sorted_keys[:, 1:] != sorted_keys[:, :-1]).any(axis=0))[: len(vms)]
        )
        host, kind, transfer, alone = sorted_keys[:, starts]
        ends = np.append(starts[1:], len(vms))[: len(starts)]
        return cls(starts, ends, vms[order], host, kind, transfer, alone >= 0)


class BetterResponses:
    """Repeats the steepest better response until none pays, and reconsiders each.

    A step makes the move of one VM that keeps the rules and has the largest gain less its
    price. Ties go by source, kind, memory carried and VM, lowest first,
    then by destination. No VM moves twice.

    Parameters
    ----------
    vms : ndarray of int64, shape (X,)
        Those that may move.
    objective : MoveObjective
        What the potential must rise by, and the most moves and gibibytes.
    budget : Budget
        A unit is a kind of VM weighed on a host.

    Notes
    -----
    What an item, VMs alike on one host, can gain at most is what its host gains without
    one, less the price, plus the lesser of what its kind gains on its best host and the
    cap that was found when it was weighed on each host, because its own host was the
    best or a rule closed some. A cap holds until a host that was worse becomes better or
    the rules of the VM change. So only an item that seems best is weighed by itself.
    """

    def __init__(
        self,
        running: RunningState,
        weighing: ArrivalGains,
        group_constraints: GroupConstraints,
        kinds: IntArray,
        vms: IntArray,
        *,
        objective: MoveObjective,
        budget: Budget,
    ) -> None:
        self._weighing, self._group_constraints, self._budget = weighing, group_constraints, budget
        self._objective = objective
        self._items = items = _VmItems.of(running, kinds, vms, group_constraints.bound)
        self._first = items.first.copy()
        self._vms = items.vms.copy()  # of each item those that moved, then those that did not
        self._item_of = np.full(len(running), -1, dtype=np.int64)
        self._item_of[items.vms] = np.repeat(np.arange(len(items.host)), items.end - items.first)
        self._price = items.transfer_mib * (objective.price_per_gib / MIB_PER_GIB)
        self._leaving = weighing.departure_gain(items.host, items.kind) - self._price
        self._cap = np.full(len(items.host), np.inf)
        # Items of a host stand together.
        self._of_host = np.searchsorted(items.host, np.arange(len(running.receives) + 1))
        self._made: dict[int, MoveResponse] = {}  # by VM, in their order
        self._transfer_mib = 0
        self._units = 2 * len(kinds)  # of a move: each kind on two hosts
        self._out_of_work = False
        self._too_large: list[int] = []  # items that would carry more than the plan may
        self.cut_by: str | None = None  #: what kept it from going on: moves, gib or work

    @property
    def responses(self) -> list[MoveResponse]:
        """The moves that stand, in the order in which they were made."""
        return list(self._made.values())

    @property
    def net_gain(self) -> float:
        """The gain in potential of all moves, less their prices."""
        return sum(
            each.gain - float(self._price[self._item_of[each.vm]]) for each in self._made.values()
        )

    def make_responses(self) -> None:
        """Make the best moves until none pays or a bound is reached, which `cut_by` names."""
        self.cut_by = None
        maximum = self._objective.most_moves
        while (found := self._best_response()) is not None:
            if maximum is not None and len(self._made) >= maximum:
                self.cut_by = "moves"
            elif not self._budget.spend(self._units):
                self.cut_by = "work"
            else:
                self._make_response(*found)
            if self.cut_by is not None:
                return
        if self._out_of_work:
            self.cut_by = "work"
        elif self._too_large:
            self.cut_by = "gib"

    def reconsider(self) -> bool:
        """Replace each move by the best one given all others; return whether any changed.

        The sum of gains less prices rises, or nothing changes, but where a response no
        longer pays. The order of the responses is then none in which they could be made.

        Returns
        -------
        bool
            Did any change?
        """
        changed = False
        for response in self.responses:
            if self._may_return(response):
                if not self._budget.spend(2 * self._units):
                    break
                self._undo_response(response)
                item = int(self._item_of[response.vm])
                found = self._best_response()
                if found is None and self._out_of_work:
                    self._make_response(item, response.destination, response.gain)
                    break
                changed |= found is None or found[:2] != (item, response.destination)
                if found is not None:
                    self._make_response(*found)
        return changed

    def follow_responses(self, responses: Sequence[MoveResponse]) -> None:
        """Make the given moves, or equal ones of alike VMs, steepest first.

        What does not pay when its turn comes, or breaks a rule still, is not made.
        """
        items = self._items
        item = self._item_of[[each.vm for each in responses]]
        there = np.array([each.destination for each in responses], dtype=np.int64)
        kind, source = items.kind[item], items.host[item]
        touching: dict[int, list[int]] = {}
        for row, hosts in enumerate(zip(source.tolist(), there.tolist(), strict=True)):
            for host in hosts:
                touching.setdefault(host, []).append(row)
        entering = self._weighing.entering
        waits = np.ones(len(responses), dtype=np.bool_)
        gain = self._leaving[item] + entering[kind, there]
        while len(gain):
            row = int(gain.argmax())
            if not gain[row] >= self._objective.least_gain or not self._budget.spend(self._units):
                return
            best, destination = int(item[row]), int(there[row])
            if (
                items.alone[best]
                and not self._group_constraints.allowed_hosts(self._next_vm(best))[destination]
            ):
                gain[row] = INFEASIBLE  # until one of those moves to which it is bound
                continue
            self._make_response(best, destination, float(gain[row] + self._price[best]))
            waits[row] = False
            rows = np.array([*touching[int(source[row])], *touching[destination]])
            if items.alone[best]:
                rows = np.concatenate([rows, np.flatnonzero(items.alone[item])])
            gain[rows] = np.where(
                waits[rows],
                self._leaving[item[rows]] + entering[kind[rows], there[rows]],
                INFEASIBLE,
            )

    def _best_response(self) -> tuple[int, int, float] | None:
        """Return item, destination and gain of the best move that pays, or None."""
        items, weighing = self._items, self._weighing
        if not len(items.host):
            return None
        bound = weighing.best[items.kind]
        np.minimum(bound, self._cap, out=bound)
        bound += self._leaving
        while True:
            item = int(bound.argmax())
            if not bound[item] >= self._objective.least_gain:
                return None
            if not self._is_within_transfer_limit(item):
                bound[item] = self._leaving[item] = INFEASIBLE
                continue
            kind = int(items.kind[item])
            destination = weighing.best_host(kind)
            if items.alone[item] or destination == items.host[item]:
                if not self._budget.spend(len(weighing.cost)):
                    self._out_of_work = True
                    return None
                destination, exact = self._best_for_item(item, kind)
                self._cap[item] = exact
                exact += self._leaving[item]
                if exact < bound[item]:
                    bound[item] = exact
                    continue
            return item, destination, float(bound[item] + self._price[item])

    def _is_within_transfer_limit(self, item: int) -> bool:
        """Return whether the plan may transfer one VM more; smaller VMs may still move."""
        maximum = self._objective.max_mib
        if maximum is None or self._transfer_mib + int(self._items.transfer_mib[item]) <= maximum:
            return True
        self._too_large.append(item)
        return False

    def _best_for_item(self, item: int, kind: int) -> tuple[int, float]:
        """Return the best destination of one item, and the gain in potential."""
        gains = self._weighing.entering[kind].copy()
        if self._items.alone[item]:
            gains[~self._group_constraints.allowed_hosts(self._next_vm(item))] = INFEASIBLE
        gains[self._items.host[item]] = INFEASIBLE
        best = int(gains.argmax())
        return best, float(gains[best])

    def _next_vm(self, item: int) -> int:
        """Return the next VM of an item to move."""
        return int(self._vms[self._first[item]])

    def _make_response(self, item: int, destination: int, gain: float) -> None:
        """Record the move of an item's next VM, and make it."""
        vm, source = self._next_vm(item), int(self._items.host[item])
        self._first[item] += 1
        self._made[vm] = MoveResponse(vm, source, destination, gain)
        self._transfer_mib += int(self._items.transfer_mib[item])
        self._move_vm(vm, item, source, destination)

    def _may_return(self, response: MoveResponse) -> bool:
        """Return whether the VM of a move could return to its source."""
        kind = self._items.kind[self._item_of[response.vm]]
        if self._weighing.entering[kind, response.source] == INFEASIBLE:
            return False
        bound = self._items.alone[self._item_of[response.vm]]
        return not bound or bool(
            self._group_constraints.allowed_hosts(response.vm)[response.source]
        )

    def _undo_response(self, response: MoveResponse) -> None:
        """Undo a move: its VM returns to the source, and is the item's next to move."""
        vm, item = response.vm, int(self._item_of[response.vm])
        del self._made[vm]
        self._transfer_mib -= int(self._items.transfer_mib[item])
        # Among those that have not moved, it is the first again.
        self._first[item] -= 1
        first = self._first[item]
        moved = self._vms[self._items.first[item] : first + 1]
        moved[moved == vm] = self._vms[first]
        self._vms[first] = vm
        self._move_vm(vm, item, response.destination, response.source)
        again, self._too_large = np.array(self._too_large, dtype=np.int64), []
        self._update_departures(again)

    def _move_vm(self, vm: int, item: int, source: int, destination: int) -> None:
        """Move a VM from one host to another, and update the bounds of gains."""
        items = self._items
        rose = self._weighing.move(int(items.kind[item]), source, destination)
        capped = np.flatnonzero(self._cap < np.inf)
        self._cap[capped] = np.maximum(self._cap[capped], rose[items.kind[capped]])
        on = [np.arange(*self._of_host[host : host + 2]) for host in (source, destination)]
        self._update_departures(np.concatenate(on))
        others = self._item_of[self._group_constraints.move(vm, destination)]
        self._cap[others[others >= 0]] = np.inf

    def _update_departures(self, of: IntArray) -> None:
        """Compute again what hosts gain if VMs of these items leave."""
        items = self._items
        leaving = self._weighing.departure_gain(items.host[of], items.kind[of]) - self._price[of]
        self._leaving[of] = np.where(self._first[of] < items.end[of], leaving, INFEASIBLE)
