"""Move VMs in a simulation: plan at the starts of slots, carry out in between."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from placement import IntArray, Policy
from placement.constraints.starving_requests import starving_requests
from placement.model.reasons import needed_at_once
from placement.rebalancing.balance import balance
from placement.rebalancing.check import check_plan
from placement.rebalancing.evacuate import evacuate
from placement.rebalancing.freed_hosts import FreedHostsPolicy
from placement.rebalancing.model import MovePlan
from placement.rebalancing.room import plan_room
from placement.rebalancing.spare_policy import SpareCapacityPolicy
from simulation.checkpoint import CheckpointData
from simulation.slots.cluster import Cluster
from simulation.slots.host_rules import HostRules
from simulation.slots.interning import InternedNames
from simulation.slots.moving.movable_vms import MovableVms, VmKey
from simulation.slots.moving.move_options import MoveOptions
from simulation.slots.moving.roll import RollState
from simulation.slots.moving.timetable import EndedMove, MoveOutcome, TimedMove, Timetable
from simulation.slots.running_vms import RunningBuckets, VmRows
from simulation.slots.waiting_rows import WaitingRows
from simulation.topology.failure_domains import failure_domains_of

#: Requests that starve for which room is sought in one slot, until one has a plan.
_MAX_STARVING_REQUESTS: Final = 4
#: Units of work that a search for room may take.
_ROOM_UNITS: Final = 500_000


class MovableSite(Protocol):
    """What moves need of the simulation's engine."""

    cluster: Cluster
    names: InternedNames
    running: RunningBuckets
    rules: HostRules
    waiting: WaitingRows

    def fleet(self) -> MovableVms:
        """Return the simulated running and waiting VMs."""
        ...


@dataclass(frozen=True, slots=True)
class FreedHosts:
    """Hosts that a plan frees for a request: no other request may use them until it is placed."""

    request: int
    hosts: tuple[int, ...]  #: numbers of the cluster's hosts
    until_s: float  #: when the moves are over: the round from then on is the last to keep them


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSummary:
    """The summary of a move plan that a simulation made."""

    what: str  #: balance, evacuate, room
    moves: int
    gib: float
    gain: float  #: of the potential, by the plan's own private term; 0 where it has none
    takes_s: float


class SlotMover:
    """Plans simulated moves after the rounds of slots, and carries them out.

    One plan is carried out at a time: a roll goes before room, and room before balance.
    """

    def __init__(
        self, site: MovableSite, moving: MoveOptions, *, began_at_s: float, slot_length_s: float
    ):
        self._site, self._moving = site, moving
        self._began_at_s, self._length_s = began_at_s, slot_length_s
        self.timetable = Timetable()
        self.rolling = None if moving.roll is None else RollState(moving.roll, site.cluster)
        self.freed: FreedHosts | None = None
        self._rests: list[tuple[float, VmKey]] = []
        self._balanced: int | None = None  #: the number of the interval of the last balance
        self._ended: list[EndedMove] = []
        self._planned: list[PlanSummary] = []

    # --- what happens between slots -------------------------------------------------------

    def advance(self, to_s: float) -> None:
        """Begin and end the simulated moves that are due up to a time."""
        while True:
            over = self.timetable.pop_ended(to_s)
            for move in over:
                self._end_move(move)
            if not over:
                begins = self.timetable.pop_beginning(to_s)
                if begins is None:
                    break
                self._begin_move(begins)
        if self.rolling is not None:
            self.rolling.reopen(to_s)

    def remove_host(self, host: int, at_s: float) -> None:
        """Remove a host: VMs that move to it stay where they are, VMs that leave it are lost."""
        under_way, coming = self.timetable.pop_of_host(host)
        for move in under_way:
            self._hold_vm(move, move.destination, -1)
        for move in (*under_way, *coming):
            lost = move.vm.host == host
            self._ended.append(EndedMove(move, MoveOutcome.GONE if lost else MoveOutcome.CUT))
        if self.rolling is not None:
            self.rolling.record_loss(host, at_s)

    def _begin_move(self, move: TimedMove) -> None:
        """Begin a move, or drop it if its VM is gone."""
        moving = self.timetable.moving_vms()[move.vm]
        if move.vm.end_s <= move.starts_s or self._site.running.count_on_host(*move.vm) <= moving:
            self._ended.append(EndedMove(move, MoveOutcome.GONE))
            return
        self.timetable.under_way.append(move)
        self._hold_vm(move, move.destination, 1)

    def _end_move(self, move: TimedMove) -> None:
        """End a move: its VM is on the destination, or is gone."""
        lives = move.vm.end_s > move.over_s
        if not lives or not self._site.running.relocate(*move.vm, move.destination):
            self._hold_vm(move, move.destination, -1)
            self._ended.append(EndedMove(move, MoveOutcome.GONE))
            return
        self._hold_vm(move, move.vm.host, -1)
        self._ended.append(EndedMove(move, MoveOutcome.MOVED))
        there = move.vm._replace(host=move.destination)
        self._rests.append((move.over_s + self._moving.price.rest_s, there))
        if self.rolling is not None:
            self.rolling.record_departure(move.vm.host, move.over_s)

    def _hold_vm(self, move: TimedMove, host: int, sign: int) -> None:
        """Add a moving VM to what a host holds, or remove it; its tenant holds it once."""
        site, one = self._site, np.ones(1, dtype=np.int64)
        site.cluster.commit(one * host, sign * site.names.demand[[move.kind]])
        vm = VmRows(
            request=one * move.vm.request,
            tenant=one * move.tenant,
            kind=one * move.kind,
            constraints=one * move.constraints,
            count=one,
            host=one * host,
            end_s=np.array([move.vm.end_s]),
        )
        site.rules.count(vm, site.names.request_constraints.values, sign=sign)

    # --- what a round sees ----------------------------------------------------------------

    def pending_arrivals(self) -> IntArray | None:
        """Return the amounts, (H, R), that pending moves bring to hosts; None if none are freed."""
        if self.freed is None or not self.timetable.coming:
            return None
        brought = np.zeros_like(self._site.cluster.capacity)
        for move in self.timetable.coming:
            brought[move.destination] += self._site.names.demand[move.kind]
        return brought

    def wrap_policy(self, policy: Policy) -> Policy:
        """Wrap a round's policy so that it keeps freed hosts and spare capacity free."""
        site = self._site
        if self.freed is not None:
            row = np.flatnonzero(site.waiting.request == self.freed.request)
            if len(row):
                hosts = site.cluster.positions_in_pool(self.freed.hosts)
                policy = FreedHostsPolicy(policy, [(int(row[0]), host) for host in hosts])
        if self._moving.spare is not None:
            domain = failure_domains_of(self._moving.spare, site.cluster.hosts)
            policy = SpareCapacityPolicy(policy, site.fleet().running, domain)
        return policy

    # --- what is planned after a round ----------------------------------------------------

    def plan(self, start_s: float) -> None:
        """Check the remaining moves after a slot's round; if none remain, make the next plan."""
        if self.freed is not None:
            waits = (self._site.waiting.request == self.freed.request).any()
            if not waits or self.freed.until_s <= start_s:
                self.freed = None
        if self.timetable:
            refused = self.timetable.pop_refused(self._site.fleet())
            self._ended += [EndedMove(move, MoveOutcome.REFUSED) for move in refused]
        hosts = self._hosts_to_empty(start_s)
        if self.timetable or self.freed is not None:
            return
        if hosts:
            self._plan_emptying(start_s, hosts)
        if self._moving.room is not None and not self.timetable:
            self._plan_room(start_s)
        if self._moving.balance is not None and not self.timetable:
            self._plan_balancing(start_s)
        self.advance(start_s)

    def _hosts_to_empty(self, start_s: float) -> list[int]:
        """Return the hosts that a roll empties now; none without a roll."""
        if self.rolling is None or not self.is_rolling:
            return []
        on_hosts = np.zeros(len(self._site.cluster.capacity), dtype=np.int64)
        for part in self._site.running.all_rows():
            np.add.at(on_hosts, part.host, part.count)
        return self.rolling.next_batch(start_s, on_hosts.tolist())

    def _plan_emptying(self, start_s: float, hosts: Sequence[int]) -> None:
        """Plan to empty the hosts of a roll, and start the plan."""
        fleet = self._site.fleet()
        places = self._site.cluster.positions_in_pool(hosts)
        plan = evacuate(fleet.running, places, limits=self._moving.price.limits)
        assert self.rolling is not None  # noqa: S101 - whose hosts these are
        self.rolling.record_plan(plan, fleet)
        self._start_plan(plan, fleet, start_s)

    def _plan_room(self, start_s: float) -> None:
        """Plan moves that make room for a starving request, and start the first plan that does."""
        room = self._moving.room
        assert room is not None  # noqa: S101 - checked by the caller
        waiting = self._site.waiting
        if not len(waiting):
            return
        waited = ((start_s - waiting.since_s) // self._length_s).astype(np.int64)
        if int(waited.max()) < room.patience:
            return
        fleet = self._site.fleet()
        snapshot = dataclasses.replace(fleet.running.snapshot, age=waited)
        requests, _ = starving_requests(snapshot, room.patience)
        for request in requests.tolist()[:_MAX_STARVING_REQUESTS]:
            plan = plan_room(
                fleet.running,
                request,
                count=needed_at_once(snapshot, request, int(snapshot.count[request])),
                limits=self._moving.price.limits,
                budget_units=_ROOM_UNITS,
            )
            dear = room.most_gib is not None and plan.measures_after.moved_gib > room.most_gib
            if plan.still_waits or dear or not plan.moves:
                continue
            over_s = self._start_plan(plan, fleet, start_s)
            self.freed = FreedHosts(
                int(waiting.request[request]),
                tuple(int(fleet.hosts[host]) for _, host, _ in plan.admitted),
                over_s,
            )
            return

    def _plan_balancing(self, start_s: float) -> None:
        """Plan moves that balance hosts, if the interval is over, and start the plan."""
        rule = self._moving.balance
        assert rule is not None  # noqa: S101 - checked by the caller
        at_s = self._began_at_s + start_s
        interval = math.floor(at_s / rule.every_s)
        if self._balanced is None:
            self._balanced = interval
        if interval <= self._balanced or not rule.is_open(at_s):
            return
        self._balanced = interval
        fleet = self._site.fleet()
        plan = balance(fleet.running, rule.objective, limits=self._moving.price.limits)
        self._start_plan(plan, fleet, start_s)

    def _start_plan(self, plan: MovePlan, fleet: MovableVms, start_s: float) -> float:
        """Check a plan and schedule its moves; return the time of its end."""
        check_plan(fleet.running, plan)
        over_s = self.timetable.schedule(plan, fleet, start_s, self._moving.price)
        before, after = plan.details.get("potential", (0.0, 0.0))
        self._planned.append(
            PlanSummary(
                what=plan.policy,
                moves=len(plan.moves),
                gib=plan.measures_after.moved_gib,
                gain=after - before,
                takes_s=over_s - start_s,
            )
        )
        return over_s

    # --- state for others -----------------------------------------------------------------

    @property
    def is_rolling(self) -> bool:
        """Whether a simulated roll is going on."""
        return self.rolling is not None and not self.rolling.is_over

    def resting_vms(self, at_s: float) -> Counter[VmKey]:
        """Return how many VMs of each key rest after a move at a time."""
        self._rests = [each for each in self._rests if each[0] > at_s]
        return Counter(key for _, key in self._rests)

    def take_results(self) -> tuple[list[EndedMove], list[PlanSummary]]:
        """Return the moves that ended and the plans made since the last call."""
        taken = self._ended, self._planned
        self._ended, self._planned = [], []
        return taken

    def state(self) -> CheckpointData:
        """Return planned and pending moves for a checkpoint."""
        its = self.freed
        return {
            "timetable": self.timetable.state(),
            "rolling": None if self.rolling is None else self.rolling.state(),
            "freed": None if its is None else [its.request, its.hosts, its.until_s],
            "rests": [
                [until_s, key.request, None if math.isinf(key.end_s) else key.end_s, key.host]
                for until_s, key in self._rests
            ],
            "balanced": self._balanced,
        }

    def restore(self, kept: CheckpointData) -> None:
        """Restore planned and pending moves from a checkpoint."""
        self.timetable.restore(kept["timetable"], len(self._site.cluster.capacity))
        if self.rolling is not None:
            self.rolling.restore(kept["rolling"])
        self.freed = None
        if kept["freed"] is not None:
            request, hosts, until_s = kept["freed"]
            self.freed = FreedHosts(
                int(request), tuple(int(host) for host in hosts), float(until_s)
            )
        self._rests = [
            (float(until_s), VmKey(int(request), math.inf if end_s is None else end_s, int(host)))
            for until_s, request, end_s, host in kept["rests"]
        ]
        self._balanced = None if kept["balanced"] is None else int(kept["balanced"])

    def roll_report(self) -> dict[str, Any] | None:
        """Return the progress of a simulated roll as JSON values; None without a roll."""
        return None if self.rolling is None else self.rolling.report()
