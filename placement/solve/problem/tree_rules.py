"""What makes the tenants of a file a tree in which only leaves ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from placement.solve.problem.faults import Faults, quoted
from placement.solve.problem.model import DemandEntry, TenantEntry

#: Tenants from the root's child down to a leaf.
MOST_LEVELS: Final = 100


def check_tree(tenants: Sequence[TenantEntry], faults: Faults) -> None:
    """Note cycles, and leaves too far down; each tenant is walked over once in all."""
    before = len(faults)
    depth: dict[int, int] = {}
    for start in range(len(tenants)):
        path: dict[int, None] = {}
        node: int | None = start
        while node is not None and node not in depth and node not in path:
            path[node] = None
            node = tenants[node].parent
        if node is not None and node in path:
            walked = list(path)
            circle = [tenants[index].name for index in walked[walked.index(node) :]]
            shown = " → ".join(map(quoted, [*circle[:6], circle[0]]))
            faults.add(("tenants", node, "parent"), f"the tenants' tree has a cycle: {shown}")
        below = 0 if node is None else depth.get(node, 0)
        depth.update((index, below + n) for n, index in enumerate(reversed(path), start=1))
    if len(faults) > before:
        return  # no depth in a circle
    for index, level in depth.items():
        if level == MOST_LEVELS + 1:
            faults.add(
                ("tenants", index, "parent"),
                f"the tenants' tree must have at most {MOST_LEVELS} levels",
            )


def check_groups(
    tenants: Sequence[TenantEntry], demands: Sequence[DemandEntry], faults: Faults
) -> None:
    """Note groups that ask or hold for themselves."""
    groups = {tenant.parent for tenant in tenants}
    for index, tenant in enumerate(tenants):
        if index in groups and any(tenant.held):
            faults.add(
                ("tenants", index, "held"),
                f"{quoted(tenant.name)} is the parent of others and must hold nothing itself",
            )
    for index, demand in enumerate(demands):
        if demand.tenant in groups:
            name = quoted(tenants[demand.tenant].name)
            faults.add(
                ("demands", index, "tenant"),
                f"{name} is the parent of others; only tenants without children may ask",
            )
