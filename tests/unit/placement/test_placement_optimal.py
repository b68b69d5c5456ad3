"""The optimum: what is proven, by which program, and what is said when it is not."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement import Budget, ParameterError, check_allocation, policy_by_name
from placement.model.constraints import AffinityGroup, Constraints, Spread
from placement.policies.optimal.hosts import HostGroup, PatternHosts, SingleHosts
from placement.policies.optimal.integer_program import IntegerProgram
from placement.policies.optimal.patterns import maximal_patterns
from tests.builders import a_snapshot


def place(snapshot, units=None, **parameters):
    policy = policy_by_name("optimal", parameters)
    allocation = policy.place(snapshot, np.random.default_rng(0), Budget(units))
    check_allocation(snapshot, allocation)
    return allocation


def counts(allocation):
    return {request: count for request, _, count in allocation.placed.tolist()}


def test_the_bound_over_classes_is_the_proof_where_its_vms_can_be_packed():
    snapshot = a_snapshot(capacity=[(4, 4)] * 9, demand=[(3, 3), (1, 1)], count=[9, 9])

    allocation = place(snapshot)

    assert allocation.details["value"] == allocation.details["bound"] == 36
    assert allocation.details["exact_columns"] == 0
    assert allocation.left_out == ()


def test_two_halves_of_two_hosts_are_no_room_for_a_vm():
    # together the hosts hold 3 + 3 + 4 cores, each by itself one of these VMs
    snapshot = a_snapshot(capacity=[(5, 9)] * 2, demand=[(3, 1), (4, 1)], count=[2, 1])

    allocation = place(snapshot)

    assert counts(allocation) == {0: 1, 1: 1}
    assert allocation.details["exact_columns"] > 0
    assert (allocation.details["value"], allocation.details["bound"]) == (7, 7)
    assert allocation.details["proven"]


def test_the_objective_decides_who_gets_the_room():
    snapshot = a_snapshot(capacity=[(6, 6)], demand=[(6, 6), (1, 2)], count=[1, 9])

    of_first = place(snapshot).placed.tolist()
    vms = place(snapshot, objective="vms").placed.tolist()

    assert (of_first, vms) == ([[0, 0, 1]], [[1, 0, 3]])


def test_of_equal_gains_the_one_of_most_vms_is_taken():
    snapshot = a_snapshot(capacity=[(6, 6)], demand=[(6, 1), (2, 1)], count=[1, 3])

    assert place(snapshot).placed.tolist() == [[1, 0, 3]]


def test_vms_that_gain_nothing_are_placed_where_they_fit():
    snapshot = a_snapshot(capacity=[(2, 6)], demand=[(1, 1), (0, 2)], count=9)

    assert place(snapshot).placed.tolist() == [[0, 0, 2], [1, 0, 2]]


def test_of_requests_alike_the_poorer_tenant_is_served():
    snapshot = a_snapshot(
        capacity=[(8, 8)], free=[(4, 4)], demand=[(1, 1), (1, 1)], count=4, held=[(3, 3), (1, 1)]
    )

    assert place(snapshot).placed.tolist() == [[0, 0, 1], [1, 0, 3]]


def test_a_gang_that_gains_less_than_the_others_stays_out_whole():
    snapshot = a_snapshot(
        capacity=[(8, 8)], demand=[(3, 1), (2, 1)], count=[3, 4], min_count=[2, 1]
    )

    assert place(snapshot).placed.tolist() == [[1, 0, 4]]


def test_without_a_budget_the_answer_is_greedy_and_says_that_it_is_cut():
    snapshot = a_snapshot(capacity=[(5, 9)] * 2, demand=[(3, 1), (4, 1)], count=[2, 1])

    allocation = place(snapshot, units=0)

    assert allocation.placed[:, 2].sum() == 2
    assert allocation.cut
    assert allocation.work == 0
    assert allocation.details["value"] < allocation.details["bound"] == 10
    assert any("nodes" in cut for cut in allocation.details["cuts"])


def test_a_problem_that_is_too_large_is_refused_by_its_size():
    hosts = [(1000 + n, 5000) for n in range(201)]
    demand = [(1 + n, 2) for n in range(101)]

    with pytest.raises(ParameterError, match=r"20,301 pairs .* at most 20,000"):
        place(a_snapshot(capacity=hosts, demand=demand, count=1))


@pytest.mark.parametrize("value", ["VMs", "", 1, None, ["vms"]])
def test_an_objective_that_is_none_is_refused(value):
    with pytest.raises(ParameterError, match="objective"):
        policy_by_name("optimal", {"objective": value})


def test_a_program_that_presolve_calls_infeasible_is_solved_all_the_same():
    """HiGHS 1.12 did, of the program that breaks the ties of this round."""
    snapshot = dataclasses.replace(
        a_snapshot(
            capacity=((6, 9, 30), (8, 16, 20), (6, 9, 30), (4, 4, 20), (8, 16, 20)),
            free=((5, 7, 23), (8, 16, 20), (5, 7, 23), (4, 4, 20), (8, 16, 20)),
            demand=((1, 1, 0), (1, 1, 0), (2, 1, 0), (1, 4, 0), (4, 4, 0)),
            count=(5, 0, 5, 5, 6),
            min_count=(1, 1, 4, 2, 1),
            tenant=(0, 1, 2, 3, 0),
            held=((2, 4, 14), (0, 0, 0), (0, 0, 0), (0, 0, 0)),
            host_class=(0, 0, 1, 0, 0),
            eligible=((True, True), (False, False), (True, True), (True, True), (True, True)),
        ),
        constraints=Constraints(
            groups=(AffinityGroup(apart=True, hard=False, requests=(0, 1, 2, 3), hosts=(3,)),),
            spreads=(Spread(request=0, maximum=1, placed=(0, 0)),),
            zones=(0, 0, 0, 0, 1),
            preferred={0: ()},
        ),
    )

    allocation = policy_by_name("optimal", {}).place(snapshot, np.random.default_rng(0), Budget())

    check_allocation(snapshot, allocation)
    assert allocation.placed[:, 2].sum() > 0


def test_a_program_without_gains_is_solved_by_nothing():
    program = IntegerProgram()
    program.add_column(3)

    assert program.solve([0], 1).values == (0,)


def test_a_program_ends_at_its_limit_of_nodes_with_a_bound():
    rng = np.random.default_rng(0)
    weights = rng.integers(10, 99, (5, 60))
    gains = (weights.sum(axis=0) + rng.integers(0, 5, 60)).tolist()
    program = IntegerProgram()
    columns = [program.add_column(1) for _ in gains]
    for row in weights.tolist():
        program.add_row(zip(columns, map(float, row), strict=True), maximum=sum(row) / 2)

    solved = program.solve(gains, 2)

    assert solved.nodes <= 2
    assert solved.values is not None
    value = sum(gain * each for gain, each in zip(gains, solved.values, strict=True))
    assert value < solved.bound < sum(gains)


ROOM = st.lists(st.integers(0, 9), min_size=2, max_size=2)
DEMANDS = st.lists(
    st.lists(st.integers(0, 4), min_size=2, max_size=2).filter(any), min_size=1, max_size=3
)


def fits(pattern, demands, room):
    used = np.array(pattern) @ np.array(demands)
    return bool((used <= np.array(room)).all())


@given(room=ROOM, demands=DEMANDS, most=st.lists(st.integers(0, 5), min_size=3, max_size=3))
def test_maximal_patterns_are_those_that_fit_and_take_nothing_more(room, demands, most):
    most = most[: len(demands)]
    everything = itertools.product(*(range(bound + 1) for bound in most))
    fitting = [pattern for pattern in everything if fits(pattern, demands, room)]
    expected = [
        pattern
        for pattern in fitting
        if not any(
            other != pattern and all(a >= b for a, b in zip(other, pattern, strict=True))
            for other in fitting
        )
    ]

    patterns, looked_at = maximal_patterns(room, demands, most, 10_000)

    assert patterns == sorted(expected, reverse=True)
    assert len(expected) <= looked_at <= len(fitting)


def test_more_patterns_than_the_limit_are_not_listed():
    assert maximal_patterns((64, 256), [(1, 1), (1, 3), (2, 6)], (99, 99, 99), 50) == (None, 50)


@given(
    room=ROOM,
    demands=DEMANDS,
    hosts=st.integers(1, 3),
    gains=st.lists(st.integers(0, 5), min_size=3, max_size=3),
)
def test_hosts_by_pattern_hold_what_hosts_one_by_one_hold(room, demands, hosts, gains):
    most = tuple(
        min(9, *(have // need for have, need in zip(room, demand, strict=True) if need))
        for demand in demands
    )
    group = HostGroup(
        hosts=np.arange(hosts),
        room=tuple(room),
        kinds=tuple(range(len(demands))),
        demands=tuple(map(tuple, demands)),
        maximum=most,
    )
    patterns, _ = maximal_patterns(room, demands, most, 10_000)

    def best(model):
        program = IntegerProgram()
        held = model(program)
        wishes = [program.add_column(4) for _ in demands]
        for kind, wish in enumerate(wishes):
            supplied = [(column, -float(n)) for k, column, n in held.supply() if k == kind]
            program.add_row([(wish, 1.0), *supplied], maximum=0.0)
        value = [0] * (len(program) - len(wishes)) + gains[: len(wishes)]
        solved = program.solve(value, 1000)
        for host, counts in held.vms_on_hosts(solved.values):
            assert 0 <= host < hosts
            assert fits([counts.get(kind, 0) for kind in group.kinds], demands, room)
        return sum(gain * each for gain, each in zip(value, solved.values, strict=True))

    assert best(lambda p: PatternHosts(p, group, patterns)) == best(lambda p: SingleHosts(p, group))
