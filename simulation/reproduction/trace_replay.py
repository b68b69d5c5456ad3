"""Replay requests through the simulator's engine in memory, for figures over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from placement import FloatArray, IntArray
from simulation.reproduction.model import Table
from simulation.slots.cluster import Cluster
from simulation.slots.engine import Engine
from simulation.slots.interning import InternedNames
from simulation.slots.slot_decider import SimulatedPolicy
from simulation.topology.hosts import SimHost
from simulation.traces.chunks import Arrivals, Chunk
from simulation.traces.request_constraints import RequestConstraints


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTrace:
    """A trace of requests that is wholly in memory."""

    resources: tuple[str, ...]
    parts: Sequence[Chunk]

    def chunks(self) -> Iterator[Chunk]:
        """Return the requests of the trace from the beginning."""
        return iter(self.parts)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PlayedTrace:
    """Results of a replayed trace: S slots, R resources, Q requests in order of arrival."""

    start_s: FloatArray  #: (S,)
    used: FloatArray  #: (S, R) part of the pool in use after the slot's round
    waiting: IntArray  #: (S,) VMs that the slot's round left for the next one
    shares: Mapping[str, FloatArray] = field(default_factory=dict)  #: dominant share, (S,) each
    tenant: tuple[str, ...]  #: (Q,)
    arrival_s: FloatArray  #: (Q,)
    requested: IntArray  #: (Q,) VMs
    completed: IntArray  #: (Q,) VMs that had ended by the last slot
    last_end_s: FloatArray  #: (Q,) when the last of those ended, 0 where none has

    @property
    def took_s(self) -> FloatArray:
        """The time to completion of each request, (Q,); NaN where it did not complete."""
        took: FloatArray = np.where(
            self.completed >= self.requested, self.last_end_s - self.arrival_s, np.nan
        )
        return took

    def completed_fractions_of(self, tenants: Sequence[str]) -> FloatArray:
        """Return the fraction of its VMs that each tenant completed; 1 without requests."""
        place = {tenant: index for index, tenant in enumerate(tenants)}
        of_request = np.array([place[tenant] for tenant in self.tenant], dtype=np.int64)
        requested = np.bincount(of_request, self.requested, len(tenants))
        done = np.bincount(of_request, self.completed, len(tenants))
        return np.divide(done, requested, out=np.ones(len(tenants)), where=requested > 0)


def play_trace(
    trace: ListedTrace,
    hosts: IntArray,
    choice: SimulatedPolicy,
    *,
    slots: int,
    leaves: Mapping[int, str] | None = None,
    report: Callable[[float], None] = lambda _: None,
) -> PlayedTrace:
    """Replay a trace through the simulator's engine in memory, slot after slot.

    Parameters
    ----------
    hosts : ndarray of int64, shape (H, R)
    leaves : mapping of slot to tenant, optional
        The tenant that gives up its waiting requests at that slot.
    report : callable
        Called with the part that is done.
    """
    engine = Engine(
        Cluster([SimHost(name=f"h{n:05}") for n in range(len(hosts))], hosts.copy()),
        InternedNames(trace.resources, {}),
        choice,
    )
    pool = hosts.sum(axis=0)
    arrivals, arrived = Arrivals(trace), list[Chunk]()
    requests = int(sum(len(chunk) for chunk in trace.parts))
    completed, last_end_s = np.zeros(requests, dtype=np.int64), np.zeros(requests)
    used, waiting = np.zeros((slots, len(pool))), np.zeros(slots, dtype=np.int64)
    shares: list[FloatArray] = []
    for slot in range(slots):
        if leaves and slot in leaves:
            _drop_waiting(engine, leaves[slot])
        chunks = arrivals.take_until(slot * choice.slot_length_s)
        arrived += chunks
        passed = engine.advance_to(slot, chunks)
        for vms in passed.ended:
            np.add.at(completed, vms.request, vms.count)
            np.maximum.at(last_end_s, vms.request, vms.end_s)
        used[slot] = engine.cluster.committed.sum(axis=0) / pool
        waiting[slot] = engine.waiting.count.sum()
        shares.append((engine.names.held / pool).max(axis=1))
        report((slot + 1) / slots)
    known = [len(chunk) for chunk in arrived]
    names = engine.names.tenants.values
    return PlayedTrace(
        start_s=np.arange(slots, dtype=np.float64) * choice.slot_length_s,
        used=used,
        waiting=waiting,
        shares={
            name: np.array([each[place] if place < len(each) else 0.0 for each in shares])
            for place, name in enumerate(names)
        },
        tenant=tuple(tenant for chunk in arrived for tenant in chunk.tenant),
        arrival_s=np.concatenate([chunk.arrival_s for chunk in arrived]),
        requested=np.concatenate([chunk.count for chunk in arrived]),
        completed=completed[: sum(known)],
        last_end_s=last_end_s[: sum(known)],
    )


def use_over_time(played: Mapping[str, PlayedTrace]) -> Table:
    """Return the table of the use of CPU and memory, slot by slot, under each policy."""
    return Table(
        name="use",
        columns=("second", "policy", "cpu_used", "memory_used"),
        rows=[
            (float(second), policy, *row.tolist())
            for policy, each in played.items()
            for second, row in zip(each.start_s, each.used, strict=True)
        ],
    )


def _drop_waiting(engine: Engine, tenant: str) -> None:
    """Drop a tenant's waiting requests: it gives them up."""
    number = engine.names.tenants.number(tenant)
    engine.waiting = engine.waiting.where(engine.waiting.tenant != number)


def request_chunk(rows: Sequence[tuple[float, float, str, Sequence[int], int]]) -> Chunk:
    """Return a trace's chunk of requests of arrival, lifetime, tenant, demand and count.

    They are sorted by arrival.
    """
    ordered = sorted(rows, key=lambda row: row[0])
    return Chunk(
        arrival_s=np.array([row[0] for row in ordered], dtype=np.float64),
        lifetime_s=np.array([row[1] for row in ordered], dtype=np.float64),
        tenant=tuple(row[2] for row in ordered),
        demand=np.array([row[3] for row in ordered], dtype=np.int64),
        count=np.array([row[4] for row in ordered], dtype=np.int64),
        min_count=np.ones(len(ordered), dtype=np.int64),
        request_constraints=(RequestConstraints(),) * len(ordered),
        read=1.0,
    )
