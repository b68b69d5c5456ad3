"""What holds of DRF, DRFH, TSF, CDRF and C-DRFH, whatever the servers and demands."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from placement.mechanisms import DivisibleProblem, Division
from placement.mechanisms.tasks_alone import pool_fractions, tasks_alone, usable_classes
from tests.divisible import assert_fits, divided, levels, without_tenants
from tests.plain.max_min import most_tasks, plain_levels
from tests.properties.divisible_problems import divisible_problems

LP_FAMILY = ("drfh", "tsf", "cdrf", "cdrfh")
FAMILY = ("drf", *LP_FAMILY)
anything = divisible_problems(bounded=True, constrained=True, held=True, partly_free=True)


def level_rates(name: str, problem: DivisibleProblem) -> tuple[np.ndarray, np.ndarray]:
    """Return level at the start, with whole tasks held, and per task, both (N,)."""
    shares = pool_fractions(problem.demand, problem.pool).max(axis=1)
    if name in {"tsf", "cdrf"}:
        alone = tasks_alone(problem, everywhere=name == "tsf").sum(axis=1)
        shares = np.divide(1.0, alone, out=np.zeros_like(alone), where=alone > 0)
    requested = np.argmax(problem.demand > 0, axis=1)[:, None]
    mine = np.take_along_axis(problem.demand, requested, 1)[:, 0]
    running = np.take_along_axis(problem.held, requested, 1)[:, 0]
    running = np.divide(running, mine, out=np.zeros_like(mine), where=mine > 0)
    return shares * running / problem.weight, shares / problem.weight


@pytest.mark.parametrize("name", FAMILY)
@given(problem=anything)
def test_the_division_fits(name, problem):
    assert_fits(problem, divided(name, problem))


@given(problem=divisible_problems(constrained=True, partly_free=True))
def test_per_server_drf_fits(problem):
    assert_fits(problem, divided("per_server_drf", problem))


@pytest.mark.parametrize("name", LP_FAMILY)
@given(problem=anything)
def test_levels_are_those_of_the_plain_version(name, problem):
    start, rate = level_rates(name, problem)

    expected = plain_levels(problem, start, rate, usable_classes(problem))
    found = start + rate * divided(name, problem).totals

    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-9 * expected.max(initial=0))


@given(problem=anything)
def test_pooled_drf_is_max_min_on_one_big_server(problem):
    pool = replace(
        problem,
        capacity=problem.pool[None, :].copy(),
        free=problem.free.sum(axis=0, keepdims=True),
        hosts=np.ones(1, dtype=np.int64),
        speed=np.ones((len(problem.weight), 1)),
        eligible=problem.eligible.any(axis=1, keepdims=True),
    )
    start, rate = level_rates("drf", problem)

    expected = plain_levels(pool, start, rate, usable_classes(pool))
    found = start + rate * divided("drf", problem).totals

    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-9 * expected.max(initial=0))


@pytest.mark.parametrize("name", LP_FAMILY)
@given(problem=anything)
def test_what_tenants_are_told_agrees_with_what_they_get(name, problem):
    division = divided(name, problem)
    start, rate = level_rates(name, problem)
    in_play = usable_classes(problem).any(axis=1)

    np.testing.assert_allclose(
        levels(division)[in_play], (start + rate * division.totals)[in_play], rtol=1e-6, atol=1e-30
    )
    shares = pool_fractions(problem.held + division.totals[:, None] * problem.demand, problem.pool)
    np.testing.assert_allclose(division.details["dominant_shares"], shares.max(axis=1), rtol=1e-12)
    assert division.details["residual"] <= 1e-6


@pytest.mark.parametrize("name", ["drfh", "cdrfh"])
@given(problem=anything)
def test_levels_never_pass_those_of_the_pool_in_lexicographic_order(name, problem):
    # A pool would hold tasks whose resources no single server has together.
    in_play = usable_classes(problem).any(axis=1) & (problem.count > 0)
    assume(in_play.any())
    problem = without_tenants(problem, np.flatnonzero(in_play).tolist())

    division = sorted(levels(divided(name, problem)))
    pooled = sorted(levels(divided("drf", problem)))

    for mine, bound in zip(division, pooled, strict=True):
        assert mine <= bound * (1 + 1e-8) + 1e-30
        if mine < bound * (1 - 1e-8):
            break


# The axioms of DRFH: Wang, Li, Liang, INFOCOM 2014, Propositions 1 to 7.


def tasks_from(
    problem: DivisibleProblem, tenant: int, amounts: np.ndarray, able: np.ndarray
) -> float:
    """Return the tasks that ``tenant`` could run with ``amounts`` (K, R) of each class."""
    requested = problem.demand[tenant] > 0
    if not requested.any():
        return 0.0
    per_class = (amounts[:, requested] / problem.demand[tenant, requested]).min(axis=1)
    return float(per_class[able[tenant]].sum())


@given(problem=divisible_problems(partly_free=True))
def test_drfh_leaves_nobody_envious(problem):
    division = divided("drfh", problem)
    everywhere = usable_classes(problem)

    for i in range(len(problem.weight)):
        for j in range(len(problem.weight)):
            theirs = division.tasks[j][:, None] * problem.demand[j]
            fair = theirs * problem.weight[i] / problem.weight[j]
            assert tasks_from(problem, i, fair, everywhere) <= division.totals[i] * (1 + 1e-6)


@given(problem=divisible_problems(partly_free=True))
def test_drf_leaves_nobody_envious(problem):
    totals = divided("drf", problem).totals
    shares = pool_fractions(totals[:, None] * problem.demand, problem.pool)

    for i in range(len(problem.weight)):
        requested = problem.demand[i] > 0
        mine = pool_fractions(problem.demand, problem.pool)[i, requested]
        for j in range(len(problem.weight)):
            fair = shares[j, requested] * problem.weight[i] / problem.weight[j]
            if (mine > 0).all() and requested.any():
                assert (fair / mine).min() <= totals[i] * (1 + 1e-9)


@pytest.mark.parametrize("name", FAMILY)
@given(problem=anything)
def test_nobody_could_have_more_without_another_having_less(name, problem):
    division = divided(name, problem)
    if division.pooled:
        problem = replace(
            problem,
            capacity=problem.pool[None, :].copy(),
            free=problem.free.sum(axis=0, keepdims=True),
            hosts=np.ones(1, dtype=np.int64),
            speed=np.ones((len(problem.weight), 1)),
            eligible=problem.eligible.any(axis=1, keepdims=True),
        )
    able = usable_classes(problem)

    for tenant in range(len(problem.weight)):
        wants_more = division.totals[tenant] < problem.count[tenant] * (1 - 1e-6)
        if able[tenant].any() and wants_more:
            assert not could_rise(problem, division, tenant, able)


def could_rise(
    problem: DivisibleProblem, division: Division, tenant: int, able: np.ndarray
) -> bool:
    """Could ``tenant`` have a part in 100,000 of what it could have alone besides?"""
    alone = most_tasks(problem, np.zeros(len(problem.weight)), tenant, able)
    most = most_tasks(problem, division.totals, tenant, able)
    return most > division.totals[tenant] + 1e-5 * alone


@given(problem=divisible_problems(positive=True, max_classes=1, partly_free=True, bounded=True))
def test_on_one_server_all_are_drf(problem):
    expected = divided("drf", problem).totals

    for name in LP_FAMILY:
        np.testing.assert_allclose(divided(name, problem).totals, expected, rtol=1e-6, atol=1e-12)


@given(problem=divisible_problems(max_classes=1, partly_free=True))
def test_on_one_server_per_server_drf_is_drf(problem):
    np.testing.assert_allclose(
        divided("per_server_drf", problem).totals, divided("drf", problem).totals, rtol=1e-9
    )


@given(problem=divisible_problems(partly_free=True, bounded=True), data=st.data())
def test_with_one_resource_drfh_is_max_min_of_that_resource(problem, data):
    problem = only_resource(problem, data.draw(st.integers(0, len(problem.resources) - 1)))
    amounts = divided("drfh", problem).totals * problem.demand[:, 0] / problem.weight
    complete = divided("drfh", problem).totals >= problem.count * (1 - 1e-6)
    asks = (problem.demand[:, 0] > 0) & (problem.pool[0] > 0)

    for tenant in np.flatnonzero(asks & ~complete):
        assert (amounts[asks] <= amounts[tenant] * (1 + 1e-6)).all()


def only_resource(problem: DivisibleProblem, r: int) -> DivisibleProblem:
    one = slice(r, r + 1)
    return replace(
        problem,
        resources=problem.resources[one],
        capacity=problem.capacity[:, one].copy(),
        free=problem.free[:, one].copy(),
        demand=problem.demand[:, one].copy(),
        held=problem.held[:, one].copy(),
    )


@given(problem=divisible_problems(positive=True))
def test_when_all_have_the_same_dominant_resource_it_is_shared_by_weight(problem):
    """Bottleneck fairness: Wang, Li, Liang, INFOCOM 2014, Proposition 6."""
    fractions = pool_fractions(problem.demand, problem.pool)
    dominant = np.argmax(fractions, axis=1)
    assume((dominant == dominant[0]).all() and usable_classes(problem).all())

    levels_of = divided("drfh", problem).details["levels"]

    np.testing.assert_allclose(levels_of, levels_of[0], rtol=1e-6)


@given(problem=divisible_problems(positive=True, weighted=False))
def test_some_even_division_is_no_better_than_drfh_for_anybody(problem):
    """Weak sharing incentive: Wang, Li, Liang, TPDS 2015.

    Where everybody has a share of 1/n, no division in n parts of equal totals
    gives more. Otherwise what DRFH leaves over lacks a resource on every
    server, so handing it out until totals are equal helps nobody.
    """
    assume((problem.pool > 0).all())
    tenants = len(problem.weight)
    division = divided("drfh", problem)
    if levels(division).min() >= (1 - 1e-9) / tenants:
        return

    mine = division.tasks[:, :, None] * problem.demand[:, None, :]
    left = np.maximum(problem.capacity - mine.sum(axis=0), 0.0)
    missing = problem.pool / tenants - mine.sum(axis=1)
    whole = left.sum(axis=0)
    parts = np.divide(missing, whole, out=np.zeros_like(missing), where=whole > 0)
    even = mine + parts[:, None, :] * left

    np.testing.assert_allclose(even.sum(axis=1), np.tile(problem.pool / tenants, (tenants, 1)))
    for i in range(tenants):
        able = np.ones((tenants, len(problem.hosts)), dtype=np.bool_)
        assert tasks_from(problem, i, even[i], able) <= division.totals[i] * (1 + 1e-6)


@pytest.mark.parametrize("name", ["tsf", "cdrf"])
@given(problem=divisible_problems(positive=True))
def test_task_shares_keep_the_sharing_incentive(name, problem):
    """Without constraints everybody has its weight's part of what it could run alone."""
    division = divided(name, problem)
    fair = tasks_alone(problem).sum(axis=1) * problem.weight / problem.weight.sum()

    assert (division.totals >= fair * (1 - 1e-6)).all()


@given(problem=divisible_problems(constrained=True))
def test_cdrf_keeps_the_sharing_incentive_on_allowed_servers(problem):
    division = divided("cdrf", problem)
    fair = tasks_alone(problem).sum(axis=1) * problem.weight / problem.weight.sum()

    assert (division.totals >= fair * (1 - 1e-6)).all()


@pytest.mark.parametrize("name", FAMILY)
@given(problem=divisible_problems(positive=True, partly_free=True, max_tenants=4), data=st.data())
def test_when_a_tenant_leaves_nobody_who_stays_has_less(name, problem, data):
    """Population monotonicity: Wang, Li, Liang, INFOCOM 2014, Proposition 7."""
    assume(len(problem.weight) > 1)
    leaves = data.draw(st.integers(0, len(problem.weight) - 1))
    stay = [i for i in range(len(problem.weight)) if i != leaves]

    before = divided(name, problem).totals[stay]
    after = divided(name, without_tenants(problem, stay)).totals

    assert (after >= before * (1 - 1e-6)).all()


@pytest.mark.parametrize("name", ["drf", "drfh"])
@given(problem=divisible_problems(partly_free=True, max_tenants=3), data=st.data())
def test_nobody_gains_by_asking_for_another_shape(name, problem, data):
    """Strategyproofness: Wang, Li, Liang, INFOCOM 2014, Proposition 4."""
    liar = data.draw(st.integers(0, len(problem.weight) - 1))
    factors = data.draw(
        st.lists(
            st.sampled_from([0.25, 0.5, 0.9, 1.0, 1.1, 2.0, 4.0]),
            min_size=len(problem.resources),
            max_size=len(problem.resources),
        )
    )
    demand = problem.demand.copy()
    demand[liar] = demand[liar] * factors
    lied = replace(problem, demand=demand)

    honest = divided(name, problem).totals[liar]
    division = divided(name, lied)
    if division.pooled:
        amounts = division.totals[liar] * demand[liar][None, :]
        gained = tasks_from(problem, liar, amounts, np.ones((len(problem.weight), 1), dtype=bool))
    else:
        amounts = division.tasks[liar][:, None] * demand[liar]
        gained = tasks_from(problem, liar, amounts, usable_classes(problem))

    assert gained <= honest * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize("name", FAMILY)
@given(problem=anything, data=st.data())
def test_order_and_units_do_not_matter(name, problem, data):
    tenants = data.draw(st.permutations(range(len(problem.weight))))
    classes = data.draw(st.permutations(range(len(problem.hosts))))
    resources = data.draw(st.permutations(range(len(problem.resources))))
    unit = np.array([data.draw(st.sampled_from([1.0, 3.0, 1e-6, 1e6])) for _ in resources])
    other = DivisibleProblem(
        resources=tuple(problem.resources[r] for r in resources),
        capacity=problem.capacity[np.ix_(classes, resources)] * unit,
        free=problem.free[np.ix_(classes, resources)] * unit,
        hosts=problem.hosts[classes],
        demand=problem.demand[np.ix_(tenants, resources)] * unit,
        speed=problem.speed[np.ix_(tenants, classes)],
        eligible=problem.eligible[np.ix_(tenants, classes)],
        count=problem.count[tenants],
        weight=problem.weight[tenants] * 7.0,
        held=problem.held[np.ix_(tenants, resources)] * unit,
    )

    np.testing.assert_allclose(
        divided(name, other).totals, divided(name, problem).totals[tenants], rtol=1e-6, atol=1e-12
    )


@pytest.mark.parametrize("name", LP_FAMILY)
@given(problem=anything, parts=st.integers(2, 3))
def test_a_class_may_be_told_in_parts(name, problem, parts):
    split = replace(
        problem,
        capacity=np.repeat(problem.capacity / parts, parts, axis=0),
        free=np.repeat(problem.free / parts, parts, axis=0),
        hosts=np.repeat(problem.hosts, parts),
        speed=np.repeat(problem.speed, parts, axis=1),
        eligible=np.repeat(problem.eligible, parts, axis=1),
    )

    np.testing.assert_allclose(
        divided(name, split).totals, divided(name, problem).totals, rtol=1e-6, atol=1e-12
    )
