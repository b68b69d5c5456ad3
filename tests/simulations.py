"""Small simulations with defaults: a test says only what matters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from simulation.slots.cluster import Cluster
from simulation.slots.engine import Engine
from simulation.slots.interning import InternedNames
from simulation.slots.slot_decider import SimulatedPolicy
from simulation.topology.hierarchy import Hierarchy
from simulation.topology.hosts import HostEvent, SimHost
from simulation.traces.chunks import Chunk
from simulation.traces.request_constraints import RequestConstraints

RESOURCES = ("vcpus", "memory_mib")


def an_engine(
    hosts: Sequence[SimHost] | None = None,
    *,
    capacity: Sequence[Sequence[int]] = ((4, 4096), (4, 4096)),
    events: Sequence[HostEvent] = (),
    absent: frozenset[str] = frozenset(),
    hierarchy: Hierarchy | None = None,
    **choice: Any,
) -> Engine:
    """Two hosts of four cores and 4 GiB, slots of a minute."""
    if hosts is None:
        hosts = [SimHost(name=f"h{number}") for number in range(len(capacity))]
    cluster = Cluster(hosts, np.array(capacity, dtype=np.int64), absent)
    shown = {"policy": "first_fit", "slot_length_s": 60.0} | choice
    return Engine(
        cluster, InternedNames(RESOURCES, {}, hierarchy), SimulatedPolicy(**shown), events
    )


def a_chunk(*rows: dict[str, Any]) -> Chunk:
    """Requests of one VM of one core and 1 GiB that never ends."""

    def column(name: str, default: Any) -> list[Any]:
        return [row.get(name, default) for row in rows]

    return Chunk(
        arrival_s=np.array(column("arrival_s", 0.0), dtype=np.float64),
        lifetime_s=np.array(column("lifetime_s", np.inf), dtype=np.float64),
        tenant=tuple(column("tenant", "a")),
        demand=np.array(column("demand", (1, 1024)), dtype=np.int64).reshape(len(rows), 2),
        count=np.array(column("count", 1), dtype=np.int64),
        min_count=np.array(column("min_count", 1), dtype=np.int64),
        request_constraints=tuple(column("constraints", RequestConstraints())),
        on_host=tuple(column("on_host", None)),
        read=1.0,
    )


def random_chunks(seed: int, slots: int, length_s: float) -> list[Chunk]:
    """Return for each slot some requests, more than small clusters hold."""
    rng = np.random.default_rng(seed)
    chunks = []
    for slot in range(slots):
        number = int(rng.integers(0, 4))
        rows = [
            {
                "arrival_s": slot * length_s,
                "lifetime_s": float(rng.integers(0, 6) * length_s / 2) or np.inf,
                "tenant": f"t{rng.integers(0, 4)}",
                "demand": (int(rng.integers(1, 4)), int(rng.integers(1, 5)) * 512),
                "count": (count := int(rng.integers(1, 5))),
                "min_count": int(rng.integers(1, count + 1)) if rng.random() < 0.2 else 1,
            }
            for _ in range(number)
        ]
        chunks.append(a_chunk(*rows))
    return chunks
