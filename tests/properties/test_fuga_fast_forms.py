"""Fast forms against plain ones: fair targets, fair exchanges, combinations."""

from __future__ import annotations

import copy

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.placement.clusters import half_filled_round
from placement import Budget, policy_by_name
from placement.fairness.targets import fair_targets
from placement.fuga.combinations.combination_reader import CombinationReader
from placement.fuga.combinations.tables import ReachableTables
from placement.fuga.combinations.top_combinations import top_combinations
from placement.fuga.exchange import exchange_unfair
from placement.model.vm_kinds import hosts_for, vm_kinds, vms_that_fit
from placement.packing.draft import Draft
from tests.plain.array_exchange import array_exchange
from tests.plain.plain_exchange import plain_exchange
from tests.plain.plain_targets import plain_targets
from tests.properties.strategies import contended_snapshots, snapshots
from tests.properties.subjects import about, contains


@about("a tenant who is stopped short of what it asks for")
@settings(max_examples=200)
@given(snapshot=snapshots(max_requests=8, max_count=12) | contended_snapshots())
def test_fair_targets_by_events_are_those_step_by_step(snapshot):
    fast, plain = fair_targets(snapshot), plain_targets(snapshot)

    contains(((fast > 0) & (fast < snapshot.count)).any())
    amounts = fast[:, None] * snapshot.demand, plain[:, None] * snapshot.demand
    np.testing.assert_allclose(
        amounts[0], amounts[1], rtol=1e-6, atol=1e-6 * snapshot.pool.max(initial=1)
    )


def filled_at_random(snapshot, seed):
    """Return a draft full of VMs that were placed without regard to anybody."""
    rng, draft, kinds = np.random.default_rng(seed), Draft(snapshot), vm_kinds(snapshot)
    for host in rng.permutation(len(snapshot.free)).tolist():
        for request in rng.permutation(len(snapshot.count)).tolist():
            if hosts_for(snapshot, kinds)[kinds.of_request[request], host]:
                fits = int(vms_that_fit(draft.room[[host]], snapshot.demand[request])[0])
                if count := min(fits, int(draft.remaining[request])):
                    draft.put(request, host, int(rng.integers(1, count + 1)))
    return draft


@about("an exchange")
@settings(max_examples=150)
@given(snapshot=contended_snapshots(max_requests=9), seed=st.integers(0, 1000))
def test_exchanges_found_step_by_step_are_those_found_anew_each_time(snapshot, seed):
    fast, plain = filled_at_random(snapshot, seed), filled_at_random(snapshot, seed)
    kinds = vm_kinds(snapshot)

    made = exchange_unfair(fast, kinds, Budget())

    contains(made[0])
    assert made == plain_exchange(plain, kinds, Budget())
    assert fast.rows.tolist() == plain.rows.tolist()


@about("an exchange")
@settings(max_examples=100)
@given(
    snapshot=contended_snapshots(max_requests=9),
    seed=st.integers(0, 1000),
    units=st.none() | st.integers(0, 40),
)
def test_a_look_at_who_is_richest_costs_what_a_look_at_everybody_does(snapshot, seed, units):
    fast, arrays = filled_at_random(snapshot, seed), filled_at_random(snapshot, seed)
    spent, spent_by_arrays = Budget(units), Budget(units)
    kinds = vm_kinds(snapshot)

    made = exchange_unfair(fast, kinds, spent)

    contains(made[0])
    assert made == array_exchange(arrays, kinds, spent_by_arrays)
    assert spent == spent_by_arrays
    for name in ("rows", "free", "room", "held", "remaining"):
        assert getattr(fast, name).tolist() == getattr(arrays, name).tolist()


def test_exchanges_of_a_half_filled_cluster_are_those_of_a_look_at_everybody(monkeypatch):
    snapshot, looks = half_filled_round(60), []

    def both(draft, kinds, budget):
        arrays, spent = copy.deepcopy(draft), copy.copy(budget)
        made = exchange_unfair(draft, kinds, budget)
        assert made == array_exchange(arrays, kinds, spent)
        assert (draft.rows.tolist(), budget) == (arrays.rows.tolist(), spent)
        looks.append(len(made[0]))
        return made

    monkeypatch.setattr("placement.fuga.policy.exchange_unfair", both)
    policy_by_name("fuga", {}).place(snapshot, np.random.default_rng(0), Budget())

    assert sum(looks) > 5


@st.composite
def rooms_and_kinds(draw):
    """Return a room, kinds of two to four resources of which two rank, and limits."""
    resources, kinds = draw(st.integers(2, 4)), draw(st.integers(1, 5))
    amounts = st.integers(0, 5)
    demand = np.array([[draw(amounts) for _ in range(resources)] for _ in range(kinds)])
    free = np.array([draw(st.integers(1, 40)) for _ in range(resources)])
    amount_of_room = st.integers(0, 40) | st.integers(20, 40)
    room = np.minimum(free, [draw(amount_of_room) for _ in range(resources)])
    return free, room, demand, np.array([draw(st.integers(0, 12)) for _ in range(kinds)])


def all_combinations(room, demand, most):
    """Return every combination that fits, but the empty one, shape (K, T)."""
    rows = np.stack(np.meshgrid(*(np.arange(n + 1) for n in most), indexing="ij"), axis=-1)
    rows = rows.reshape(-1, len(most))
    return rows[(rows @ demand <= room).all(axis=1) & rows.any(axis=1)]


@about("more combinations than are asked for")
@settings(max_examples=400)
@given(
    case=rooms_and_kinds(),
    eta=st.integers(1, 6),
    pool=st.integers(6, 64),
    units=st.none() | st.none() | st.integers(0, 300),
    seed=st.integers(0, 1000),
)
def test_combinations_read_off_a_table_are_the_best_of_all_that_fit(case, eta, pool, units, seed):
    free, room, demand, limits = case
    tables = ReachableTables(demand, np.array([0, 1]), room)
    requested = demand > 0
    alone = np.where(requested, room // np.maximum(demand, 1), 99).min(axis=1)
    most = np.where(requested.any(axis=1), np.minimum(alone, limits), 0)
    table = tables.table(np.where(alone > 0, limits, 1), np.maximum(alone, 1), Budget())
    rng, budget = np.random.default_rng(seed), Budget(units)
    reader = CombinationReader(
        tables, table, free=free, room=room, maximum=most, rng=rng, budget=budget
    )
    # Without a kind there is nothing to read.
    found, cut = reader.best_combinations(eta, pool) if most.any() else ([], False)

    def scores(rows):
        """Return the minimum utilization of combinations, shape (K,)."""
        return ((rows @ demand)[:, :2] / free[:2]).min(axis=1)

    every = all_combinations(room, demand, most)
    contains(len(every) > eta)
    read = np.array(found, dtype=np.int64).reshape(-1, len(most))
    assert (read <= most).all()
    assert (read @ demand <= room).all()
    assert read.any(axis=1).all()
    assert len(set(found)) == len(found) <= max(pool, eta)
    assert (np.diff(scores(read)) <= 0).all()
    assert units is None or budget.spent <= units
    assert not cut or budget.spent >= (2_000 if units is None else units)
    if not cut:
        best = np.sort(scores(every))[::-1]
        assert scores(read)[:eta].tolist() == best[:eta].tolist()
        if len(best) > eta:  # all that are better than the last of them are there
            assert (scores(read) > best[eta - 1]).sum() == (best > best[eta - 1]).sum()


@given(case=rooms_and_kinds(), eta=st.integers(1, 6), seed=st.integers(0, 1000))
def test_the_same_seed_reads_the_same_combinations(case, eta, seed):
    free, room, demand, limits = case
    body = {"free": free, "room": room, "demand": demand, "maximum": limits, "eta": eta}
    first, again = (
        top_combinations(
            **body, ranking=np.array([0, 1]), rng=np.random.default_rng(seed), budget=Budget()
        )
        for _ in range(2)
    )

    assert first.counts.tolist() == again.counts.tolist()
