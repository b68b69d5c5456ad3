"""What holds of PS-DSF on clusters of every shape; uniqueness and Pareto optimality do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placement.catalog.names import mechanism_by_name
from placement.errors import ParameterError
from placement.mechanisms.psdsf.published_procedure import PublishedProcedure
from placement.mechanisms.psdsf.residual import theorem1_residual
from placement.mechanisms.psdsf.servers import build_servers, held_tasks
from placement.mechanisms.psdsf.sweeps import (
    ScheduledStep,
    distributed_steps,
    sweep_until_converged,
)
from placement.mechanisms.psdsf.water_filling import WaterFilling
from placement.mechanisms.tasks_alone import tasks_alone
from tests.divisible import a_divisible_problem, assert_fits, divided, the_google_problem
from tests.plain.plain_psdsf import PlainPsdsf

#: Units of resources: cores, bytes, and something counted in billionths.
UNITS = ((1.0, 1.0, 1.0), (1.0, 2.0**40, 2.0**-30), (2.0**-20, 1.0, 2.0**50))


@st.composite
def problems(
    draw, *, max_tenants=5, max_classes=4, min_classes=1, bounded=True, used=True, speeds=True
):
    resources = draw(st.integers(1, 3))
    tenants, classes = (
        draw(st.integers(1, max_tenants)),
        draw(st.integers(min_classes, max_classes)),
    )
    units = np.array(draw(st.sampled_from(UNITS)))[:resources]

    def table(rows, columns, values):
        drawn = [[draw(values) for _ in range(columns)] for _ in range(rows)]
        return np.array(drawn, dtype=np.float64).reshape(rows, columns)

    capacity = table(classes, resources, st.sampled_from([0, 1, 4, 8, 8, 12, 100]))
    left = table(classes, resources, st.sampled_from([1.0, 1.0, 0.5, 0.25, 0.0]))
    bounds = st.sampled_from([np.inf, np.inf, 0.0, 0.5, 3.0, 20.0])
    holds = table(tenants, resources, st.sampled_from([0, 0, 1, 3]))
    return a_divisible_problem(
        capacity * units,
        table(tenants, resources, st.sampled_from([0, 0.5, 1, 1, 2, 3])) * units,
        weight=table(tenants, 1, st.sampled_from([1.0, 1.0, 2.0, 0.25]))[:, 0],
        eligible=table(tenants, classes, st.sampled_from([1, 1, 1, 0])),
        speed=table(tenants, classes, st.sampled_from([1, 1, 2, 0.5])) if speeds else None,
        count=table(tenants, 1, bounds)[:, 0] if bounded else None,
        free=capacity * units * left if used else None,
        held=holds * units if used else None,
    )


def psdsf(problem, **parameters):
    return mechanism_by_name("psdsf", parameters).divide(problem, np.random.default_rng(0))


def elsewhere_of(problem, server, tasks):
    return (held_tasks(problem) + tasks.sum(axis=1) - tasks[:, server.place])[server.tenants]


@st.composite
def servers_with_tasks(draw):
    """Draw a problem and a feasible matrix: what servers do in some order from nothing."""
    problem = draw(problems())
    steps = draw(st.lists(st.integers(0, len(problem.hosts) - 1), max_size=6))
    tasks = np.zeros(problem.eligible.shape)
    for after in distributed_steps(problem, [ScheduledStep(each) for each in steps]):
        tasks = after
    if draw(st.booleans()):
        tasks = tasks * 0.5
    return problem, tasks


@settings(max_examples=200)
@given(drawn=servers_with_tasks())
def test_a_step_is_the_plain_step(drawn):
    problem, tasks = drawn
    plain = PlainPsdsf(problem)
    for server in build_servers(problem):
        elsewhere = tasks.sum(axis=1) - tasks[:, server.place]

        new = WaterFilling()(
            server, elsewhere_of(problem, server, tasks), tasks[server.tenants, server.place]
        )

        exact = np.array([float(each) for each in plain.fill(server.place, elsewhere.tolist())])
        assert new == pytest.approx(
            exact[server.tenants], rel=1e-7, abs=1e-7 * server.rate.max(initial=0)
        )


@settings(max_examples=200)
@given(drawn=servers_with_tasks())
def test_the_published_procedure_ends_where_water_filling_does(drawn):
    problem, tasks = drawn
    for server in build_servers(problem):
        elsewhere = elsewhere_of(problem, server, tasks)
        here = tasks[server.tenants, server.place]

        published = PublishedProcedure()(server, elsewhere, here)

        water = WaterFilling()(server, elsewhere, here)
        assert published / server.rate == pytest.approx(water / server.rate, rel=1e-6, abs=1e-8)


@given(drawn=servers_with_tasks(), guesses=st.lists(st.floats(0, 100), max_size=3))
def test_a_step_does_not_depend_on_where_the_search_begins(drawn, guesses):
    problem, tasks = drawn
    for server in build_servers(problem):
        elsewhere = elsewhere_of(problem, server, tasks)
        here = tasks[server.tenants, server.place]
        biased = WaterFilling()
        biased._last[server.place] = guesses

        found = biased(server, elsewhere, here)

        assert found / server.rate == pytest.approx(
            WaterFilling()(server, elsewhere, here) / server.rate, rel=1e-9, abs=1e-9
        )


@settings(max_examples=150)
@given(problem=problems())
def test_every_division_fits_and_passes_theorem_1(problem):
    division = psdsf(problem)

    assert_fits(problem, division)
    assert division.details["residual"] == theorem1_residual(problem, division.tasks)
    assert division.details["residual"] < 1e-6


@settings(max_examples=100)
@given(problem=problems())
def test_the_published_procedure_passes_theorem_1(problem):
    division = psdsf(problem, procedure="published")

    assert_fits(problem, division)
    assert division.details["residual"] < 1e-6


@settings(max_examples=100)
@given(problem=problems(), seed=st.integers(0, 3))
def test_servers_that_run_by_themselves_pass_theorem_1(problem, seed):
    mechanism = mechanism_by_name("psdsf", {"procedure": "distributed"})

    division = mechanism.divide(problem, np.random.default_rng(seed))

    assert_fits(problem, division)
    assert division.details["residual"] < 1e-6


@settings(max_examples=100)
@given(problem=problems(bounded=False, used=False))
def test_nobody_envies_another_on_the_servers_it_may_use(problem):
    division = psdsf(problem)

    tasks, totals = division.tasks, division.totals
    for i in range(len(totals)):
        requested = problem.demand[i] > 0
        if not requested.any():
            continue
        for j in range(len(totals)):
            bundle = tasks[j][:, None] * problem.demand[j] / problem.speed[j][:, None]
            runs = (bundle[:, requested] / problem.demand[i, requested]).min(
                axis=1
            ) * problem.speed[i]
            gain = runs[problem.eligible[i]].sum() * problem.weight[i] / problem.weight[j]
            assert totals[i] >= gain * (1 - 1e-6) - 1e-12


@settings(max_examples=100)
@given(problem=problems(bounded=False, used=False))
def test_everybody_has_at_least_its_part_of_every_server(problem):
    totals = psdsf(problem).totals

    part = problem.weight / problem.weight.sum()
    least = part * tasks_alone(problem).sum(axis=1)
    assert (totals >= least * (1 - 1e-6)).all()


@given(problem=problems(max_classes=1, speeds=False, used=False))
def test_on_one_server_it_is_drf(problem):
    drf = divided("drf", replace(problem, eligible=np.ones_like(problem.eligible)))
    open_to_all = replace(problem, eligible=np.ones_like(problem.eligible))

    division = psdsf(open_to_all)

    scale = tasks_alone(open_to_all).max(initial=0.0)
    assert division.totals == pytest.approx(drf.totals, rel=1e-7, abs=1e-9 * scale)


@given(problem=problems(), order=st.randoms(use_true_random=False))
def test_whatever_the_order_of_servers_tenants_and_resources_it_passes(problem, order):
    tenants, classes, resources = (
        order.sample(range(size), size)
        for size in (*problem.eligible.shape, len(problem.resources))
    )
    renamed = replace(
        problem,
        capacity=problem.capacity[classes][:, resources],
        free=problem.free[classes][:, resources],
        hosts=problem.hosts[classes],
        demand=problem.demand[tenants][:, resources],
        held=problem.held[tenants][:, resources],
        speed=problem.speed[tenants][:, classes],
        eligible=problem.eligible[tenants][:, classes],
        count=problem.count[tenants],
        weight=problem.weight[tenants],
    )

    division = psdsf(renamed)

    assert_fits(renamed, division)
    back = np.zeros_like(division.tasks)
    back[np.ix_(tenants, classes)] = division.tasks
    assert theorem1_residual(problem, back) < 1e-6


@settings(max_examples=40)
@given(problem=problems(), random=st.randoms(use_true_random=False))
def test_servers_on_their_own_schedules_settle_while_users_come_and_go(problem, random):
    tenants, classes = problem.eligible.shape
    active = np.array([random.random() < 0.6 for _ in range(tenants)])

    def rounds(number, asking):
        for _ in range(number):
            for _ in range(2 * classes):
                yield ScheduledStep(random.randrange(classes), asking)
            for server in random.sample(range(classes), classes):
                yield ScheduledStep(server, asking)

    steps = list(distributed_steps(problem, [*rounds(3, None), *rounds(60, active)]))

    for tasks in steps:
        used = np.einsum("nk,nr->kr", tasks / problem.speed, problem.demand)
        assert (used <= problem.free * (1 + 1e-9)).all()
    assert not steps[-1][~active].any()
    remaining = replace(problem, eligible=problem.eligible & active[:, None])
    assert theorem1_residual(remaining, steps[-1]) < 1e-3


@settings(max_examples=60)
@given(problem=problems())
def test_the_last_step_leaves_nobody_with_less(problem):
    before = psdsf(problem)

    after = psdsf(problem, pareto=True)

    assert_fits(problem, after)
    assert after.details["pareto_factor"] >= 1
    least = np.minimum(before.totals * after.details["pareto_factor"], problem.count)
    assert (after.totals >= least * (1 - 1e-6)).all()


@given(problem=problems(max_classes=2), times=st.integers(2, 4))
def test_equal_servers_are_divided_as_one(problem, times):
    classes = np.repeat(np.arange(len(problem.hosts)), times)
    repeated = replace(
        problem,
        capacity=problem.capacity[classes],
        free=problem.free[classes],
        hosts=problem.hosts[classes],
        speed=problem.speed[:, classes],
        eligible=problem.eligible[:, classes],
    )

    division = psdsf(repeated)

    assert_fits(repeated, division)
    assert division.details["residual"] < 1e-6


@given(problem=problems(bounded=False), part=st.floats(0.2, 0.8))
def test_theorem_1_notices_what_was_not_divided(problem, part):
    tasks = psdsf(problem).tasks
    assume(tasks.any())

    assert theorem1_residual(problem, tasks * part) > 0.01
    assert theorem1_residual(problem, tasks * 2) == np.inf


@settings(max_examples=20)
@given(problem=problems(max_tenants=4, max_classes=3, bounded=False))
def test_sweeps_are_the_plain_sweeps(problem):
    plain = np.array([[float(each) for each in row] for row in PlainPsdsf(problem).sweeps(6)])

    settled = sweep_until_converged(problem, max_rounds=6, tolerance=0.0)

    assert settled.leaps == 0
    gamma = tasks_alone(problem)
    parts = [
        np.divide(x, gamma, out=np.zeros_like(x), where=gamma > 0) for x in (settled.tasks, plain)
    ]
    assert parts[0] == pytest.approx(parts[1], abs=1e-6)


def test_900_tenants_on_the_google_table_share_it_in_proportion():
    problem = the_google_problem(900)

    division = psdsf(problem)

    assert division.details["residual"] < 1e-9
    # Equals have equally much.
    assert division.totals.reshape(180, 5) == pytest.approx(
        np.tile(division.totals[:5], (180, 1)), rel=1e-9
    )


def test_leaps_end_where_plain_sweeps_do():
    rng = np.random.default_rng(2)
    table = the_google_problem(5)
    problem = a_divisible_problem(table.capacity, rng.uniform(0.002, 0.02, (60, 2)))
    slow = sweep_until_converged(problem, max_rounds=3000, procedure="published", tolerance=1e-10)

    fast = sweep_until_converged(problem, max_rounds=3000)

    assert fast.leaps > 0
    assert fast.rounds < slow.rounds
    assert theorem1_residual(problem, fast.tasks) < 1e-8
    assert theorem1_residual(problem, slow.tasks) < 1e-6
    assert fast.tasks.sum(axis=1) == pytest.approx(slow.tasks.sum(axis=1), rel=1e-4)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("procedure", "fast"),
        ("procedure", ["published"]),
        ("max_rounds", 0),
        ("max_rounds", 2.5),
        ("max_rounds", True),
        ("tolerance", float("nan")),
        ("tolerance", -1),
        ("tolerance", "small"),
        ("pareto", 1),
        ("speed", 3),
    ],
)
def test_a_parameter_that_is_not_allowed_is_named(name, value):
    with pytest.raises(ParameterError, match=name):
        mechanism_by_name("psdsf", {name: value})
