from __future__ import annotations

import numpy as np
import pytest

from placement import Division, InfeasibleAllocationError, ShapeMismatchError, check_division
from tests.divisible import a_divisible_problem


def the_problem():
    """Two classes; tenant 1 may use the first alone, tenant 2 wants three tasks, 3 nothing."""
    return a_divisible_problem(
        [(4, 8), (2, 4)],
        [(1, 1), (1, 2), (0, 0)],
        eligible=[(1, 0), (1, 1), (1, 1)],
        count=[np.inf, 3, 5],
    )


def test_what_fits_passes():
    check_division(the_problem(), Division(tasks=np.array([(2.0, 0), (1.5, 1.5), (0, 0)])))
    check_division(the_problem(), Division(tasks=np.array([(3.0,), (3,), (0,)]), pooled=True))


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([(np.nan, 0), (0, 0), (0, 0)], "not finite"),
        ([(np.inf, 0), (0, 0), (0, 0)], "not finite"),
        ([(-1, 0), (0, 0), (0, 0)], "below 0"),
        ([(0, 1), (0, 0), (0, 0)], "not eligible"),
        ([(0, 0), (2, 1.1), (0, 0)], "more tasks than requested"),
        ([(0, 0), (0, 0), (1, 0)], "demands nothing"),
        ([(4.1, 0), (0, 0), (0, 0)], "more of a resource than is free"),
        ([(0, 0), (0, 2.1), (0, 0)], "more of a resource than is free"),
    ],
)
def test_a_broken_rule_is_named(tasks, message):
    with pytest.raises(InfeasibleAllocationError, match=message):
        check_division(the_problem(), Division(tasks=np.array(tasks, dtype=np.float64)))


def test_a_fast_host_takes_more():
    problem = a_divisible_problem([(4, 8)], [(1, 1)], speed=[(2,)])

    check_division(problem, Division(tasks=np.array([(8.0,)])))
    with pytest.raises(InfeasibleAllocationError, match="more of a resource"):
        check_division(problem, Division(tasks=np.array([(8.1,)])))


def test_another_shape_is_refused():
    with pytest.raises(ShapeMismatchError):
        check_division(the_problem(), Division(tasks=np.zeros((3, 1))))
