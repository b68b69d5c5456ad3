"""Answers of rounds before change no decision, and nothing that a budget is charged."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement import Budget, policy_by_name
from placement.fuga.combinations.combination_cache import KEPT, CombinationCache, CombinationFinder
from placement.model.vm_kinds import vms_that_fit
from tests.properties.strategies import snapshots


@pytest.fixture(autouse=True)
def nothing_known():
    KEPT.clear()


def decided(snapshot, units, seed):
    budget = Budget(units)
    allocation = policy_by_name("fuga", {}).place(snapshot, np.random.default_rng(seed), budget)
    return allocation.placed.tolist(), allocation.details, allocation.work, allocation.cut


@given(
    snapshot=snapshots(min_requests=1),
    other=snapshots(min_requests=1),
    units=st.none() | st.integers(0, 400),
    seed=st.integers(0, 100),
)
def test_a_round_is_decided_alike_whatever_was_decided_before(snapshot, other, units, seed):
    KEPT.clear()
    first = decided(snapshot, units, seed)

    decided(other, None, seed)
    decided(snapshot, None, seed + 1)

    assert decided(snapshot, units, seed) == first


DEMAND = np.array([[2, 4, 10], [1, 1, 5], [4, 8, 0], [1, 4, 20], [3, 3, 3]])


@given(
    room=st.tuples(st.integers(1, 16), st.integers(1, 48), st.integers(0, 100)),
    most=st.lists(st.integers(0, 4), min_size=5, max_size=5),
    order=st.permutations(range(5)),
    ranking=st.sampled_from([[0], [0, 1], [0, 1, 2]]),
)
def test_a_question_is_the_same_beside_other_kinds_and_in_any_order(room, most, order, ranking):
    room, most, order = np.array(room), np.array(most), np.array(order)
    fits = np.array([int(vms_that_fit(room[None], each)[0]) for each in DEMAND])
    most = np.minimum(most, fits)
    if 0 in room[ranking] or not most.any():
        return
    alone = np.flatnonzero(most)
    kept, found = CombinationCache(), []
    for kinds in (np.arange(5), order, alone):
        questions = CombinationFinder(
            DEMAND[kinds], np.array(ranking), 3, room, Budget(), kept=kept
        )
        found.append(
            questions.find(free=room, room=room, fits=fits[kinds], maximum=most[kinds], pool=8)
        )
    straight, mixed, few = found

    assert len(kept) == 1
    assert mixed.counts[:, np.argsort(order)].tolist() == straight.counts.tolist()
    assert few.counts.tolist() == straight.counts[:, alone].tolist()
    assert mixed.score.tolist() == few.score.tolist() == straight.score.tolist()


def test_the_oldest_answers_are_forgotten_by_how_large_they_are():
    kept, budget = CombinationCache(maximum=10_000), Budget()
    for kinds in (2, 40):
        demand = np.array([[1 + kind, 1, 1] for kind in range(kinds)])
        questions = CombinationFinder(
            demand, np.array([0, 1]), 3, np.array([99, 99, 99]), budget, kept=kept
        )
        for cores in range(60, 90):
            room = np.array([cores, 99, 99])
            fits = cores // demand[:, 0]
            questions.find(free=room, room=room, fits=fits, maximum=np.minimum(fits, 2), pool=8)
        if kinds == 2:
            assert 10 < len(kept) < 30

    assert len(kept) < 8


def test_an_answer_that_a_budget_cut_is_asked_for_again():
    room, kept = np.array([16, 48, 100]), CombinationCache()
    fits = np.array([int(vms_that_fit(room[None], each)[0]) for each in DEMAND])
    body = {"free": room, "room": room, "fits": fits, "maximum": fits, "pool": 8}

    def answer(units):
        return CombinationFinder(DEMAND, np.array([0, 1]), 3, room, Budget(units), kept=kept).find(
            **body
        )

    assert answer(3).cut
    assert len(kept) == 0
    whole = answer(None)

    assert not whole.cut
    assert answer(3).cut


def test_every_budget_is_cut_where_it_is_with_nothing_kept():
    room, kept = np.array([16, 48, 100]), CombinationCache()
    fits = np.array([int(vms_that_fit(room[None], each)[0]) for each in DEMAND])

    def answer(units, known):
        budget = Budget(units)
        found = CombinationFinder(DEMAND, np.array([0, 1]), 3, room, budget, kept=known).find(
            free=room, room=room, fits=fits, maximum=fits, pool=8
        )
        return found.counts.tolist(), found.score.tolist(), found.cut, budget.spent

    *_, spent = answer(None, kept)

    for units in range(spent + 2):
        assert answer(units, kept) == answer(units, CombinationCache())
    assert len(kept) == 1
