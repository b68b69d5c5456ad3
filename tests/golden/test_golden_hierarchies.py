"""Worked numbers on trees of tenants: MCH, staged MCH, H-DRF, collapsed trees."""

from __future__ import annotations

import numpy as np
import pytest

from placement.mechanisms.hierarchies.flattening import Flattening, mch_weights
from placement.mechanisms.max_min.levels import normalised_demands
from tests.trees import CPU, MEMORY, a_tree_problem, divided, held_by_nodes, worst_envy

EVERYBODY = np.ones(6, dtype=np.bool_)


def the_three_groups(count: float = 2000.0):
    """Three groups in 200 CPUs and 200 GB, unit tasks, 2000 in each job (the paper of MCH)."""
    return a_tree_problem(
        [[CPU, MEMORY], [CPU, CPU, MEMORY], [CPU]], (200.0, 200.0), count=[count] * 6
    )


def the_two_groups():
    """Derived: a with three CPU and two memory jobs, b with two and one."""
    return a_tree_problem([[CPU, CPU, CPU, MEMORY, MEMORY], [CPU, CPU, MEMORY]])


def test_the_weights_of_the_three_groups() -> None:
    problem = the_three_groups()

    weights = mch_weights(problem.tree, problem.demand, problem.pool, EVERYBODY)

    assert weights.tolist() == [1, 1, 0.5, 0.5, 1, 1]


@pytest.mark.parametrize("name", ["mch", "mch_staged"])
def test_the_shares_of_the_three_groups(name: str) -> None:
    division = divided(name, the_three_groups())

    expected = [1 / 3, 1 / 2, 1 / 6, 1 / 6, 1 / 2, 1 / 3]
    assert division.totals / 200 == pytest.approx(expected)
    assert division.details["weights"] == [1, 1, 0.5, 0.5, 1, 1]


def test_hdrf_gives_the_three_groups_the_same_to_a_task() -> None:
    division = divided("hdrf", the_three_groups())

    assert division.totals == pytest.approx([66.7, 100, 33.3, 33.3, 100, 66.7], abs=1)
    assert division.totals.sum() == 400


@pytest.mark.parametrize("name", ["mch", "mch_staged", "hdrf"])
def test_when_a_memory_job_leaves_the_other_one_takes_all_memory(name: str) -> None:
    problem = the_three_groups()
    left = a_tree_problem(
        [[CPU, MEMORY], [CPU, CPU, MEMORY], [CPU]],
        (200.0, 200.0),
        count=[2000, 0, 2000, 2000, 2000, 2000],
    )

    before, after = divided(name, problem).totals, divided(name, left).totals

    assert after[4] == pytest.approx(200)
    assert after[[0, 2, 3, 5]] == pytest.approx(before[[0, 2, 3, 5]], abs=1)


def test_a_normalised_demand() -> None:
    shape, mu = normalised_demands(np.array([[2.0, 3.0]]), np.array([10.0, 12.0]))

    assert shape[0] == pytest.approx([4 / 5, 1])
    assert mu[0] == pytest.approx(1 / 4)


def test_mch_splits_memory_in_thirds_where_the_groups_are_owed_halves() -> None:
    problem = the_two_groups()

    division = divided("mch", problem)

    assert division.totals[[3, 4, 7]] / 1000 == pytest.approx([1 / 3, 1 / 3, 1 / 3])
    assert worst_envy(problem, division) == pytest.approx(1 / 6)


@pytest.mark.parametrize(("name", "off_by"), [("mch_staged", 1e-9), ("hdrf", 2e-3)])
def test_in_stages_and_task_by_task_memory_goes_half_to_each_group(
    name: str, off_by: float
) -> None:
    division = divided(name, the_two_groups())

    assert division.totals[[3, 4, 7]] / 1000 == pytest.approx([1 / 4, 1 / 4, 1 / 2], abs=off_by)
    assert division.totals[:3] / 1000 == pytest.approx([1 / 6] * 3, abs=off_by)
    assert division.totals[5:7] / 1000 == pytest.approx([1 / 4] * 2, abs=off_by)


def test_the_stages_of_the_two_groups() -> None:
    stages = divided("mch_staged", the_two_groups()).details["stages"]

    assert [stage["used_up"] for stage in stages] == [["r0"], ["r1"]]
    assert [stage["stopped"] for stage in stages] == [[0, 1, 2, 5, 6], [3, 4, 7]]
    assert stages[0]["weights"] == pytest.approx([1 / 3] * 5 + [1 / 2] * 3)
    assert stages[1]["weights"] == pytest.approx([0, 0, 0, 1 / 2, 1 / 2, 0, 0, 1])


def test_collapsed_by_cpu_memory_follows_the_plain_weights() -> None:
    problem = the_two_groups()

    by_cpu = divided("collapsed", problem, resource="r0").details["weights"]
    by_memory = divided("collapsed", problem, resource="r1").details["weights"]

    assert by_cpu == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1, 1, 1 / 4, 1 / 4, 1])
    assert by_memory == pytest.approx([1, 1, 1, 1 / 4, 1 / 4, 1, 1, 1 / 2])


def test_naive_hierarchical_drf_starves_a_job_behind_its_siblings() -> None:
    """Derived, in the manner of Bhattacharya et al. 2013: the group's CPU job never gets on.

    In the first group a memory job runs alone up to half of the memory while
    the CPU job waits for tasks; when it comes, its group's share is far ahead.
    """
    problem = a_tree_problem([[CPU, MEMORY], [CPU]], (100.0, 100.0), held=[(0, 0), (0, 60), (0, 0)])

    naive, rescaled = divided("naive_hdrf", problem), divided("hdrf", problem)

    assert naive.totals[0] == pytest.approx(40, abs=1)
    assert rescaled.totals[0] == pytest.approx(50, abs=1)
    assert held_by_nodes(problem, rescaled)[1].max() >= 0.5


def test_staged_mch_does_not_count_what_a_stopped_sibling_holds() -> None:
    """Derived: a job of ten tasks ends; H-DRF counts them against its group, stages do not."""
    problem = a_tree_problem([[CPU, CPU], [CPU]], count=[200, np.inf, np.inf])

    staged, one_by_one = divided("mch_staged", problem), divided("hdrf", problem)

    assert staged.totals == pytest.approx([200, 400, 400])
    assert one_by_one.totals == pytest.approx([200, 300, 500], abs=1)
    assert worst_envy(problem, staged) == pytest.approx(0.2)
    assert worst_envy(problem, one_by_one) <= 1e-3


def test_staged_weights_are_those_of_the_active_leaves() -> None:
    problem = the_three_groups()
    memory_alone = np.array([False, True, False, False, True, False])

    shape, _ = normalised_demands(problem.demand, problem.pool)
    weights, _ = Flattening(problem.tree, shape).product_weights(memory_alone)

    assert weights[memory_alone].tolist() == [1, 1]
