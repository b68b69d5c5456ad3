"""Edges of the max-min mechanisms: nothing asked, nothing there, held, speeds."""

from __future__ import annotations

import json

import numpy as np
import pytest

from placement.mechanisms.errors import UnsupportedProblemError
from tests.divisible import a_divisible_problem, assert_fits, divided, levels

LP_FAMILY = ("drfh", "tsf", "cdrf", "cdrfh")
FAMILY = ("drf", *LP_FAMILY)
ALL = (*FAMILY, "per_server_drf")


@pytest.mark.parametrize("name", ALL)
def test_a_tenant_that_demands_nothing_gets_nothing(name):
    division = divided(name, a_divisible_problem([(4, 4)], [(0, 0), (1, 1)]))

    assert division.totals == pytest.approx([0, 4])
    assert levels(division)[0] == 0


@pytest.mark.parametrize("name", ALL)
def test_a_tenant_without_any_eligible_server_has_level_zero(name):
    problem = a_divisible_problem([(4, 4)], [(1, 1), (1, 1)], eligible=[(0,), (1,)])

    division = divided(name, problem)

    assert division.totals == pytest.approx([0, 4])
    assert levels(division)[0] == 0


@pytest.mark.parametrize("name", ALL)
def test_a_resource_that_no_server_has_leaves_only_its_demanders_out(name):
    division = divided(name, a_divisible_problem([(4, 0)], [(1, 1), (1, 0)]))

    assert division.totals == pytest.approx([0, 4])


@pytest.mark.parametrize("name", LP_FAMILY)
def test_a_server_without_a_demanded_resource_is_not_used(name):
    division = divided(name, a_divisible_problem([(4, 4), (4, 0)], [(1, 1)]))

    assert division.tasks == pytest.approx(np.array([[4, 0]]))


@pytest.mark.parametrize("name", ALL)
def test_nobody_and_nothing_are_divided_too(name):
    assert divided(name, a_divisible_problem([(4, 4)], np.zeros((0, 2)))).totals.shape == (0,)
    assert divided(name, a_divisible_problem([(0, 0)], [(1, 1)])).totals == pytest.approx([0])


@pytest.mark.parametrize("name", FAMILY)
def test_a_tenant_with_all_its_tasks_leaves_the_rest_to_the_others(name):
    division = divided(
        name, a_divisible_problem([(9,)], [(1,), (1,), (1,)], count=[1, np.inf, 3.5])
    )

    assert division.totals == pytest.approx([1, 4.5, 3.5])


@pytest.mark.parametrize("name", FAMILY)
def test_what_is_held_counts_in_the_level(name):
    problem = a_divisible_problem([(10,)], [(1,), (1,)], held=[(4,), (0,)], free=[(6,)])

    division = divided(name, problem)

    assert division.totals == pytest.approx([1, 5])
    assert levels(division) == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("name", ["drf", "drfh", "cdrfh"])
def test_who_holds_much_of_another_resource_comes_after_the_others(name):
    """The first tenant's level is its share of the second resource; it does not rise at first."""
    problem = a_divisible_problem(
        [(10, 10)], [(1, 0), (1, 0)], held=[(0, 6), (0, 0)], free=[(10, 4)]
    )

    division = divided(name, problem)

    assert division.totals == pytest.approx([4, 6])
    assert levels(division) == pytest.approx([0.6, 0.6])


@pytest.mark.parametrize("name", ["drf", "drfh", "cdrfh"])
def test_a_change_of_dominant_resource_bends_the_way_up(name):
    """The first tenant holds memory; past 5 tasks its CPU is dominant."""
    problem = a_divisible_problem(
        [(20, 20)], [(2, 1), (1, 0)], held=[(0, 5), (0, 0)], free=[(20, 15)]
    )

    division = divided(name, problem)

    assert division.totals == pytest.approx([5, 10])
    assert levels(division) == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("name", ["tsf", "cdrf"])
def test_task_shares_know_speeds(name):
    """Twice as fast is twice the tasks alone, so twice the tasks at the same level."""
    division = divided(name, a_divisible_problem([(10,)], [(1,), (1,)], speed=[(2,), (1,)]))

    assert division.totals == pytest.approx([10, 5])


def test_tsf_measures_against_all_servers_and_cdrf_against_the_allowed():
    problem = a_divisible_problem([(4,), (12,)], [(1,), (1,)], eligible=[(1, 0), (1, 1)])

    tsf, cdrf = divided("tsf", problem), divided("cdrf", problem)

    assert tsf.totals == pytest.approx([4, 12])
    assert cdrf.totals == pytest.approx([3.2, 12.8])


@pytest.mark.parametrize("name", ["drf", "drfh", "cdrfh"])
def test_dominant_shares_refuse_speeds(name):
    problem = a_divisible_problem([(10,)], [(1,)], speed=[(2,)])

    with pytest.raises(UnsupportedProblemError, match="cannot use speed") as raised:
        divided(name, problem)

    assert raised.value.field == "speed"


def test_per_server_drf_refuses_bounded_counts():
    with pytest.raises(UnsupportedProblemError, match="counts must be unbounded"):
        divided("per_server_drf", a_divisible_problem([(10,)], [(1,)], count=[3]))


@pytest.mark.parametrize("name", LP_FAMILY)
def test_only_those_who_cannot_rise_are_frozen_when_capacity_stops_a_round(name):
    division = divided(name, a_divisible_problem([(10, 20)], [(1, 0), (0, 1), (1, 1)]))

    rounds = division.details["rounds"]
    assert [each["frozen"] for each in rounds] == [[0, 2], [1]]
    assert [each["used_up"] for each in rounds] == [[[0, "r0"]], [[0, "r1"]]]


@pytest.mark.parametrize("name", ALL)
def test_details_are_strict_json(name):
    details = divided(name, a_divisible_problem([(9, 18), (2, 1)], [(1, 4), (3, 0)])).details

    assert json.loads(json.dumps(details, allow_nan=False)) == dict(details)


@pytest.mark.parametrize("name", ["drfh", "tsf"])
@pytest.mark.parametrize("seed", range(6))
def test_amounts_that_differ_by_many_orders_are_divided_within_their_room(name, seed):
    rng = np.random.default_rng(seed)
    capacity = 10.0 ** rng.uniform(-2, 4, (5, 3))
    problem = a_divisible_problem(
        capacity,
        10.0 ** rng.uniform(-3, 3, (6, 3)) * (rng.uniform(size=(6, 3)) < 0.8),
        weight=10.0 ** rng.uniform(-3, 3, 6),
        held=capacity.sum(axis=0) * rng.uniform(0, 0.1, (6, 1)),
        free=capacity * rng.uniform(size=capacity.shape),
        count=np.where(rng.uniform(size=6) < 0.5, np.inf, 100.0),
        eligible=rng.uniform(size=(6, 5)) < 0.8,
    )

    division = divided(name, problem)

    assert_fits(problem, division)
    assert division.details["residual"] <= 1e-6
