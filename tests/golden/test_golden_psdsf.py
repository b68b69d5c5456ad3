"""Worked numbers of Khamse-Ashari et al., "Per-Server Dominant-Share Fairness", 2016."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from placement.catalog.names import mechanism_by_name
from placement.mechanisms.psdsf.residual import theorem1_residual
from placement.mechanisms.psdsf.sweeps import ScheduledStep, distributed_steps
from placement.mechanisms.tasks_alone import tasks_alone
from tests.divisible import a_divisible_problem, assert_fits, the_four_classes_of_psdsf

STEPS = pytest.mark.parametrize("procedure", ["water_filling", "published"])
PROCEDURES = pytest.mark.parametrize("procedure", ["water_filling", "published", "distributed"])


def psdsf(problem, **parameters):
    division = mechanism_by_name("psdsf", parameters).divide(problem, np.random.default_rng(0))
    assert_fits(problem, division)
    return division


def without_user_4():
    problem = the_four_classes_of_psdsf()
    return replace(problem, eligible=problem.eligible & np.array([[1], [1], [1], [0]], dtype=bool))


@PROCEDURES
def test_two_servers_and_two_users_have_six_tasks_each(procedure):
    problem = a_divisible_problem([(9, 12, 100), (12, 12, 0)], [(1, 2, 10), (1, 2, 0)])

    division = psdsf(problem, procedure=procedure)

    assert division.totals == pytest.approx([6, 6])
    assert division.details["residual"] < 1e-9


@PROCEDURES
def test_four_users_two_of_them_on_one_server_only(procedure):
    problem = a_divisible_problem(
        [(9, 12, 100), (12, 12, 0)], [(1.5, 1, 10), (1, 2, 10), (0.5, 1, 0), (1, 0.5, 0)]
    )

    division = psdsf(problem, procedure=procedure)

    expected = [(3.6, 0), (3.6, 0), (0, 8), (0, 8)]
    assert division.tasks == pytest.approx(np.array(expected), abs=1e-7)
    gamma = tasks_alone(problem)
    shares = np.divide(division.totals[:, None], gamma, out=np.zeros_like(gamma), where=gamma > 0)
    assert shares[:2, 0] == pytest.approx([0.6, 0.6])
    assert shares[2:, 1] == pytest.approx([8 / 12, 8 / 12])
    # The last is printed as 1; the formula gives 8/9.
    assert shares[2:, 0] == pytest.approx([8 / 12, 8 / 9])


def test_gamma_is_what_a_user_could_run_with_a_class_to_itself():
    assert tasks_alone(the_four_classes_of_psdsf()) == pytest.approx(
        np.array(
            [(80, 340, 82.5, 55), (40, 170, 41.25, 41.25), (0, 0, 82.5, 27.5), (0, 0, 27.5, 27.5)]
        )
    )


@PROCEDURES
def test_four_classes_and_four_users(procedure):
    division = psdsf(the_four_classes_of_psdsf(), procedure=procedure)

    expected = [(40, 170, 0, 0), (20, 85, 0, 0), (0, 0, 82.5, 0), (0, 0, 0, 27.5)]
    assert division.tasks == pytest.approx(np.array(expected), abs=1e-6)
    assert division.details["residual"] < 1e-8


@PROCEDURES
def test_when_user_4_is_inactive_user_2_takes_its_class(procedure):
    """Derived."""
    division = psdsf(without_user_4(), procedure=procedure)

    expected = np.array([(80, 171.25, 0, 0), (0, 84.375, 0, 41.25), (0, 0, 82.5, 0), (0, 0, 0, 0)])
    if procedure == "distributed":  # another split of classes A and B, which are of one shape
        assert division.totals == pytest.approx(expected.sum(axis=1), abs=1e-6)
        assert division.details["residual"] < 1e-8
    else:
        assert division.tasks == pytest.approx(expected, abs=1e-6)


@STEPS
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2)])
def test_over_300_seconds_servers_settle_within_three(procedure, order):
    """One step of each server per second, user 4 inactive from 100 to 250 (derived)."""
    problem = the_four_classes_of_psdsf()
    everybody, three = np.ones(4, dtype=bool), np.array([True, True, True, False])
    schedule = [
        ScheduledStep(server, three if 100 < second < 250 else everybody)
        for second in range(300)
        for server in order
    ]

    steps = list(distributed_steps(problem, schedule, procedure=procedure))

    each_second = steps[3::4]
    seen = {}
    for second, tasks in enumerate(each_second):
        assert ((tasks.T @ problem.demand) <= problem.capacity * (1 + 1e-9)).all()
        used = (tasks.T @ problem.demand) / problem.capacity
        settling = second < 3 or 100 < second < 104 or 250 <= second < 253
        if not settling:
            inactive = 100 < second < 250
            seen[inactive] = tasks
            assert used[:, 1] == pytest.approx(np.ones(4), abs=1e-3)
            assert used[2, 0] == pytest.approx(1.0, abs=1e-3)
            assert used[3, 0] == pytest.approx(0.75 if inactive else 1.0, abs=1e-3)
            assert tasks[3].any() != inactive
    assert theorem1_residual(problem, seen[False]) < 1e-9
    assert theorem1_residual(without_user_4(), seen[True]) < 1e-9


@PROCEDURES
def test_one_resource_with_rates(procedure):
    """Three channels, of which each user makes use at a rate of its own."""
    problem = a_divisible_problem(
        [[1], [1], [1]], [[1], [1]], speed=[(1.2, 0.6, 0.4), (0.4, 0.4, 0.8)]
    )

    division = psdsf(problem, procedure=procedure)

    assert division.totals == pytest.approx([1.5, 1.0])
    parts = (division.tasks / tasks_alone(problem)).sum(axis=0)
    assert parts == pytest.approx([1, 1, 1])


def the_counter_example():
    return a_divisible_problem([(4, 4), (3, 4)], [(1, 2), (1, 1), (2, 1)])


@pytest.mark.parametrize(
    ("tasks", "totals"),
    [
        ([(0, 28 / 17), (2, 8 / 17), (1, 4 / 17)], (1.647, 2.471, 1.235)),
        ([(0, 1.6), (1.6, 0.8), (1.2, 0)], (1.6, 2.4, 1.2)),
    ],
)
@STEPS
def test_psdsf_is_not_unique(procedure, tasks, totals):
    """Derived: both pass Theorem 1, and servers stay with either."""
    problem, tasks = the_counter_example(), np.array(tasks)

    *_, last = distributed_steps(
        problem,
        [ScheduledStep(0), ScheduledStep(1), ScheduledStep(0)],
        procedure=procedure,
        start=tasks,
    )

    assert tasks.sum(axis=1) == pytest.approx(totals, abs=1e-3)
    assert theorem1_residual(problem, tasks) < 1e-12
    assert last == pytest.approx(tasks, abs=1e-9)


def test_psdsf_is_not_pareto_optimal_but_for_its_last_step():
    """Derived: all three users could have 6.25 % more."""
    division = psdsf(the_counter_example())

    raised = psdsf(the_counter_example(), pareto=True)

    assert division.details["residual"] < 1e-9
    assert division.totals == pytest.approx([28 / 17, 42 / 17, 21 / 17])
    assert raised.details["pareto_factor"] == pytest.approx(1.0625)
    assert raised.totals == pytest.approx(division.totals * 1.0625)
