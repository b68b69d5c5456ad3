"""Simulated rounds remember what tenants held while others waited."""

from __future__ import annotations

from typing import Any

import pytest

from simulation.checkpoint import decode_checkpoint, encode_checkpoint
from simulation.slots.engine import Engine
from simulation.topology.hierarchy import Hierarchy
from tests.simulations import a_chunk, an_engine, random_chunks

GROUPS = Hierarchy(groups=("staff",), parents={"a": "staff", "b": "staff"})


def contested(engine: Engine) -> dict[str, int]:
    """`old` has held half of the pool for hours while others waited; then both want what is free.

    Return how many VMs each holds in the end.
    """
    hours = 60
    engine.advance_to(
        0,
        [
            a_chunk(
                {"tenant": "old", "count": 4, "lifetime_s": 60.0 * (hours - 10)},
                {"tenant": "full", "count": 4, "lifetime_s": 60.0 * hours},
                {"tenant": "new", "count": 1, "demand": (9, 9)},  # a sibling from the start
            )
        ],
    )
    engine.advance_to(1, [a_chunk({"tenant": "waits", "arrival_s": 60.0, "lifetime_s": 60.0})])
    for slot in range(2, hours):
        engine.advance_to(slot, [])
    engine.advance_to(
        hours,
        [
            a_chunk(
                {"tenant": "old", "count": 6, "arrival_s": 60.0 * hours},
                {"tenant": "new", "count": 6, "arrival_s": 60.0 * hours},
            )
        ],
    )
    names = engine.names
    return dict(zip(names.tenants.values, names.vms.tolist(), strict=True))


# As for every fair policy; without memory both get alike.
@pytest.mark.parametrize("policy", ["fuga", "best_fit_drfh", "best_fit_hdrf", "drf_pool"])
def test_who_held_much_while_others_waited_comes_later(policy: str) -> None:
    plain = contested(an_engine(policy=policy))
    remembering = contested(an_engine(policy=policy, fairness_memory_s=36_000))

    assert (plain["old"], plain["new"]) == (4, 4)
    assert (remembering["old"], remembering["new"]) == (2, 6)


def test_idle_capacity_costs_nobody_anything() -> None:
    """A tenant that held half of a pool for which nobody waited has no past."""
    engine = an_engine(policy="fuga", fairness_memory_s=3600)
    engine.advance_to(0, [a_chunk({"tenant": "old", "count": 4, "lifetime_s": 3000.0})])
    for slot in range(1, 60):
        engine.advance_to(slot, [])

    assert engine.memory is not None
    assert engine.memory.tenants_with_past(3600.0).tolist() == []


def test_a_simulation_with_memory_resumes_from_its_checkpoint() -> None:
    wanted: dict[str, Any] = {"hierarchy": GROUPS, "policy": "fuga", "fairness_memory_s": 600}
    chunks = random_chunks(3, 20, 60.0)
    whole = an_engine(**wanted)
    for slot in range(20):
        whole.advance_to(slot, [chunks[slot]])

    first = an_engine(**wanted)
    for slot in range(10):
        first.advance_to(slot, [chunks[slot]])
    data = encode_checkpoint(first.state(), "0" * 64)
    resumed = an_engine(**wanted)
    resumed.restore(decode_checkpoint(data[data.index(b"\n", 90) + 1 :]))
    for slot in range(10, 20):
        resumed.advance_to(slot, [chunks[slot]])

    assert whole.memory is not None
    assert resumed.memory is not None
    assert resumed.memory.state() == whole.memory.state()
    assert resumed.names.held.tolist() == whole.names.held.tolist()
