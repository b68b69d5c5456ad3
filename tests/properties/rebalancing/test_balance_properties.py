"""Balancing and packing end, each move pays, and no rule is broken on the way."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.rebalancing.balance import BALANCE_OBJECTIVE, balance
from placement.rebalancing.check import check_plan
from placement.rebalancing.local_search.host_costs import Emptiness, LoadImbalance
from placement.rebalancing.model import MovePlan, RebalanceLimits
from placement.rebalancing.pack import PACK_OBJECTIVE, pack
from tests.properties.rebalancing.uneven_clusters import may_move, moved, uneven_clusters
from tests.properties.subjects import about, contains

LIMITS = st.builds(
    RebalanceLimits,
    per_source=st.integers(1, 2),
    per_destination=st.integers(1, 2),
    at_once=st.integers(1, 4),
)
PRICES = st.sampled_from([0.0, 1e-4, 1e-2])
SKEWNESS = st.sampled_from([0.0, 0.02, 1.0])


def cost_of(running, skewness=0.0):
    """Sum up the private terms in plain numbers."""
    capacity, room = running.snapshot.capacity.tolist(), running.room.tolist()
    totals = [sum(row[j] for row in capacity) for j in (0, 1)]
    left = [sum(row[j] for row in room) for j in (0, 1)]
    target = [1 - left[j] / totals[j] if totals[j] else 0.0 for j in (0, 1)]
    cost = 0.0
    for has, free in zip(capacity, room, strict=True):
        there = [j for j in (0, 1) if has[j] > 0]
        use = {j: 1 - free[j] / has[j] for j in there}
        cost += sum((use[j] - target[j]) ** 2 for j in there)
        mean = sum(use.values()) / len(use) if use else 0.0
        if mean > 0:
            cost += skewness * math.sqrt(sum((use[j] / mean - 1) ** 2 for j in there))
    return cost


def emptiness_of(running):
    """Sum up hosts in use, less the squares of how full they are."""
    cost = 0.0
    for has, free in zip(running.snapshot.capacity.tolist(), running.room.tolist(), strict=True):
        there = [j for j in (0, 1) if has[j] > 0]
        fill = sum(1 - free[j] / has[j] for j in there) / max(1, len(there))
        in_use = any(h > f for h, f in zip(has, free, strict=True))
        cost += in_use * (1 - min(fill, 1.0) ** 2)
    return cost


def price_of(worth, running, vm):
    return worth.price_per_gib * running.transfer_mib[vm] / 1024 + worth.least_gain


@about("moves that balance", least=0.3)
@given(running=uneven_clusters(), price=PRICES, skewness=SKEWNESS, limits=LIMITS)
def test_every_move_raises_the_potential_by_at_least_its_price(running, price, skewness, limits):
    worth = dataclasses.replace(BALANCE_OBJECTIVE, price_per_gib=price)

    plan = balance(running, worth, skewness=skewness, limits=limits)

    contains(plan.moves)
    check_plan(running, plan)
    state = running
    for move, gain in zip(plan.moves, plan.details["gains"], strict=True):
        assert may_move(state, move.vm, move.destination)
        after = moved(state, move.vm, move.destination)
        rise = cost_of(state, skewness) - cost_of(after, skewness)
        assert rise == pytest.approx(gain, abs=1e-9)
        assert rise >= price_of(worth, running, move.vm) - 1e-9
        state = after
    assert plan.details["potential"] == pytest.approx(
        [-cost_of(running, skewness), -cost_of(state, skewness)], abs=1e-9
    )


@about("moves that balance", least=0.3)
@given(running=uneven_clusters(), price=PRICES, skewness=SKEWNESS)
def test_a_second_plan_right_after_the_first_is_empty(running, price, skewness):
    worth = dataclasses.replace(BALANCE_OBJECTIVE, price_per_gib=price)

    plan = balance(running, worth, skewness=skewness)
    second = balance(running.after_moves(plan.moves), worth, skewness=skewness)

    contains(plan.moves)
    assert not second.moves
    assert second.details["outcome"] == "no_useful_move"
    assert plan.details["outcome"] == ("settled" if plan.moves else "no_useful_move")


@about("moves that balance", least=0.3)
@given(running=uneven_clusters(max_hosts=4, max_vms=8), price=PRICES, skewness=SKEWNESS)
def test_afterwards_no_move_of_a_vm_that_did_not_move_pays(running, price, skewness):
    worth = dataclasses.replace(BALANCE_OBJECTIVE, price_per_gib=price)

    plan = balance(running, worth, skewness=skewness)
    after = running.after_moves(plan.moves)

    contains(plan.moves)
    before = cost_of(after, skewness)
    for vm in range(len(after)):
        for host in range(len(after.receives)):
            if may_move(after, vm, host):
                rise = before - cost_of(moved(after, vm, host), skewness)
                assert rise < price_of(worth, running, vm) + 1e-9


@about("moves that balance", least=0.3)
@given(running=uneven_clusters(), skewness=SKEWNESS)
def test_balancing_ends_even_if_nobody_rests(running, skewness):
    first = balance(running, skewness=skewness)
    most = (cost_of(running, skewness) + len(running.receives)) / BALANCE_OBJECTIVE.least_gain

    state, made, plan = running, 0, first
    while plan.moves:
        made += len(plan.moves)
        assert made <= most
        state = dataclasses.replace(state.after_moves(plan.moves), rests=running.rests)
        plan = balance(state, skewness=skewness)

    contains(first.moves)
    # What settled is no worse than the first plan left it.
    assert cost_of(state, skewness) <= -first.details["potential"][1] + 1e-9


@pytest.mark.parametrize("ruled", [False, True])
@about("moves that balance", least=0.3)
@settings(max_examples=80)
@given(data=st.data(), price=PRICES, skewness=SKEWNESS)
def test_without_second_thoughts_it_is_the_steepest_response_each_time(
    ruled, data, price, skewness
):
    running = data.draw(uneven_clusters(max_hosts=5, max_vms=10, ruled=ruled))
    worth = dataclasses.replace(BALANCE_OBJECTIVE, price_per_gib=price)
    expected = steepest(running, worth, skewness)

    plan = balance(
        running, worth, skewness=skewness, reconsiderations=0, limits=RebalanceLimits(at_once=1)
    )

    contains(plan.moves)
    assert [(move.vm, move.destination) for move in plan.moves] == expected


def steepest(running, worth, skewness):
    """Weigh all VMs on all hosts again before each move; equals as `BetterResponses` says."""
    term = LoadImbalance.of_pool(running, np.array([0, 1]), skewness=skewness)
    capacity, state, made = running.snapshot.capacity, running, []
    while True:
        cost = term.cost(capacity - state.room, capacity)
        best = (worth.least_gain, ())
        line = sorted(
            set(range(len(running))) - {vm for vm, _ in made},
            key=lambda vm: (
                state.host[vm],
                state.kind[vm],
                state.transfer_mib[vm],
                vm if any(vm in each.vms for each in (*state.groups, *state.spreads)) else -1,
                vm,
            ),
        )
        for vm in line:
            demand, source = state.demand[state.kind[vm]], state.host[vm]
            price = state.transfer_mib[vm] * (worth.price_per_gib / 1024)
            without = capacity[source] - state.room[source] - demand
            leaving = (cost[source] - term.cost(without, capacity[source])) - price
            # Hosts are compared before what leaving gains is added: that would round small
            # differences of theirs away.
            entering = [
                (cost[host] - term.cost(capacity[host] - state.room[host] + demand, capacity[host]))
                if may_move(state, vm, host)
                else -math.inf
                for host in range(len(state.receives))
            ]
            host = int(np.argmax(entering))
            net = entering[host] + leaving
            if net > best[0] or (net == best[0] and not best[1]):
                best = (net, (vm, host))
        if not best[1]:
            return made
        made.append(best[1])
        state = moved(state, *best[1])


@about("plans that second thoughts make better", least=0.02)
@given(running=uneven_clusters(max_vms=16))
def test_second_thoughts_lose_nothing(running):
    worth = BALANCE_OBJECTIVE

    once = balance(running, worth, reconsiderations=0)
    twice = balance(running, worth)

    contains(twice.moves if net(twice, worth) > net(once, worth) + 1e-9 else ())
    assert net(twice, worth) >= net(once, worth) - 1e-9


def net(plan: MovePlan, worth) -> float:
    return sum(plan.details["gains"]) - plan.measures_after.moved_gib * worth.price_per_gib


BOUNDS = st.one_of(
    st.builds(dict, most_moves=st.integers(0, 3)),
    st.builds(dict, most_gib=st.integers(0, 4)),
    st.builds(dict, units=st.integers(10, 120)),
)


@pytest.mark.parametrize(
    ("planner", "default"), [(balance, BALANCE_OBJECTIVE), (pack, PACK_OBJECTIVE)]
)
@about("plans that a bound cuts", least=0.15)
@given(running=uneven_clusters(), bounds=BOUNDS)
def test_bounds_of_a_plan_hold(planner, default, running, bounds):
    units = bounds.get("units")
    worth = default.with_given({name: bounds[name] for name in bounds if name != "units"})

    plan = planner(running, worth, budget_units=units)

    contains(plan.cut)
    check_plan(running, plan)
    assert worth.most_moves is None or len(plan.moves) <= worth.most_moves
    assert worth.most_gib is None or plan.measures_after.moved_gib <= worth.most_gib
    assert units is None or plan.work <= units
    assert plan.cut == (plan.details["outcome"] in ("moves", "gib", "work"))


@about("moves that balance", least=0.3)
@given(running=uneven_clusters(), limits=LIMITS)
def test_shares_stand_still_and_the_same_plan_is_made_again(running, limits):
    plan = balance(running, limits=limits)

    contains(plan.moves)
    assert len({each.fairness_distance for each in plan.measures}) == 1
    assert plan.document() == balance(running, limits=limits).document()
    assert MovePlan.from_document(json.loads(json.dumps(plan.document()))) == plan


@about("hosts that are emptied", least=0.1)
@settings(max_examples=120)
@given(running=uneven_clusters(), price=PRICES, limits=LIMITS)
def test_packing_empties_each_host_that_it_takes_vms_from(running, price, limits):
    worth = dataclasses.replace(PACK_OBJECTIVE, price_per_gib=price)

    plan = pack(running, worth, limits=limits)
    after = running.after_moves(plan.moves)

    contains(plan.moves)
    check_plan(running, plan)
    emptied = {move.source for move in plan.moves}
    for host in emptied:
        assert (after.room[host] == after.snapshot.capacity[host]).all()
        here = [n for n, move in enumerate(plan.moves) if move.source == host]
        gain = sum(plan.details["gains"][n] for n in here)
        carried = sum(plan.moves[n].transfer_mib for n in here)
        assert gain >= worth.price(carried) - 1e-9
    assert plan.measures_after.hosts_in_use == plan.measures_before.hosts_in_use - len(emptied)
    assert plan.details["potential"] == pytest.approx(
        [-emptiness_of(running), -emptiness_of(after)], abs=1e-9
    )
    for move in plan.moves:
        assert move.destination not in emptied
        assert (running.room[move.destination] < running.snapshot.capacity[move.destination]).any()
    assert not pack(after, worth, limits=limits).moves


@given(running=uneven_clusters())
def test_the_term_of_packing_is_what_it_says(running):
    capacity = running.snapshot.capacity

    cost = Emptiness(ranking=np.array([0, 1])).cost(capacity - running.room, capacity)

    assert cost.sum() == pytest.approx(emptiness_of(running), abs=1e-9)
