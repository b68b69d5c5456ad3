"""Requests played in memory, worked by hand: one host of two cores, slots of ten seconds."""

from __future__ import annotations

import numpy as np
import pytest

from simulation.reproduction.trace_replay import ListedTrace, PlayedTrace, play_trace, request_chunk
from simulation.slots.slot_decider import SimulatedPolicy

HOST = np.array([[2, 2]], dtype=np.int64)


def played(slots: int = 4, leaves: dict[int, str] | None = None) -> PlayedTrace:
    chunk = request_chunk([(0.0, 10.0, "b", (1, 1), 1), (0.0, 10.0, "a", (1, 1), 2)])
    trace = ListedTrace(resources=("cpu", "memory"), parts=[chunk])
    choice = SimulatedPolicy(policy="best_fit_drfh", parameters={"patience": 0}, slot_length_s=10.0)
    return play_trace(trace, HOST, choice, slots=slots, leaves=leaves)


def test_the_third_vm_waits_a_slot() -> None:
    found = played()

    assert found.used[:, 0].tolist() == [1.0, 0.5, 0.0, 0.0]
    assert found.waiting.tolist() == [1, 0, 0, 0]
    assert found.tenant == ("b", "a")
    assert found.completed.tolist() == [1, 2]
    assert found.took_s.tolist() == [10.0, 20.0]


def test_shares_are_of_the_pool_at_each_slot() -> None:
    found = played()

    assert found.shares["a"].tolist() == [0.5, 0.5, 0.0, 0.0]
    assert found.shares["b"].tolist() == [0.5, 0.0, 0.0, 0.0]


def test_who_leaves_completes_what_runs_and_no_more() -> None:
    found = played(leaves={1: "a"})

    assert found.completed_fractions_of(["a", "b", "nobody"]).tolist() == pytest.approx(
        [0.5, 1.0, 1.0]
    )
    assert np.isnan(found.took_s[1])


def test_what_runs_at_the_end_is_not_complete() -> None:
    found = played(slots=2)

    assert found.completed.tolist() == [1, 1]
