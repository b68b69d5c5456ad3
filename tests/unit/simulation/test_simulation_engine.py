"""Requests arrive, wait, run and leave; hosts join, fail and leave; nothing is lost."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from placement import check_allocation
from simulation.slots.engine import Engine, SlotResult
from simulation.topology.hosts import HostEvent, HostEventKind
from tests.simulations import a_chunk, an_engine, random_chunks


def placed(passed: SlotResult) -> list[tuple[int, int, int]]:
    """Return request, host and count of what a slot placed."""
    if passed.round is None:
        return []
    vms = passed.round.placed
    return sorted(zip(vms.request.tolist(), vms.host.tolist(), vms.count.tolist(), strict=True))


def test_a_request_waits_for_its_slot_runs_its_life_and_leaves() -> None:
    engine = an_engine(capacity=[(4, 4096)])

    first = engine.advance_to(1, [a_chunk({"arrival_s": 10, "lifetime_s": 90, "count": 4})])
    second = engine.advance_to(2, [a_chunk({"arrival_s": 70, "count": 2})])
    third = engine.advance_to(3, [])

    assert placed(first) == [(0, 0, 4)]
    assert first.round is not None
    assert first.round.wait_s.tolist() == [50.0]
    assert placed(second) == []
    assert second.round is not None
    assert [left.reason.value for left in second.round.allocation.left_out] == ["no_room"]
    # From 60 s to 150 s: gone at the start of the slot at 180 s.
    assert [vms.count.tolist() for vms in third.ended] == [[4]]
    assert placed(third) == [(1, 0, 2)]


def test_a_life_that_ends_at_the_start_of_a_slot_makes_room_in_it() -> None:
    engine = an_engine(capacity=[(1, 1024)])
    engine.advance_to(0, [a_chunk({"lifetime_s": 60})])

    passed = engine.advance_to(1, [a_chunk({"arrival_s": 60})])

    assert placed(passed) == [(1, 0, 1)]


def test_a_life_of_nothing_ends_with_its_slot() -> None:
    engine = an_engine(capacity=[(1, 1024)])
    engine.advance_to(0, [a_chunk({"lifetime_s": 0})])

    passed = engine.advance_to(1, [])

    assert [int(vms.count.sum()) for vms in passed.ended] == [1]
    assert engine.names.held.sum() == 0


def test_a_gang_is_placed_whole_or_waits() -> None:
    engine = an_engine(capacity=[(4, 4096)])
    engine.advance_to(0, [a_chunk({"count": 2, "lifetime_s": 60})])

    waits = engine.advance_to(0, [a_chunk({"count": 4, "min_count": 3})])
    whole = engine.advance_to(1, [])

    assert placed(waits) == []
    assert placed(whole) == [(1, 0, 4)]


def test_a_slot_in_which_nothing_changes_has_no_round() -> None:
    engine = an_engine(capacity=[(1, 1024)])
    engine.advance_to(0, [a_chunk({"count": 2})])

    decided = engine.advance_to(1, [])
    repeated = engine.advance_to(2, [])
    changed = engine.advance_to(3, [a_chunk({"arrival_s": 180})])

    assert decided.round is not None
    assert repeated.round is None
    assert changed.round is not None
    assert engine.waiting.age.tolist() == [4, 1]  # who waits gets older without a round, too


def test_vms_of_a_host_that_fails_wait_again_for_the_rest_of_their_lives() -> None:
    fails = HostEvent(at_s=90, host="h0", what=HostEventKind.FAIL)
    engine = an_engine(events=[fails])
    engine.advance_to(0, [a_chunk({"count": 3, "lifetime_s": 300})])

    passed = engine.advance_to(2, [])

    assert [vms.count.tolist() for vms in passed.lost] == [[3]]
    assert placed(passed) == [(0, 1, 3)]
    assert passed.round is not None
    assert passed.round.wait_s.tolist() == [30.0]
    assert passed.round.placed.end_s.tolist() == [120 + 210]
    assert passed.round.snapshot.pool.tolist() == [8, 8192]  # it stays in the pool


def test_vms_that_ended_before_their_host_failed_are_not_lost() -> None:
    fails = HostEvent(at_s=100, host="h0", what=HostEventKind.FAIL)
    engine = an_engine(events=[fails])
    engine.advance_to(0, [a_chunk({"lifetime_s": 95}, {"lifetime_s": 110})])

    passed = engine.advance_to(2, [])

    assert [vms.request.tolist() for vms in passed.lost] == [[1]]
    assert sum(int(vms.count.sum()) for vms in passed.ended) == 1


def test_a_host_that_leaves_is_out_of_the_pool_and_one_that_joins_is_in_it() -> None:
    events = [
        HostEvent(at_s=30, host="h0", what=HostEventKind.LEAVE),
        HostEvent(at_s=90, host="h1", what=HostEventKind.JOIN),
    ]
    engine = an_engine(
        capacity=[(1, 1024), (2, 2048), (4, 4096)], events=events, absent=frozenset({"h1"})
    )
    pools = []
    for slot in range(3):
        passed = engine.advance_to(slot, [a_chunk({"arrival_s": 60 * slot})])
        assert passed.round is not None
        pools.append(int(passed.round.snapshot.pool[0]))

    assert pools == [5, 4, 6]


def test_who_waits_too_long_gives_up() -> None:
    engine = an_engine(capacity=[(1, 1024)], wait_at_most_s=90.0)
    engine.advance_to(0, [a_chunk({"count": 3})])
    engine.advance_to(1, [])

    passed = engine.advance_to(2, [])

    assert passed.given_up.count.tolist() == [2]
    assert len(engine.waiting) == 0


def test_a_policy_that_fails_is_replaced_for_the_round() -> None:
    engine = an_engine()
    engine.decider.policy = _Broken()

    passed = engine.advance_to(0, [a_chunk({})])

    assert passed.round is not None
    assert passed.round.fallback_reason == "RuntimeError: broken"
    assert placed(passed) == [(0, 0, 1)]


class _Broken:
    def place(self, *_: object) -> None:
        raise RuntimeError("broken")


@pytest.mark.parametrize("policy", ["fuga", "best_fit_drfh", "slots"])
def test_nothing_is_lost_or_placed_twice(policy: str) -> None:
    length_s, slots = 60.0, 40
    events = [
        HostEvent(at_s=500, host="h1", what=HostEventKind.FAIL),
        HostEvent(at_s=900, host="h1", what=HostEventKind.RETURN),
        HostEvent(at_s=1300, host="h2", what=HostEventKind.LEAVE),
        HostEvent(at_s=1500, host="h0", what=HostEventKind.DRAIN),
    ]
    engine = an_engine(capacity=[(8, 8192), (4, 6144), (6, 4096)], policy=policy, events=events)
    requested = ended = given = lost = 0
    running: Counter[int] = Counter()
    for slot, chunk in enumerate(random_chunks(7, slots, length_s)):
        passed = engine.advance_to(slot, [chunk] if len(chunk) else [])

        requested += int(chunk.count.sum())
        for vms in passed.ended:
            ended += int(vms.count.sum())
            running.subtract(dict(_by_request(vms)))
        for vms in passed.lost:
            lost += int(vms.count.sum())
            running.subtract(dict(_by_request(vms)))
        if passed.round is not None:
            given += int(passed.round.placed.count.sum())
            running.update(_by_request(passed.round.placed))
            check_allocation(passed.round.snapshot, passed.round.allocation)
        waiting = int(engine.waiting.count.sum())
        assert requested + lost == given + waiting
        assert given == ended + lost + int(engine.names.vms.sum())
        assert min(running.values(), default=0) >= 0
        _check_sums(engine)
    assert ended
    assert lost


def _by_request(vms: object) -> Counter[int]:
    found: Counter[int] = Counter()
    for request, count in zip(vms.request.tolist(), vms.count.tolist(), strict=True):  # type: ignore[attr-defined]
        found[request] += count
    return found


def _check_sums(engine: Engine) -> None:
    """What runs, added up again, is what hosts have committed and tenants hold."""
    committed = np.zeros_like(engine.cluster.committed)
    held = np.zeros_like(engine.names.held)
    for vms in engine.running.all_rows():
        amounts = vms.count[:, None] * engine.names.demand[vms.kind]
        np.add.at(committed, vms.host, amounts)
        np.add.at(held, vms.tenant, amounts)
    np.testing.assert_array_equal(committed, engine.cluster.committed)
    np.testing.assert_array_equal(held, engine.names.held)
    assert (committed >= 0).all()
    assert (committed <= engine.cluster.capacity).all()


def test_the_same_seed_gives_the_same_and_another_one_may_not() -> None:
    def decided(seed: int) -> list[list[tuple[int, int, int]]]:
        engine = an_engine(capacity=[(8, 8192)] * 4, policy="random_fit", seed=seed)
        return [placed(engine.advance_to(s, [c])) for s, c in enumerate(random_chunks(3, 10, 60.0))]

    assert decided(0) == decided(0)
    assert decided(0) != decided(1)
