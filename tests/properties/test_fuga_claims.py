"""What FUGA's rounds claim, on clusters of every kind, checked by independent code."""

from __future__ import annotations

import dataclasses
import json
import math
import zlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.control_center.policy_child import answer_request, decide
from controller.rounds.inputs import RoundInputs
from controller.rounds.policy_process import PolicyAnswer
from controller.rounds.snapshots import SnapshotNames
from placement import Snapshot
from tests.claims import (
    StoredRound,
    overfull_hosts,
    unfair_exchanges,
    wrong_holding,
    wrong_utilities,
)
from tests.properties.strategies import contended_snapshots
from tests.properties.subjects import about, contains
from tests.round_inputs import some_snapshot

TYPES = np.array([[1, 1024, 5], [1, 3072, 15], [2, 6144, 30], [4, 12288, 60], [8, 24576, 60]])
HOSTS = np.array([[16, 32768, 300], [4, 8192, 500], [4, 4096, 200], [1, 1024, 10]])


@st.composite
def rounds(draw: st.DrawFn) -> RoundInputs:
    """Up to three tenants who ask a few partly filled hosts for whatever."""
    capacity = HOSTS[draw(st.lists(st.integers(0, 3), min_size=1, max_size=6))]
    requests = draw(st.integers(1, 5))
    tenants = draw(st.integers(1, 3))
    # What runs is whole VMs of tenant 0.
    running = np.array([draw(st.integers(0, int(host[0]))) for host in capacity])
    used = np.minimum(running[:, None] * TYPES[0], capacity)
    held = np.zeros((tenants, 3), dtype=np.int64)
    held[0] = used.sum(axis=0)
    count = np.array([draw(st.integers(1, 20)) for _ in range(requests)])
    at_once = np.array([draw(st.sampled_from([1, 1, 2, 4])) for _ in range(requests)])
    snapshot = some_snapshot(
        capacity=capacity,
        free=capacity - used,
        host_class=np.zeros(len(capacity), dtype=np.int64),
        eligible=np.ones((requests, 1), dtype=np.bool_),
        demand=TYPES[[draw(st.integers(0, 4)) for _ in range(requests)]],
        count=count,
        min_count=np.minimum(at_once, count),
        tenant=np.array([draw(st.integers(0, tenants - 1)) for _ in range(requests)]),
        age=np.array([draw(st.sampled_from([0, 0, 1_440, 12_000])) for _ in range(requests)]),
        weight=np.array([draw(st.sampled_from([1.0, 2.0, 0.5])) for _ in range(tenants)]),
        held=held,
    )
    return inputs_of(snapshot, draw(st.sampled_from([1.5, 2.0, 3.0])), draw(st.integers(0, 5)))


@st.composite
def contended_rounds(draw: st.DrawFn) -> RoundInputs:
    """Rounds of eight hosts and more on which not everything fits."""
    snapshot = draw(
        contended_snapshots(min_hosts=8, max_hosts=16, gangs=draw(st.booleans()), ages=True)
    )
    return inputs_of(snapshot, draw(st.sampled_from([1.5, 2.0, 3.0])), draw(st.integers(0, 5)))


def inputs_of(snapshot: Snapshot, alpha: float, seed: int) -> RoundInputs:
    names = SnapshotNames(
        hosts=tuple((str(h), f"host-{h}") for h in range(len(snapshot.capacity))),
        tenants=tuple((str(n), f"tenant-{n}") for n in range(len(snapshot.weight))),
        requests=tuple((str(q), f"req-{q}", "type") for q in range(len(snapshot.count))),
    )
    return RoundInputs(
        snapshot=snapshot,
        names=names,
        policy="fuga",
        parameters={"alpha": alpha},
        seed=seed,
        budget_units=None,
    )


def decided(inputs: RoundInputs) -> StoredRound:
    decision = answer_request("decide", inputs.encode())
    assert isinstance(decision, PolicyAnswer), decision
    return StoredRound(json.loads(zlib.decompress(inputs.encode())), decision.document)


# Constants of all modules that are loaded steer the draws: of few examples, chance leaves too few.
@about("an exchange")
@settings(max_examples=200, deadline=None)
@given(inputs=contended_rounds())
def test_no_exchange_would_have_been_fairer(inputs):
    stored = decided(inputs)

    contains(stored.outcome["details"]["exchanges"])
    assert unfair_exchanges(stored) == []
    assert overfull_hosts(stored) == []
    assert wrong_holding(stored) == []


@settings(max_examples=100, deadline=None)
@given(inputs=rounds())
def test_every_utility_that_is_told_is_right(inputs):
    assert wrong_utilities(decided(inputs)) == []


@settings(max_examples=50, deadline=None)
@given(inputs=rounds())
def test_a_replay_gives_the_same_bytes(inputs):
    first, second = (answer_request("decide", inputs.encode()).document for _ in range(2))

    assert first == second


@given(st.one_of(rounds(), contended_rounds()))
def test_the_steps_of_a_round_lead_to_what_it_placed_and_change_nothing(inputs):
    shown = dataclasses.replace(inputs, parameters={**inputs.parameters, "steps": 10_000})

    silent, document = decide(inputs.encode()).document, decide(shown.encode()).document

    steps = document["details"].pop("steps", [])
    assert document == silent
    came = Counter()
    for step in steps:
        for request, host, count in step["rows"]:
            came[request, host] += count
            assert count != 0
    expected = Counter({(request, host): count for request, host, count in silent["placed"]})
    assert {pair: count for pair, count in came.items() if count} == dict(expected)
    games = [step for step in steps if step["kind"] == "game"]
    assert [step["vms"] > 0 for step in games] == [True] * len(silent["details"]["games"])
    for number, game in enumerate(silent["details"]["games"], start=1):
        moves = [each for each in steps if each["kind"] == "move" and each["game"] == number]
        assert math.isclose(moves[-1]["potential"], game["potential"][1], abs_tol=1e-9)
        for move in moves:
            assert [each["chosen"] for each in move["combinations"]].count(True) == 1
            assert move["host"] in games[number - 1]["hosts"]


@pytest.mark.parametrize("most", [0, 3])
def test_of_a_long_round_only_so_many_moves_are_told(most):
    snapshot = some_snapshot(
        capacity=np.repeat(HOSTS[:1], 8, axis=0),
        free=np.repeat(HOSTS[:1], 8, axis=0),
        host_class=np.zeros(8, dtype=np.int64),
        eligible=np.ones((2, 1), dtype=np.bool_),
        demand=TYPES[[0, 2]],
        count=np.array([60, 60]),
        min_count=np.array([1, 1]),
        tenant=np.array([0, 1]),
        age=np.array([0, 0]),
        weight=np.array([1.0, 1.0]),
        held=np.zeros((2, 3), dtype=np.int64),
    )
    inputs = inputs_of(snapshot, 2.0, 0)
    shown = dataclasses.replace(inputs, parameters={**inputs.parameters, "steps": most})

    steps = decide(shown.encode()).document["details"].get("steps", [])

    games = [each for each in steps if each["kind"] == "game"]
    assert len(games) == (most > 0)
    assert len([each for each in steps if each["kind"] == "move"]) == most
    assert all(each["moves"] >= 8 and len(each["hosts"]) == most for each in games)
