"""Edges of PS-DSF: its judge, and its last step."""

from __future__ import annotations

import numpy as np
import pytest

from placement.mechanisms import MECHANISMS
from placement.mechanisms.psdsf.pareto import scale_all_tasks
from placement.mechanisms.psdsf.residual import theorem1_residual
from tests.divisible import a_divisible_problem, divided


def test_a_holder_of_next_to_nothing_may_still_be_the_one_who_has_too_much():
    """Tenant 0 is ten times above tenant 1, and of the server that both want it has 0.5 %."""
    problem = a_divisible_problem(
        [(100.0,), (1000.0,)], [(1.0,), (1.0,)], eligible=[(1, 1), (1, 0)]
    )
    tasks = np.array([[0.5, 1000.0], [99.5, 0.0]])

    assert theorem1_residual(problem, tasks) == pytest.approx(1 - 99.5 / 1000.5)


def test_who_has_all_it_wants_does_not_keep_the_others_from_rising():
    """All could have 6.25 % more; tenant 1 wants 1 %, which leaves the others 9.4 % more."""
    capacity, demand = [(4.0, 4.0), (3.0, 4.0)], [(1.0, 2.0), (1.0, 1.0), (2.0, 1.0)]
    before = divided("psdsf", a_divisible_problem(capacity, demand))
    wanted = np.array([np.inf, before.totals[1] * 1.01, np.inf])

    raised = scale_all_tasks(a_divisible_problem(capacity, demand, count=wanted), before.tasks)

    factors = raised.tasks.sum(axis=1) / before.totals
    assert raised.factor == pytest.approx(1.094)
    assert factors[1] == pytest.approx(1.01)
    assert (factors[[0, 2]] >= raised.factor * (1 - 1e-6)).all()


@pytest.mark.parametrize("name", ["drfh", "cdrfh"])
def test_tenants_who_are_nearly_alike_are_not_taken_for_one(name):
    """The scarce resource is the one in whose fourth digit they differ."""
    problem = a_divisible_problem([(10.0, 10.0)], [(1.0, 0.9), (1.0, 0.9004)], free=[(10.0, 5.0)])

    division = MECHANISMS[name].make({}).divide(problem, np.random.default_rng(0))

    assert division.totals.tolist() == pytest.approx([5 / 1.8004] * 2, rel=1e-9)
