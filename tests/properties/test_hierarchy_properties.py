"""What holds for mechanisms on trees of tenants, and where it stops holding."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.mechanisms import DivisibleProblem, TenantTree
from placement.mechanisms.check import check_division
from placement.mechanisms.hierarchies.flattening import Flattening, collapsed_weights
from placement.mechanisms.max_min.levels import normalised_demands
from tests.plain import hierarchies as plain
from tests.properties.divisible_problems import divisible_problems
from tests.trees import divided, held_by_nodes, in_tree, worst_envy

FLUID = ("mch", "mch_staged", "collapsed")
EVERY = (*FLUID, "hdrf", "naive_hdrf")
weights = st.sampled_from([1.0, 1.0, 2.0, 0.5])


@st.composite
def tree_problems(
    draw: st.DrawFn,
    *,
    single: bool = False,
    bounded: bool = True,
    held: bool = True,
    tasks: int = 8,
) -> DivisibleProblem:
    """Draw a pool of ``tasks`` or so tasks for each of some tenants in a random tree.

    ``single``: every task demands one resource alone.
    """
    tenants = draw(st.integers(1, 6))
    parents, groups = [-1], [0]
    for _ in range(draw(st.integers(0, 4))):
        parents.append(draw(st.sampled_from(groups)))
        groups.append(len(parents) - 1)
    leaves = []
    for _ in range(tenants):
        parents.append(draw(st.sampled_from(groups)))
        leaves.append(len(parents) - 1)
    amounts = st.integers(0, 4)
    if single:
        rows = [np.eye(3)[draw(st.integers(0, 2))] for _ in range(tenants)]
    else:
        rows = [[float(draw(amounts)) for _ in range(3)] for _ in range(tenants)]
    demand = np.array(rows)
    pool = np.array([float(draw(st.sampled_from([tasks, 2 * tasks, 3 * tasks]))) for _ in range(3)])
    if not single and draw(st.integers(0, 9)) == 0:
        pool[draw(st.integers(0, 2))] = 0.0
    problem = DivisibleProblem(
        resources=("cpu", "memory", "disk"),
        capacity=pool[None, :].copy(),
        free=np.floor(pool * draw(st.sampled_from([1.0, 1.0, 0.5])))[None, :],
        hosts=np.ones(1, dtype=np.int64),
        demand=demand,
        speed=np.ones((tenants, 1)),
        eligible=np.array([[draw(st.integers(0, 9)) > 0] for _ in range(tenants)]),
        count=np.array(
            [
                draw(st.sampled_from([np.inf, np.inf, 0.0, 1.0, 3.0])) if bounded else np.inf
                for _ in range(tenants)
            ]
        ),
        weight=np.ones(tenants),
        held=demand * np.array([[draw(st.integers(0, 2)) if held else 0] for _ in range(tenants)]),
    )
    return in_tree(problem, parents, leaves, [1.0, *(draw(weights) for _ in parents[1:])])


@given(problem=tree_problems(), name=st.sampled_from(EVERY))
def test_what_is_divided_fits_and_is_not_more_than_asked(
    problem: DivisibleProblem, name: str
) -> None:
    division = divided(name, problem)

    check_division(problem, division)
    assert division.pooled


@given(problem=tree_problems(), name=st.sampled_from(FLUID))
def test_who_wants_more_demands_something_that_is_used_up(
    problem: DivisibleProblem, name: str
) -> None:
    division = divided(name, problem)

    free = problem.free.sum(axis=0) - division.totals @ problem.demand
    used_up = free <= 1e-9 * np.maximum(problem.pool, 1.0)
    able = problem.eligible.any(axis=1) & problem.demand.any(axis=1)
    more = able & (division.totals < problem.count * (1 - 1e-9))
    for tenant in np.flatnonzero(more).tolist():
        assert (used_up & (problem.demand[tenant] > 0)).any()


@given(problem=tree_problems(), name=st.sampled_from(["hdrf", "naive_hdrf"]))
def test_whole_tasks_one_by_one_are_those_of_the_plain_way(
    problem: DivisibleProblem, name: str
) -> None:
    division = divided(name, problem)

    expected = plain.allocate_tasks(problem, rescale=name == "hdrf")
    assert division.totals.tolist() == expected.tolist()


@given(problem=tree_problems(), data=st.data())
def test_product_weights_are_those_of_a_recursion(
    problem: DivisibleProblem, data: st.DataObject
) -> None:
    active = np.array([data.draw(st.booleans()) for _ in problem.count])
    shape, _ = normalised_demands(problem.demand, problem.pool)

    found, _ = Flattening(problem.tree, shape).product_weights(active)

    expected = plain.product_weights(problem.tree, shape, active)
    asks = [t for t in expected if shape[t].any()]
    if asks:
        # Weights count relative to one another: the root's children may be scaled.
        scale = found[asks[0]] / expected[asks[0]]
        assert found[asks] == pytest.approx([scale * expected[tenant] for tenant in asks])


@given(problem=divisible_problems(max_classes=2, bounded=True, held=True, partly_free=True))
def test_a_flat_tree_in_stages_is_weighted_drf(problem: DivisibleProblem) -> None:
    flat = dataclasses.replace(problem, tree=TenantTree.flat(problem.weight))

    staged, drf = divided("mch_staged", flat), divided("drf", problem)

    assert staged.totals == pytest.approx(drf.totals, rel=1e-6, abs=1e-9)


@given(problem=divisible_problems(max_classes=2, bounded=True, weighted=False))
def test_a_flat_tree_of_equal_tenants_is_drf_for_mch(problem: DivisibleProblem) -> None:
    flat = dataclasses.replace(problem, tree=TenantTree.flat(problem.weight))

    assert divided("mch", flat).totals == pytest.approx(
        divided("drf", problem).totals, rel=1e-6, abs=1e-9
    )


@given(problem=tree_problems(), name=st.sampled_from(EVERY))
def test_a_group_of_one_changes_nothing(problem: DivisibleProblem, name: str) -> None:
    """Every leaf is put below a group that has its weight and no other child."""
    tree = problem.tree
    parents, node_weights = list(tree.parent), tree.weight.tolist()
    leaves = []
    for leaf in tree.leaf:
        parents.append(leaf)
        node_weights.append(1.0)
        leaves.append(len(parents) - 1)

    deeper = divided(name, in_tree(problem, parents, leaves, node_weights))

    assert deeper.totals == pytest.approx(divided(name, problem).totals, rel=1e-9, abs=1e-9)


@given(problem=tree_problems(), name=st.sampled_from(FLUID), data=st.data())
def test_the_order_of_tenants_does_not_matter(
    problem: DivisibleProblem, name: str, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(problem.count))))
    tree = problem.tree
    permuted = dataclasses.replace(
        problem,
        tree=dataclasses.replace(tree, leaf=tuple(tree.leaf[each] for each in order)),
        **{
            field: getattr(problem, field)[list(order)]
            for field in ("demand", "speed", "eligible", "count", "weight", "held")
        },
    )

    found = divided(name, permuted).totals

    assert found == pytest.approx(divided(name, problem).totals[list(order)], rel=1e-6, abs=1e-9)


@given(problem=tree_problems(), name=st.sampled_from(EVERY), factor=st.sampled_from([1e-6, 1024.0]))
def test_the_unit_of_a_resource_does_not_matter(
    problem: DivisibleProblem, name: str, factor: float
) -> None:
    scale = np.array([1.0, factor, 1.0])
    scaled = dataclasses.replace(
        problem,
        **{
            field: getattr(problem, field) * scale
            for field in ("capacity", "free", "demand", "held")
        },
    )

    assert divided(name, scaled).totals == pytest.approx(
        divided(name, problem).totals, rel=1e-6, abs=1e-9
    )


# ------------------------------------------- the hierarchical share guarantee


@given(problem=tree_problems(tasks=60, held=False))
def test_hdrf_keeps_the_share_guarantee_up_to_a_task(problem: DivisibleProblem) -> None:
    task = problem.demand / np.where(problem.pool > 0, problem.pool, 1.0)
    largest = task.max(initial=0.0)

    envy = worst_envy(problem, divided("hdrf", problem), slack=largest + 1e-9)

    # A task more on a path, a task less on its sibling's, weighed by at least 1/2;
    # and a node's siblings may be ahead of it by what its own children lag behind.
    assert envy <= 2 * 3 * 5 * largest


@given(problem=tree_problems(single=True, bounded=False, held=False))
def test_staged_mch_keeps_the_share_guarantee_where_stopped_jobs_are_out_of_the_way(
    problem: DivisibleProblem,
) -> None:
    """Each job wants one resource, without end: who stopped holds none that is still wanted."""
    assert worst_envy(problem, divided("mch_staged", problem)) <= 1e-6


@given(problem=tree_problems(single=True, bounded=False, held=False, tasks=400))
def test_in_the_fluid_limit_the_poorest_group_has_in_stages_what_hdrf_gives_it(
    problem: DivisibleProblem,
) -> None:
    """The least share per weight among the root's children is that of H-DRF."""
    tree = problem.tree
    one_by_one = held_by_nodes(problem, divided("hdrf", problem)).max(axis=1)
    in_stages = held_by_nodes(problem, divided("mch_staged", problem)).max(axis=1)

    top = [node for node in tree.children(0) if one_by_one[node] > 0]

    task = (problem.demand / problem.pool).max()
    if top:
        weight = tree.weight[top]
        assert (in_stages[top] / weight).min() == pytest.approx(
            (one_by_one[top] / weight).min(), abs=2 * 3 * 5 * task
        )


@given(problem=tree_problems(bounded=False, held=False))
def test_collapsed_weights_of_one_resource_add_up_to_one(problem: DivisibleProblem) -> None:
    active = problem.eligible.any(axis=1)

    found = collapsed_weights(problem.tree, problem.demand, problem.pool, active, 0)

    shape, _ = normalised_demands(problem.demand, problem.pool)
    counted = active & (shape[:, 0] > 0)
    assert (found > 0).all()
    if counted.any():
        assert found[counted].sum() == pytest.approx(1.0)
