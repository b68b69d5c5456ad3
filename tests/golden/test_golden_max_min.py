"""Worked numbers of the papers on max-min mechanisms: DRF, DRFH, C-DRFH, TSF."""

from __future__ import annotations

import numpy as np
import pytest

from tests.divisible import (
    a_divisible_problem,
    assert_fits,
    divided,
    levels,
    the_four_classes_of_psdsf,
    the_google_problem,
)


def the_two_servers_of_drfh():
    """Wang, Li, Liang, INFOCOM 2014, Fig. 1: servers and demands."""
    return a_divisible_problem([(2, 12), (12, 2)], [(0.2, 1), (1, 0.2)])


def test_drf_gives_three_and_two_tasks():
    """Ghodsi et al., NSDI 2011, Section 4.1."""
    division = divided("drf", a_divisible_problem([(9, 18)], [(1, 4), (3, 1)]))

    assert division.pooled
    assert division.totals == pytest.approx([3, 2])
    assert division.details["dominant_shares"] == pytest.approx([2 / 3, 2 / 3])


def test_drf_goes_on_after_the_first_resource_is_used_up():
    """Derived: tenant 2 demands only what is left."""
    division = divided("drf", a_divisible_problem([(10, 20)], [(1, 0), (0, 1), (1, 1)]))

    assert division.totals == pytest.approx([5, 15, 5])
    assert [stop["used_up"] for stop in division.details["rounds"]] == [["r0"], ["r1"]]
    assert [stop["frozen"] for stop in division.details["rounds"]] == [[0, 2], [1]]


def test_drfh_gives_ten_tasks_each_and_a_share_of_five_sevenths():
    """Wang, Li, Liang, INFOCOM 2014, Fig. 3."""
    division = divided("drfh", the_two_servers_of_drfh())

    assert division.tasks == pytest.approx(np.array([(10, 0), (0, 10)]))
    assert levels(division) == pytest.approx([5 / 7, 5 / 7], rel=1e-9)


def test_naive_per_server_drf_gives_six_tasks_each():
    """Wang, Li, Liang, INFOCOM 2014, Fig. 2."""
    division = divided("per_server_drf", the_two_servers_of_drfh())

    assert division.tasks == pytest.approx(np.array([(5, 1), (1, 5)]))


def test_drfh_does_not_keep_the_strong_sharing_incentive():
    """Wang, Li, Liang, TPDS 2015: half of every server would give tenant 2 a share of 1/2."""
    problem = a_divisible_problem([(1, 2), (4, 3)], [(1, 1), (3, 2)])

    division = divided("drfh", problem)
    halves = np.minimum(problem.capacity[:, 0] / 2 / 3, problem.capacity[:, 1] / 2 / 2).sum()

    assert levels(division) == pytest.approx([12 / 25, 12 / 25], rel=1e-9)
    assert halves * 3 / 5 == pytest.approx(1 / 2)


@pytest.mark.parametrize(("name", "tasks"), [("cdrfh", (60 / 11, 72 / 11)), ("tsf", (4, 8))])
def test_a_server_without_the_demanded_resource(name, tasks):
    """Khamse-Ashari et al., PS-DSF, 2016, the first example."""
    problem = a_divisible_problem([(9, 12, 100), (12, 12, 0)], [(1, 2, 10), (1, 2, 0)])

    division = divided(name, problem)

    assert division.totals == pytest.approx(tasks, rel=1e-9)
    assert division.tasks[0, 1] == 0


def test_tsf_on_four_classes():
    """Khamse-Ashari et al., PS-DSF, 2016, Section VI; more digits derived."""
    division = divided("tsf", the_four_classes_of_psdsf())

    assert division.totals == pytest.approx([204.95, 107.53, 58.34, 35.55], abs=5e-3)
    assert division.tasks[2:, 2] == pytest.approx([58.34, 8.05], abs=5e-3)
    assert division.tasks[2:, 3] == pytest.approx([0, 27.5], abs=1e-6)


@pytest.mark.parametrize(
    ("name", "of_c", "of_d"),
    [("tsf", (0.805, 0.805), (1.0, 1.0)), ("cdrfh", (0.798, 0.803), (0.994, 1.0))],
)
def test_cpu_use_of_two_classes_with_all_tenants(name, of_c, of_d):
    """The same section, all active; ranges since the split is not unique (derived)."""
    use = cpu_use(the_four_classes_of_psdsf(), name)

    assert of_c[0] - 2e-3 <= use[2] <= of_c[1] + 2e-3
    assert of_d[0] - 2e-3 <= use[3] <= of_d[1] + 2e-3


@pytest.mark.parametrize(("name", "of_c"), [("tsf", (0.82, 0.94)), ("cdrfh", (0.81, 0.93))])
def test_cpu_use_of_two_classes_while_tenant_four_is_away(name, of_c):
    """The same section between 100 and 250 s; memory is used up everywhere (derived)."""
    problem = the_four_classes_of_psdsf()
    problem = a_divisible_problem(
        problem.capacity,
        problem.demand,
        weight=problem.weight,
        eligible=problem.eligible,
        count=[np.inf, np.inf, np.inf, 0],
    )

    use = cpu_use(problem, name)

    assert of_c[0] - 5e-3 <= use[2] <= of_c[1] + 5e-3
    assert 0.75 - 5e-3 <= use[3] <= 1.0 + 1e-9


def cpu_use(problem, name):
    division = divided(name, problem)
    assert_fits(problem, division)
    use = (division.tasks.T @ problem.demand) / problem.capacity
    assert use[:, 1] == pytest.approx(1.0, abs=1e-6)
    return use[:, 0]


def test_the_google_table_with_five_tenants():
    """Derived."""
    problem = the_google_problem(5)

    drfh, tsf, drf = (divided(name, problem) for name in ("drfh", "tsf", "drf"))

    assert levels(drfh) == pytest.approx([0.19990389] * 5, abs=5e-9)
    assert drfh.totals == pytest.approx(
        [85194.24, 85194.24, 42597.12, 21298.56, 10649.28], abs=5e-3
    )
    assert levels(drf) == pytest.approx([0.2] * 5, rel=1e-12)
    assert tsf.totals == pytest.approx([92559.55, 83352.91, 41676.46, 20838.23, 10419.11], abs=6e-3)


def test_the_google_table_with_nine_hundred_tenants():
    """Derived."""
    division = divided("drfh", the_google_problem(900))

    assert levels(division) == pytest.approx([0.00111058] * 900, abs=5e-9)
    assert division.totals[:5] == pytest.approx(
        np.array([85194.24, 85194.24, 42597.12, 21298.56, 10649.28]) / 180, rel=1e-6
    )
