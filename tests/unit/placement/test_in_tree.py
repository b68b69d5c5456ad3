"""Trees of tenants in whole-VM policies: weights that stand for them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from placement import Budget, Snapshot, TenantTree, check_allocation, policy_by_name, shares_after
from placement.constraints.tree_weights import snapshot_without_tree
from placement.model.tenant_tree import MalformedTreeError
from tests.builders import a_snapshot

CPU, MEMORY = (1, 0), (0, 1)


def in_tree(
    snapshot: Snapshot, parent: tuple[int, ...], leaf: tuple[int, ...], weight: object = None
) -> Snapshot:
    weights = np.ones(len(parent)) if weight is None else np.array(weight, dtype=np.float64)
    return dataclasses.replace(snapshot, tree=TenantTree(parent=parent, weight=weights, leaf=leaf))


def two_groups(count: int = 1000) -> Snapshot:
    """Group a with three CPU and two memory jobs, b with two and one, in 240 of each."""
    demand = [CPU, CPU, CPU, MEMORY, MEMORY, CPU, CPU, MEMORY]
    snapshot = a_snapshot(capacity=[(24, 24)] * 10, demand=demand, count=count)
    return in_tree(snapshot, (-1, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2), tuple(range(3, 11)))


def placed(name: str, snapshot: Snapshot) -> np.ndarray:
    allocation = policy_by_name(name, {}).place(snapshot, np.random.default_rng(0), Budget())
    check_allocation(snapshot, allocation)
    return shares_after(snapshot, allocation)


def test_a_snapshot_without_a_tree_is_left_alone() -> None:
    snapshot = a_snapshot()

    assert snapshot_without_tree(snapshot) is snapshot


def test_weights_are_what_staged_mch_lets_each_tenant_claim() -> None:
    flat = snapshot_without_tree(two_groups())

    assert flat.tree is None
    expected = np.array([1 / 6, 1 / 6, 1 / 6, 1 / 4, 1 / 4, 1 / 4, 1 / 4, 1 / 2])
    assert flat.weight == pytest.approx(expected / expected.max())


def test_who_only_holds_counts_among_its_siblings() -> None:
    """Tenants 0 and 1 are one group: half of what the group may claim is tenant 1's."""
    snapshot = a_snapshot(
        capacity=[(24, 24)],
        free=[(18, 24)],
        demand=[CPU, CPU],
        count=1000,
        tenant=[0, 2],
        weight=[1.0, 1.0, 1.0],
        held=[(0, 0), (6, 0), (0, 0)],
    )

    flat = snapshot_without_tree(in_tree(snapshot, (-1, 0, 1, 1, 0), (2, 3, 4)))

    assert flat.weight[0] / flat.weight[2] == pytest.approx(0.5)


@pytest.mark.parametrize("name", ["best_fit_drfh", "best_fit_hdrf", "fuga"])
def test_groups_share_as_their_tree_says(name: str) -> None:
    shares = placed(name, two_groups())

    assert shares == pytest.approx([1 / 6] * 3 + [1 / 4] * 4 + [1 / 2], abs=2.1 / 240)


def test_asking_for_more_than_there_is_raises_nobodys_weight() -> None:
    assert snapshot_without_tree(two_groups(count=1000)).weight == pytest.approx(
        snapshot_without_tree(two_groups(count=1_000_000)).weight
    )


def test_where_all_fits_weights_do_not_grow_with_what_is_asked_for() -> None:
    snapshot = a_snapshot(capacity=[(100, 100)], demand=[(1, 1)] * 3, count=[1, 30, 60])

    weights = snapshot_without_tree(in_tree(snapshot, (-1, 0, 0, 0), (1, 2, 3))).weight

    assert weights == pytest.approx([1, 1, 1])


def test_a_tenant_that_is_served_leaves_its_weight_to_its_siblings() -> None:
    snapshot = a_snapshot(capacity=[(100, 100)], demand=[(1, 1)] * 3, count=[2, 1000, 1000])

    weights = snapshot_without_tree(in_tree(snapshot, (-1, 0, 1, 1, 0), (2, 3, 4))).weight

    assert weights[1] == pytest.approx(weights[2])


def test_weights_of_nodes_count_relative_to_their_siblings() -> None:
    snapshot = a_snapshot(capacity=[(120, 120)], demand=[(1, 1)] * 3, count=1000)
    tree = in_tree(snapshot, (-1, 0, 1, 1, 0), (2, 3, 4), weight=[1, 2, 30, 10, 1])

    for name in ("best_fit_drfh", "best_fit_hdrf"):
        assert placed(name, tree) == pytest.approx([1 / 2, 1 / 6, 1 / 3], abs=0.02), name


def test_nobody_asking_gives_everybody_the_same_weight() -> None:
    snapshot = a_snapshot(demand=[(1, 1, 1)] * 2, count=0)

    assert snapshot_without_tree(in_tree(snapshot, (-1, 0, 1, 0), (2, 3))).weight.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("parent", "leaf", "message"),
    [
        ((-1, 2, 0), (1,), "does not stand before it"),
        ((0, 0), (1,), "does not stand before it"),
        ((-1, 0, 1), (1,), "is not a leaf"),
        ((-1, 0), (1, 1), "is not a leaf"),
        ((-1, 0), (0,), "is not a leaf"),
        ((-1, 0), (7,), "is not a leaf"),
    ],
)
def test_a_malformed_tree_is_refused(
    parent: tuple[int, ...], leaf: tuple[int, ...], message: str
) -> None:
    with pytest.raises(MalformedTreeError, match=message):
        TenantTree(parent=parent, weight=np.ones(len(parent)), leaf=leaf)


def test_a_weight_of_nought_is_refused() -> None:
    with pytest.raises(MalformedTreeError, match="not above 0"):
        TenantTree(parent=(-1, 0), weight=np.array([1.0, 0.0]), leaf=(1,))
