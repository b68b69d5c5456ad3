"""The tree of tenants as rounds see it, and where everybody stands in it."""

from __future__ import annotations

from uuid import UUID

import pytest

from controller.queries.tenant_shares import tenant_shares
from controller.rounds.tenant_trees import build_tenant_tree
from registry.rounds import Accounts, GroupView, TenantView


def a_tenant(number: int, parent: int | None = None, **fields) -> TenantView:
    values = {"name": f"t{number}", "weight": 1.0, "held": (0, 0)} | fields
    return TenantView(id=UUID(int=number), parent_id=parent and UUID(int=parent), **values)


def a_group(number: int, parent: int | None = None, weight: float = 1.0) -> GroupView:
    parent_id = parent and UUID(int=parent)
    return GroupView(id=UUID(int=number), name=f"g{number}", weight=weight, parent_id=parent_id)


def test_tenants_of_no_group_make_no_tree():
    assert build_tenant_tree([a_tenant(1), a_tenant(2)], [a_group(9)]) == (None, ())


def test_parents_stand_before_their_children_and_empty_groups_are_left_out():
    tenants = [a_tenant(1, 12), a_tenant(2), a_tenant(3, 11, weight=3.0)]

    tree, groups = build_tenant_tree(
        tenants, [a_group(12, 11), a_group(11, weight=2.0), a_group(13)]
    )

    assert tree is not None
    assert tree.parent == (-1, 0, 0, 1, 1, 3)
    assert tree.leaf == (5, 2, 4)
    assert tree.weight.tolist() == [1, 2, 1, 1, 3, 1]
    assert [(group.name, node) for group, node in groups] == [("g12", 3), ("g11", 1)]


def test_a_group_holds_what_its_tenants_hold_and_divides_what_is_its_own():
    accounts = Accounts(
        resources=("vcpus", "memory_mib"),
        pool=(100, 1000),
        tenants=(
            a_tenant(1, 11, held=(10, 0)),
            a_tenant(2, 11, held=(0, 200), weight=3.0),
            a_tenant(3),
        ),
        groups=(a_group(11), a_group(12)),
    )

    found = [(each.name, each.share, each.entitlement) for each in tenant_shares(accounts)]

    assert found == [
        ("g11", pytest.approx(0.2), pytest.approx(0.5)),
        ("t1", pytest.approx(0.1), pytest.approx(0.125)),
        ("t2", pytest.approx(0.2), pytest.approx(0.375)),
        ("g12", 0, 0),
        ("t3", 0, pytest.approx(0.5)),
    ]
