"""The engine of a simulation: events between slots, and the round of each slot.

A round is the control centre's: the same snapshot, the same decision
(`placement.decide`), the same check and fallback, and no round where nothing has
changed since one that placed nothing. Only clock, hosts and VMs are simulated.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from placement import Allocation, FloatArray, IntArray, Snapshot
from placement.constraints.starving_requests import StarvationPatience
from simulation.checkpoint import CheckpointData, CheckpointSizes, ValueRange, read_integer
from simulation.slots.cluster import Cluster
from simulation.slots.holding_memory import SimulatedMemory
from simulation.slots.host_rules import HostRules
from simulation.slots.idle_rounds import LastIdleRound
from simulation.slots.interning import InternedNames
from simulation.slots.moving.movable_vms import MovableVms, build_movable_vms
from simulation.slots.moving.slot_mover import PlanSummary, SlotMover
from simulation.slots.moving.timetable import EndedMove
from simulation.slots.running_vms import RunningBuckets, VmRows
from simulation.slots.slot_decider import SimulatedPolicy, SlotDecider
from simulation.slots.waiting_rows import NO_ROWS, WaitingRows
from simulation.topology.hierarchy import TimedHierarchy
from simulation.topology.hosts import HostEvent
from simulation.traces.chunks import Chunk


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Round:
    """A round: its snapshot, and the decision."""

    snapshot: Snapshot
    allocation: Allocation
    fallback_reason: str | None
    tenants: IntArray  #: (N,) numbers of the snapshot's tenants
    placed: VmRows
    wait_s: FloatArray  #: (P,) how long each row of ``placed`` waited


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SlotResult:
    """The events of a simulation up to the start of a slot, and the slot's round."""

    slot: int
    start_s: float
    arrived: tuple[WaitingRows, ...]
    ended: tuple[VmRows, ...]
    lost: tuple[VmRows, ...]
    given_up: WaitingRows
    round: Round | None  #: None: nothing waits, or nothing has changed
    stood: VmRows | None = None  #: VMs that ran at the beginning of the trace
    skipped: bool = False  #: neither the policy nor the fallback decided
    moves: tuple[EndedMove, ...] = ()  #: that were over, or came to nothing
    plans: tuple[PlanSummary, ...] = ()  #: that were made after the round


class Engine:
    """The simulated site: requests, VMs and hosts, slot by slot.

    Parameters
    ----------
    cluster : Cluster
        Changed from slot to slot.
    names : InternedNames
    choice : SimulatedPolicy
    events : sequence of HostEvent
        In order of time.
    hierarchies : sequence of (float, Hierarchy)
        Groups, weights and quotas that hold from a time on, in order of time.

    Notes
    -----
    A VM runs from the start of the slot that placed it. What ends, arrives or
    befalls a host at the very start of a slot counts in its round.
    """

    def __init__(
        self,
        cluster: Cluster,
        names: InternedNames,
        choice: SimulatedPolicy,
        events: Sequence[HostEvent] = (),
        hierarchies: Sequence[TimedHierarchy] = (),
    ) -> None:
        self.cluster, self.names, self.choice = cluster, names, choice
        self.waiting = NO_ROWS
        self.running = RunningBuckets(choice.slot_length_s)
        self.rules = HostRules()
        self._events = list(events)
        self._hierarchies = list(hierarchies)
        self._requests = 0
        self._stood = 0
        self.last_idle = LastIdleRound(
            StarvationPatience.of(choice.policy_parameters(choice.parameters)).patience
        )
        self.decider = SlotDecider(choice, cluster)
        self._start_s = 0.0
        self.memory: SimulatedMemory | None = None
        if choice.fairness_memory_s:
            self.memory = SimulatedMemory(names, choice.fairness_memory_s)
        self.movers: SlotMover | None = None
        if choice.moving.is_enabled:
            self.movers = SlotMover(
                self,
                choice.moving,
                began_at_s=choice.began_at_s,
                slot_length_s=choice.slot_length_s,
            )

    def state(self) -> CheckpointData:
        """Return the state of the simulated site for a checkpoint.

        The policy is made again, and so is what is remembered to save time.
        """
        return {
            "cluster": self.cluster.state(),
            "names": self.names.state(),
            "waiting": self.waiting.columns(),
            "running": self.running.state(),
            "rules": self.rules.state(),
            "events_left": len(self._events),
            "hierarchies_left": len(self._hierarchies),
            "requests": self._requests,
            "stood": self._stood,
            "last_idle": self.last_idle.state(),
            "movers": None if self.movers is None else self.movers.state(),
            "memory": None if self.memory is None else self.memory.state(),
        }

    def restore(self, kept: CheckpointData) -> None:
        """Restore the state of the simulated site from a checkpoint; call it on a new engine."""
        events = read_integer(kept, "events_left", ValueRange(0, len(self._events) + 1))
        hierarchies = read_integer(
            kept, "hierarchies_left", ValueRange(0, len(self._hierarchies) + 1)
        )
        self._events = self._events[len(self._events) - events :]
        passed = self._hierarchies[: len(self._hierarchies) - hierarchies]
        for _, hierarchy in passed[-1:]:
            self.names.set_hierarchy(hierarchy)
        self._hierarchies = self._hierarchies[len(passed) :]
        self.cluster.restore(kept["cluster"])
        self.names.restore(kept["names"])
        sizes = CheckpointSizes(
            tenants=len(self.names.tenants),
            kinds=len(self.names.demand),
            constraints=len(self.names.request_constraints),
            hosts=len(self.cluster.capacity),
        )
        self.waiting = WaitingRows.from_state(kept["waiting"], sizes)
        self.running.restore(kept["running"], sizes)
        self.rules.restore(kept["rules"], sizes)
        self._requests, self._stood = read_integer(kept, "requests"), read_integer(kept, "stood")
        self.last_idle.restore(kept["last_idle"], self.names.resources)
        if self.movers is not None:
            self.movers.restore(kept["movers"])
        if self.memory is not None:
            self.memory.restore(kept["memory"])

    @property
    def next_event_s(self) -> float | None:
        """The time of the next host event or change of quotas; None if there is none."""
        hosts = [event.at_s for event in self._events[:1]]
        return min([*hosts, *(at_s for at_s, _ in self._hierarchies[:1])], default=None)

    def advance_to(self, slot: int, chunks: Sequence[Chunk]) -> SlotResult:
        """Advance to the start of a slot with newly arrived requests, and decide its round."""
        start_s = self._start_s = slot * self.choice.slot_length_s
        if self.movers is not None:
            first_s = self._events[0].at_s if self._events else start_s
            self.movers.advance(min(first_s, start_s))
        while self._hierarchies and self._hierarchies[0][0] <= start_s:
            self.names.set_hierarchy(self._hierarchies.pop(0)[1])
        running = int(self.names.vms.sum())
        ended = self.running.pop_ended(slot)
        if self.memory is not None:
            self.memory.observe(start_s, running, sum(int(vms.count.sum()) for vms in ended))
        for vms in ended:
            self._release_vms(vms)
        lost = self._apply_events(start_s, ended)
        if self.movers is not None:
            self.movers.advance(start_s)
        stood, chunks = self._start_running(slot, chunks)
        arrived = tuple(self._add_arrivals(chunk) for chunk in chunks)
        given_up = self._drop_impatient(start_s)
        passed = SlotResult(
            slot=slot,
            start_s=start_s,
            arrived=arrived,
            ended=tuple(ended),
            lost=tuple(lost),
            given_up=given_up,
            round=None,
            stood=stood,
        )
        passed = self._decide_round(passed)
        if self.movers is not None:
            freed = self.movers.freed
            self.movers.plan(start_s)
            if freed is not None and self.movers.freed is None:
                self.last_idle.seen = None  # others may use these hosts again
            moves, plans = self.movers.take_results()
            passed = replace(passed, moves=tuple(moves), plans=tuple(plans))
        return passed

    def _decide_round(self, passed: SlotResult) -> SlotResult:
        """Run a round, unless nothing has changed since the last round, which placed nothing."""
        if not len(self.waiting):
            if self.memory is not None:
                self.memory.keep(passed.start_s)
            return passed
        snapshot, tenants = self.snapshot()
        if self.last_idle.would_repeat(snapshot, self.waiting.request):
            self.waiting = self.waiting.after_slot(np.zeros_like(self.waiting.count))
            return passed
        around = None if self.movers is None else self.movers.wrap_policy
        allocation, reason = self.decider.decide(snapshot, passed.start_s, around)
        if allocation is None:
            return replace(passed, skipped=True)
        round_ = self._commit_round(passed.slot, snapshot, tenants, allocation, reason)
        if self.memory is not None:
            self.memory.keep(passed.start_s, (snapshot, tenants, allocation))
        return replace(passed, round=round_)

    def fleet(self) -> MovableVms:
        """Return the simulated running and waiting VMs, for planners of moves."""
        parts = self.running.all_rows()
        snapshot, tenants = self.snapshot(for_running=True)
        movers = self.movers
        return build_movable_vms(
            snapshot,
            tenants,
            VmRows.concatenate(parts) if parts else None,
            moving=Counter() if movers is None else movers.timetable.moving_vms(),
            resting=Counter() if movers is None else movers.resting_vms(self._start_s),
            arriving=() if movers is None else movers.timetable.arrivals(),
            names=self.names,
            cluster=self.cluster,
            waiting=self.waiting,
            rules=self.rules,
        )

    def snapshot(self, *, for_running: bool = False) -> tuple[Snapshot, IntArray]:
        """Return the snapshot of a simulated round now, and the numbers of its tenants.

        If spare capacity is kept, or if ``for_running``, host classes also distinguish hosts by the
        constraints of all running VMs.

        Tenants are those with VMs or requests; others take no part in the round.
        """
        waiting, names = self.waiting, self.names
        concerned = names.vms > 0
        concerned[waiting.tenant] = True
        if self.memory is not None:
            concerned[self.memory.tenants_with_past(self._start_s)] = True
        tenants = names.tie_order(np.flatnonzero(concerned).astype(np.int64))
        place = np.zeros(len(concerned), dtype=np.int64)
        place[tenants] = np.arange(len(tenants))
        apart = None
        if for_running or self.choice.moving.spare is not None:
            of_running = [np.unique(part.constraints) for part in self.running.all_rows()]
            apart = np.concatenate([np.zeros(0, dtype=np.int64), *of_running])
        open_ = self.rules.snapshot_rules(
            waiting, self.cluster, names.request_constraints.values, apart
        )
        free = self.cluster.free()
        to_come = None if self.movers is None else self.movers.pending_arrivals()
        if to_come is not None:
            free = np.maximum(free - to_come[self.cluster.rows], 0)
        return Snapshot(
            resources=names.resources,
            capacity=self.cluster.pool_capacity(),
            free=free,
            host_class=open_.host_class,
            eligible=open_.eligible,
            demand=names.demand[waiting.kind],
            count=waiting.count.copy(),
            min_count=waiting.min_counts(),
            tenant=place[waiting.tenant],
            age=waiting.age.copy(),
            weight=names.weight[tenants],
            held=names.held[tenants],
            tree=names.tree(tenants),
            constraints=open_.constraints,
            allowances=names.allowances(tenants),
            memory=None if self.memory is None else self.memory.of_tenants(tenants, self._start_s),
        ), tenants

    def _release_vms(self, vms: VmRows) -> None:
        """Release what ended or lost VMs hold: on hosts, of tenants, and in groups."""
        self.cluster.commit(vms.host, -vms.count[:, None] * self.names.demand[vms.kind])
        self.names.hold(vms.tenant, vms.kind, -vms.count)
        self.rules.count(vms, self.names.request_constraints.values, sign=-1)

    def _apply_events(self, start_s: float, ended: list[VmRows]) -> list[VmRows]:
        """Apply host events up to the start of the slot; return the VMs lost.

        VMs that ended in this slot, but after their host failed, are taken out of
        ``ended``: they were lost.
        """
        lost: list[VmRows] = []
        while self._events and self._events[0].at_s <= start_s:
            event = self._events.pop(0)
            self.decider.forget_zone_policies()
            host = self.cluster.index[event.host]
            if self.movers is not None:
                self.movers.advance(event.at_s)
            loses = self.cluster.apply_event(event.what, host)
            if loses and self.movers is not None:
                self.movers.remove_host(host, event.at_s)
            if not loses:
                continue
            for place, vms in enumerate(ended):
                late = (vms.host == host) & (vms.end_s > event.at_s)
                if late.any():
                    ended[place] = vms.where(~late)
                    self._requeue_vms(vms.where(late), event.at_s)
                    lost.append(vms.where(late))
            vms_there = self.running.pop_lost(host, event.at_s)
            if vms_there is not None:
                self._release_vms(vms_there)
                self._requeue_vms(vms_there, event.at_s)
                lost.append(vms_there)
        return lost

    def _requeue_vms(self, vms: VmRows, at_s: float) -> None:
        """Queue lost VMs again as requests, for the rest of their lives."""
        order = np.argsort(vms.request, kind="stable")
        vms = vms.where(order)
        again = WaitingRows(
            request=vms.request,
            tenant=vms.tenant,
            kind=vms.kind,
            constraints=vms.constraints,
            count=vms.count,
            min_count=np.ones_like(vms.count),
            wanted=vms.count,
            age=np.zeros_like(vms.count),
            since_s=np.full(len(vms), at_s),
            lifetime_s=vms.end_s - at_s,
            wait_at_most_s=np.full(len(vms), math.inf),
        )
        self.waiting = self.waiting.with_more(again)

    def _start_running(
        self, slot: int, chunks: Sequence[Chunk]
    ) -> tuple[VmRows | None, Sequence[Chunk]]:
        """Start VMs that run already at time 0; return them, and the requests that arrive.

        They stay where they are, whether there is room for them or not. Those whose
        host is not there arrive like others. What runs already has numbers below zero:
        no policy placed it, and nothing counts it as requested.
        """
        if not any(chunk.on_host for chunk in chunks):
            return None, chunks
        found: list[VmRows] = []
        others: list[Chunk] = []
        for chunk in chunks:
            hosts = np.array(self.cluster.pool_numbers(chunk.on_host), dtype=np.int64)
            stands = np.flatnonzero(hosts >= 0)
            others.append(chunk.where(np.flatnonzero(hosts < 0)) if len(hosts) else chunk)
            if not len(stands):
                continue
            part, names = chunk.where(stands), self.names
            vms = VmRows(
                request=-1 - self._stood - np.arange(len(part)),
                tenant=names.tenants_of(part.tenant),
                kind=names.kinds_of(part.demand),
                constraints=names.request_constraints.numbers(part.request_constraints),
                host=hosts[stands],
                count=part.count,
                end_s=part.arrival_s + part.lifetime_s,
            )
            self._stood += len(part)
            self.rules.add_groups(vms.tenant.tolist(), part.request_constraints)
            self.cluster.commit(vms.host, vms.count[:, None] * names.demand[vms.kind])
            names.hold(vms.tenant, vms.kind, vms.count)
            self.rules.count(vms, names.request_constraints.values, sign=1)
            self.running.add(vms, slot)
            found.append(vms)
        return (VmRows.concatenate(found) if found else None), [
            each for each in others if len(each)
        ]

    def _add_arrivals(self, chunk: Chunk) -> WaitingRows:
        """Queue the requests of a chunk; return their rows."""
        names, count = self.names, chunk.count
        arrived = WaitingRows(
            request=np.arange(self._requests, self._requests + len(chunk)),
            tenant=names.tenants_of(chunk.tenant),
            kind=names.kinds_of(chunk.demand),
            constraints=names.request_constraints.numbers(chunk.request_constraints),
            count=count.copy(),
            min_count=chunk.min_count.copy(),
            wanted=count.copy(),
            age=np.zeros_like(count),
            since_s=chunk.arrival_s.copy(),
            lifetime_s=chunk.lifetime_s.copy(),
            wait_at_most_s=chunk.patience_s().copy(),
        )
        self.rules.add_groups(arrived.tenant.tolist(), chunk.request_constraints)
        self._requests += len(chunk)
        self.waiting = self.waiting.with_more(arrived)
        return arrived

    def _drop_impatient(self, start_s: float) -> WaitingRows:
        """Drop waiting requests that have waited for longer than their tenants do; return them."""
        waited_s = start_s - self.waiting.since_s
        over = waited_s > self.waiting.wait_at_most_s
        if self.choice.wait_at_most_s is not None:
            over |= waited_s > self.choice.wait_at_most_s
        if not over.any():
            return NO_ROWS
        given_up = self.waiting.where(over)
        self.waiting = self.waiting.where(~over)
        return given_up

    def _commit_round(
        self,
        slot: int,
        snapshot: Snapshot,
        tenants: IntArray,
        allocation: Allocation,
        reason: str | None,
    ) -> Round:
        """Commit a round's allocation: VMs run, requests have fewer VMs to place."""
        start_s = slot * self.choice.slot_length_s
        waiting, (rows, hosts, counts) = self.waiting, allocation.placed.T
        self.last_idle.record_round(snapshot, waiting.request, allocation)
        placed = VmRows(
            request=waiting.request[rows],
            tenant=waiting.tenant[rows],
            kind=waiting.kind[rows],
            constraints=waiting.constraints[rows],
            host=self.cluster.rows[hosts],
            count=counts,
            end_s=start_s + waiting.lifetime_s[rows],
        )
        self.cluster.commit(placed.host, counts[:, None] * self.names.demand[placed.kind])
        self.names.hold(placed.tenant, placed.kind, counts)
        self.rules.count(placed, self.names.request_constraints.values, sign=1)
        self.running.add(placed, slot)
        given = np.zeros(len(waiting), dtype=np.int64)
        np.add.at(given, rows, counts)
        self.waiting = waiting.after_slot(given)
        return Round(
            snapshot=snapshot,
            allocation=allocation,
            fallback_reason=reason,
            tenants=tenants,
            placed=placed,
            wait_s=start_s - waiting.since_s[rows],
        )
