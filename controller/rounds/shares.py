"""The shares that a round records: of tenants and groups, before and after it, and fair ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from controller.rounds.draft import RoundDraft
from placement import IntArray, dominant_shares, fair_distance, fractions_of_pool, shares_in_tree
from placement.fairness.memory import parts_of_level
from placement.model.spot import ordinary_snapshot
from registry.rounds import RoundHoldings


def record_shares(draft: RoundDraft) -> None:
    """Fill ``shares``, ``group_shares``, ``holdings`` and ``fair_distance``.

    They follow from the allocation and the ideal.
    """
    snapshot = draft.snapshot
    held_after = snapshot.after_placing(draft.allocation.placed).held
    draft.shares = _tenant_shares(draft, held_after)
    draft.group_shares = _group_shares(draft, held_after)
    counted = snapshot.resource_count
    draft.holdings = RoundHoldings(
        resources=snapshot.resources[:counted],
        pool=tuple(snapshot.pool[:counted].tolist()),
        before=snapshot.held[:, :counted].tolist(),
        after=held_after[:, :counted].tolist(),
        past=None if snapshot.memory is None else snapshot.memory.past,
    )
    draft.fair_distance = _fair_distance(draft.shares)


def _tenant_shares(draft: RoundDraft, held_after: IntArray) -> tuple[dict[str, Any], ...]:
    """Return every tenant's dominant shares of the whole pool, and its number of waiting VMs."""
    snapshot, ideal = draft.snapshot, draft.ideal
    before = dominant_shares(snapshot.held, snapshot.pool)
    after = dominant_shares(held_after, snapshot.pool)
    shared = ordinary_snapshot(snapshot).count
    waiting = np.bincount(snapshot.tenant, weights=shared, minlength=len(before))
    for request, _, count in draft.drawn:
        waiting[snapshot.tenant[request]] += count
    remembered = _remembered_shares(draft, held_after)
    return tuple(
        {
            "tenant": name,
            "weight": float(snapshot.weight[index]),
            "before": float(before[index]),
            "after": float(after[index]),
            "target": None if ideal is None else ideal.target_shares[index],
            "asked": int(waiting[index]),
            **remembered[index],
        }
        for index, (_, name) in enumerate(draft.names.tenants)
    )


def _remembered_shares(draft: RoundDraft, held_after: IntArray) -> list[dict[str, Any]]:
    """Return both parts of each tenant's level after the round, if past holdings count.

    They are parts of the pool in the dominant resource of their sum, not per weight.
    """
    snapshot = draft.snapshot
    if snapshot.memory is None:
        return [{}] * len(held_after)
    past, now = parts_of_level(snapshot.memory, held_after, snapshot.pool)
    dominant = (past + now).argmax(axis=1)
    return [
        {"level": {"past": float(past[tenant, each]), "now": float(now[tenant, each])}}
        for tenant, each in enumerate(dominant.tolist())
    ]


def _group_shares(draft: RoundDraft, held_after: IntArray) -> tuple[dict[str, Any], ...]:
    """Return the dominant share of every group of tenants; none without groups."""
    snapshot, ideal, tree = draft.snapshot, draft.ideal, draft.snapshot.tree
    if tree is None:
        return ()
    before, after = (
        shares_in_tree(tree, fractions_of_pool(held, snapshot.pool))
        for held in (snapshot.held, held_after)
    )
    name_of = {node: name for _, name, node in draft.names.groups}
    return tuple(
        {
            "group": name,
            "parent": name_of.get(tree.parent[node]),
            "weight": float(tree.weight[node]),
            "before": float(before[node]),
            "after": float(after[node]),
            "target": None if ideal is None else ideal.node_targets[node],
        }
        for _, name, node in draft.names.groups
    )


def _fair_distance(shares: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the distance of the shares from the fair ones; None if those are not known."""
    targets = [each["target"] for each in shares]
    if None in targets:
        return None
    return fair_distance(np.array([each["after"] for each in shares]), np.array(targets))
