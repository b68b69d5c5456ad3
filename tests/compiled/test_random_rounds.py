"""Loops of policies compiled against the same loops as plain Python."""

from __future__ import annotations

import numpy as np
import pytest

from placement import Budget, policy_by_name
from placement.fuga import exchange
from placement.model.vm_kinds import vm_kinds
from placement.packing.compiled_loops import LoopForm, loops
from placement.packing.draft import Draft
from tests.builders import a_snapshot
from tests.compiled.plain_loops import plain_loops

ROUNDS = 1_000
BLOCKS = 10


@pytest.fixture(autouse=True)
def _compiled():
    missing = [each for each in loops() if each.form is not LoopForm.COMPILED]
    if missing:
        pytest.skip(f"nothing to compare: {missing[0].name} runs as {missing[0].form.value}")


def random_round(seed):
    """Return a snapshot of few hosts, of which tenants want more than there is."""
    rng = np.random.default_rng(seed)
    resources, hosts, requests, tenants = rng.integers((1, 1, 1, 1), (4, 8, 10, 5)).tolist()
    scale = rng.choice([1, 10**12])
    capacity = rng.integers(2, 20, (hosts, resources))
    used = capacity * rng.choice([0, 0, 0.5], (hosts, 1))
    count = rng.integers(1, 9, requests)
    return a_snapshot(
        capacity=capacity * scale,
        free=(capacity - used.astype(np.int64)) * scale,
        demand=rng.integers(0, 5, (requests, resources)) * scale,
        count=count.tolist(),
        tenant=rng.integers(0, tenants, requests).tolist(),
        weight=rng.choice([1.0, 2.0, 0.5, 0.3], tenants).tolist(),
        min_count=np.where(rng.random(requests) < 0.2, np.minimum(count, 3), 1).tolist(),
        host_class=(host_class := rng.integers(0, 2, hosts)).tolist(),
        eligible=rng.random((requests, int(host_class.max()) + 1)) < 0.8,
    )


def outcome(policy, snapshot, units):
    """Return all that a round decides and is charged."""
    budget = Budget(units)
    allocation = policy_by_name(policy, {}).place(snapshot, np.random.default_rng(0), budget)
    return allocation.placed.tolist(), allocation.left_out, allocation.details, budget


@pytest.mark.parametrize("block", range(BLOCKS))
def test_random_rounds_are_the_same_compiled_and_as_plain_python(block):
    for seed in range(block, ROUNDS, BLOCKS):
        snapshot, units = random_round(seed), (None, 40)[seed % 2]
        for policy in ("fuga", "best_fit_drfh"):
            compiled = outcome(policy, snapshot, units)
            with plain_loops():
                plain = outcome(policy, snapshot, units)
            assert compiled == plain, seed


def exchanges(snapshot, seed, units):
    """Return the exchanges on hosts that were filled at random, and what they cost."""
    rng, draft, budget = np.random.default_rng(seed), Draft(snapshot), Budget(units)
    kinds = vm_kinds(snapshot)
    for host in rng.permutation(len(snapshot.free)).tolist():
        for request in rng.permutation(len(snapshot.count)).tolist():
            demand, wanted = snapshot.demand[request], int(draft.remaining[request])
            requested = demand > 0
            if not requested.any() or not snapshot.eligible[request, snapshot.host_class[host]]:
                continue
            if count := min(int((draft.room[host][requested] // demand[requested]).min()), wanted):
                draft.put(request, host, int(rng.integers(1, count + 1)))
    made = exchange.exchange_unfair(draft, kinds, budget)
    return made, draft.rows.tolist(), draft.held.tolist(), budget


def test_random_exchanges_are_the_same_compiled_and_as_plain_python():
    made = 0
    for seed in range(ROUNDS):
        snapshot, units = random_round(seed), (None, seed % 40)[seed % 2]
        compiled = exchanges(snapshot, seed, units)
        with plain_loops():
            plain = exchanges(snapshot, seed, units)
        assert compiled == plain, seed
        made += len(compiled[0][0])

    assert made > ROUNDS // 4
