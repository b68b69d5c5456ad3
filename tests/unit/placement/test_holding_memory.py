"""Properties of the memory of past holdings: decay, order, and what names and requests gain."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.fairness.levels import levels_in_steps, relative_weights
from placement.fairness.memory import (
    ONE,
    KeptMemory,
    count_past_as_held,
    memory_after_round,
    parts_of_level,
    past_part,
    pasts_of_nodes,
    pasts_of_tenants,
    power_of_half,
    tenants_waiting_for_room,
)
from placement.model.memory import PARTS, HoldingMemory
from placement.model.snapshot import Allocation, LeftOut, Reason, Snapshot, Spot
from placement.model.tenant_tree import TenantTree

HOUR_US = 3600 * 10**6
HALF_LIFE_S = 21_600
amounts = st.integers(0, 2**40)


def a_snapshot(held: list[list[int]], memory: HoldingMemory | None, pool: int = 100) -> Snapshot:
    """A cluster of one host with a request of each tenant."""
    tenants, width = len(held), len(held[0])
    return Snapshot(
        resources=tuple(f"r{n}" for n in range(width)),
        capacity=np.full((1, width), pool),
        free=np.full((1, width), pool),
        host_class=np.zeros(1, dtype=np.int64),
        eligible=np.ones((tenants, 1), dtype=np.bool_),
        demand=np.ones((tenants, width), dtype=np.int64),
        count=np.ones(tenants, dtype=np.int64),
        min_count=np.ones(tenants, dtype=np.int64),
        tenant=np.arange(tenants),
        age=np.zeros(tenants, dtype=np.int64),
        weight=np.ones(tenants),
        held=np.array(held, dtype=np.int64),
        memory=memory,
    )


def a_memory(*past: int, half_life_s: int = HALF_LIFE_S, horizon_s: int = 3600) -> HoldingMemory:
    return HoldingMemory(
        half_life_s=half_life_s, horizon_s=horizon_s, past=tuple((each * PARTS,) for each in past)
    )


# A year idle, ten and a hundred: whatever was held is forgotten, and nothing overflows.
@pytest.mark.parametrize("hours", [24 * 365, 24 * 3650, 24 * 36_500])
def test_a_year_idle_is_forgotten(hours: int) -> None:
    kept = KeptMemory(past=(2**50 * PARTS,), charged=(0,), at_us=0)

    assert kept.past_at(hours * HOUR_US, HALF_LIFE_S) == (0,)


@given(past=amounts, charged=amounts, back_us=st.integers(0, 10**15))
def test_a_clock_that_steps_back_decays_nothing(past: int, charged: int, back_us: int) -> None:
    kept = KeptMemory(past=(past,), charged=(charged,), at_us=10**15)

    assert kept.past_at(10**15 - back_us, HALF_LIFE_S) == (past,)


@given(time=st.integers(0, 10**12), half_life=st.integers(1, 10**9))
def test_powers_of_half_are_those_of_exact_arithmetic(time: int, half_life: int) -> None:
    power = power_of_half(time, half_life)

    # power / 2**64 <= 2**(-time/half_life) < (power + 2) / 2**64, by floats where they suffice
    assert abs(power / ONE - 2.0 ** -(time / half_life)) < 1e-12
    assert 0 <= power <= ONE
    assert power_of_half(time + half_life, half_life) == power >> 1


# Computed with 60 decimal places: no machine and no C library may give other integers.
@pytest.mark.parametrize(
    ("time", "half_life", "power"),
    [
        (0, 1, 2**64),
        (1, 2, 13043817825332782212),
        (1, 3, 14641190473997345813),
        (60, 21_600, 18411260720637835119),
    ],
)
def test_powers_of_half_are_the_same_everywhere(time: int, half_life: int, power: int) -> None:
    assert power_of_half(time, half_life) == power


@given(past=amounts, charged=amounts, first=st.integers(0, 10**13), second=st.integers(0, 10**13))
def test_a_commit_in_between_changes_nothing(
    past: int, charged: int, first: int, second: int
) -> None:
    kept = KeptMemory(past=(past,), charged=(charged,), at_us=0)
    again = KeptMemory(kept.past_at(first, HALF_LIFE_S), (charged,), first)

    at_once = kept.past_at(first + second, HALF_LIFE_S)[0]
    in_two = again.past_at(first + second, HALF_LIFE_S)[0]
    assert abs(at_once - in_two) <= 2


@given(past=amounts, charged=amounts, elapsed=st.integers(0, 10**14))
def test_a_past_lies_between_what_it_was_and_what_is_held(
    past: int, charged: int, elapsed: int
) -> None:
    now = KeptMemory((past,), (charged,), 0).past_at(elapsed, HALF_LIFE_S)[0]

    assert min(past, charged * PARTS) <= now <= max(past, charged * PARTS)


@given(
    held=st.lists(st.lists(st.integers(0, 1000), min_size=2, max_size=2), min_size=2, max_size=5),
    past=st.data(),
    horizon_s=st.integers(1, 10**6),
)
def test_the_order_is_that_of_the_stated_level(
    held: list[list[int]], past: st.DataObject, horizon_s: int
) -> None:
    """Counted holdings order tenants as d * past + (1 - d) * now does, but for whole units."""
    rows = past.draw(
        st.lists(
            st.tuples(st.integers(0, 1000), st.integers(0, 1000)),
            min_size=len(held),
            max_size=len(held),
        )
    )
    memory = HoldingMemory(
        half_life_s=HALF_LIFE_S,
        horizon_s=horizon_s,
        past=tuple(tuple(each * PARTS for each in row) for row in rows),
    )
    part = Fraction(past_part(memory), ONE)
    counted = count_past_as_held(a_snapshot(held, memory)).held.tolist()
    levels = parts_of_level(memory, np.array(held), np.array([100, 100])).sum(axis=0)

    for now, then, found, level in zip(held, rows, counted, levels.tolist(), strict=True):
        for resource in range(2):
            exact = (part * then[resource] + (1 - part) * now[resource]) / (1 - part)
            assert abs(found[resource] - exact) <= Fraction(1, 2)
            assert level[resource] == pytest.approx(float(exact * (1 - part)) / 100)


@given(
    held=st.lists(st.integers(0, 1000), min_size=3, max_size=3),
    past=st.lists(st.integers(0, 1000), min_size=3, max_size=3),
    weight=st.lists(st.floats(0.1, 10), min_size=3, max_size=3),
)
def test_the_order_is_transitive(held: list[int], past: list[int], weight: list[float]) -> None:
    """Each tenant has one number, in whole steps: no circle of three, in no order of asking."""
    counted = count_past_as_held(a_snapshot([[each] for each in held], a_memory(*past)))
    steps = levels_in_steps(counted.held[:, 0] / 100 / relative_weights(np.array(weight))).tolist()

    for a, b, c in permutations(range(3)):
        if steps[a] <= steps[b] <= steps[c]:
            assert steps[a] <= steps[c]
        if steps[a] == steps[b] == steps[c]:
            assert steps[a] == steps[c]


@given(own=st.lists(amounts, min_size=2, max_size=6), whole=amounts)
def test_a_second_name_in_a_group_gains_nothing(own: list[int], whole: int) -> None:
    """The group's memory stays, and two names carry at least what the one carried."""
    before, after = a_group(len(own)), a_group(len(own) + 1)
    kept = [None, (whole,), *((each,) for each in own)]
    memories = [None if each is None else KeptMemory(each, (0,), 0) for each in kept]

    one = shared(before, memories)
    two = shared(after, [*memories, None])

    assert sum(one) == sum(two) == whole
    assert two[0] + two[-1] >= one[0] - len(own)  # rounded to whole parts


@given(own=st.lists(amounts, min_size=2, max_size=6), whole=amounts)
def test_a_name_made_again_leaves_the_group_its_memory(own: list[int], whole: int) -> None:
    """A deleted tenant's part goes to those that stay; its new name begins at their mean."""
    tree = a_group(len(own))
    rest = [KeptMemory((each,), (0,), 0) for each in own[:-1]]

    again = shared(tree, [None, KeptMemory((whole,), (0,), 0), *rest, None])

    assert sum(again) == whole


def test_a_tenant_that_moves_leaves_its_memory_with_the_group() -> None:
    """Two groups of two; a tenant of the first goes to the second."""
    before = TenantTree(parent=(-1, 0, 0, 1, 1, 2), weight=np.ones(6), leaf=(3, 4, 5))
    after = dataclasses.replace(before, parent=(-1, 0, 0, 1, 2, 2))
    kept = [None, *(KeptMemory((each,), (0,), 0) for each in (90, 10, 60, 30, 10))]

    assert shared(before, kept) == [60, 30, 10]
    assert shared(after, kept) == [90, 7, 3]


@given(held=st.lists(st.integers(0, 50), min_size=2, max_size=4), more=st.integers(0, 50))
def test_who_gets_more_than_it_needs_has_no_lower_level_later(held: list[int], more: int) -> None:
    """Misreporting: more VMs, placed while others wait, never lower a later level."""
    tree = TenantTree.flat(np.ones(len(held)))
    waits = np.ones(len(held), dtype=np.bool_)
    pasts = []
    for first in (held[0], held[0] + more):
        holds = np.array([[first], *([each] for each in held[1:])])
        nothing = [None] * len(tree.parent)
        start = pasts_of_nodes(tree, nothing, 0, HALF_LIFE_S, 1)
        kept = memory_after_round(tree, nothing, start, held=holds, waits=waits, now_us=0)
        pasts.append(pasts_of_tenants(tree, pasts_of_nodes(tree, kept, HOUR_US, HALF_LIFE_S, 1)))

    assert pasts[1][0] >= pasts[0][0]
    assert pasts[1][1:] == pasts[0][1:]


@pytest.mark.parametrize(
    ("reason", "counts"),
    [
        (Reason.NO_ROOM, True),
        (Reason.HELD_BACK, True),
        (Reason.NO_HOST_LARGE_ENOUGH, False),
        (Reason.NO_ELIGIBLE_HOST, False),
        (Reason.QUOTA, False),
        (Reason.ANTI_AFFINITY, False),
    ],
)
def test_only_waiting_for_room_charges_others(reason: Reason, counts: bool) -> None:
    """Misreporting: a request that nobody could place charges nobody."""
    snapshot = a_snapshot([[5], [5]], None)
    left = (LeftOut(request=0, count=1, reason=reason),)
    allocation = Allocation(placed=np.zeros((0, 3), dtype=np.int64), left_out=left)

    waits = tenants_waiting_for_room(snapshot, allocation)

    assert waits.tolist() == [counts, False]
    tree = TenantTree.flat(np.ones(2))
    pasts = [(0,)] * 3
    new = memory_after_round(tree, [None] * 3, pasts, held=snapshot.held, waits=waits, now_us=0)
    charged = [each.charged for each in new if each is not None]
    assert charged == [(0,), (5,) if counts else (0,)]  # the one that waits is not charged for it


def test_waiting_for_spot_vms_charges_nobody() -> None:
    none = np.zeros(0, dtype=np.int64)
    spot = Spot(
        asks=np.array([True, False]),
        host=none,
        tenant=none,
        amounts=np.zeros((0, 1), dtype=np.int64),
        may_end=np.zeros(0, dtype=np.bool_),
    )
    snapshot = dataclasses.replace(a_snapshot([[5], [5]], None), spot=spot)
    left = tuple(LeftOut(request=each, count=1, reason=Reason.NO_ROOM) for each in range(2))
    allocation = Allocation(placed=np.zeros((0, 3), dtype=np.int64), left_out=left)

    assert tenants_waiting_for_room(snapshot, allocation).tolist() == [False, True]


def test_a_group_is_charged_while_others_outside_it_wait() -> None:
    tree = a_group(2)
    held = np.array([[3], [4]])
    waits = np.array([True, False])
    new = memory_after_round(tree, [None] * 4, [(0,)] * 4, held=held, waits=waits, now_us=7)

    assert [None if each is None else each.charged for each in new] == [None, (0,), (0,), (4,)]


def test_resources_of_very_different_units_count_alike() -> None:
    """A GPU of four, and memory in bytes: half of the pool is half, and nothing overflows."""
    memory = HoldingMemory(
        half_life_s=3600, horizon_s=3600, past=((2 * PARTS, 0), (0, 2**59 * PARTS))
    )
    snapshot = dataclasses.replace(
        a_snapshot([[0, 0], [0, 0]], memory),
        capacity=np.array([[4, 2**60]]),
        free=np.array([[4, 2**60]]),
    )

    assert count_past_as_held(snapshot).held.tolist() == [[2, 0], [0, 2**59]]


@given(past=st.integers(0, 2**200))
def test_no_past_exceeds_what_a_snapshot_may_hold(past: int) -> None:
    counted = count_past_as_held(a_snapshot([[2**40], [0]], a_memory(past, past, horizon_s=1)))

    assert (counted.held >= 0).all()


def a_group(tenants: int) -> TenantTree:
    """One group below the root, with some tenants."""
    return TenantTree(
        parent=(-1, 0, *([1] * tenants)),
        weight=np.ones(tenants + 2),
        leaf=tuple(range(2, tenants + 2)),
    )


def shared(tree: TenantTree, kept: list[KeptMemory | None]) -> list[int]:
    """Return the past of each tenant within its group's, at time 0."""
    return [past for (past,) in pasts_of_tenants(tree, pasts_of_nodes(tree, kept, 0, 1, 1))]
