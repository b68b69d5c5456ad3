"""Skip rounds where nothing has changed since one that placed nothing."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

import numpy as np

from placement import Allocation, IntArray, QuotaHeadroom, Snapshot, TenantTree
from placement.constraints.starving_requests import waiting_levels
from placement.model.constraints import Constraints
from simulation.checkpoint import CheckpointData, read_array

#: Fields of a snapshot that decide, other than ages, trees, constraints and allowances.
_SEEN: Final = (
    "capacity",
    "free",
    "host_class",
    "eligible",
    "demand",
    "count",
    "min_count",
    "tenant",
    "weight",
    "held",
)
_WIDE: Final = frozenset({"capacity", "free", "demand", "held"})  #: one column for each resource


class LastIdleRound:
    """The snapshot and requests of the last simulated round, if it placed nothing."""

    def __init__(self, patience: int) -> None:
        self._patience = patience
        self.seen: tuple[Snapshot, IntArray] | None = None

    def record_round(self, snapshot: Snapshot, requests: IntArray, allocation: Allocation) -> None:
        """Record a simulated round; one that was cut might place something the next time."""
        idle = not len(allocation.placed) and not allocation.cut
        self.seen = (snapshot, requests) if idle else None

    def would_repeat(self, snapshot: Snapshot, requests: IntArray) -> bool:
        """Return whether a policy would see the same snapshot as in the last idle round."""
        if self.seen is None:
            return False
        before, waited = self.seen
        same = np.array_equal(waited, requests)
        return same and are_same_to_policies(before, snapshot, self._patience)

    def state(self) -> CheckpointData | None:
        """Return the last idle round for a checkpoint; None if there is none."""
        return None if self.seen is None else _idle_state(*self.seen)

    def restore(self, kept: CheckpointData | None, resources: tuple[str, ...]) -> None:
        """Restore the last idle round from a checkpoint."""
        self.seen = None if kept is None else _restored_snapshot(kept, resources)


def _idle_state(snapshot: Snapshot, requests: IntArray) -> CheckpointData:
    """Return the snapshot and requests of an idle round for a checkpoint."""
    tree, rules = snapshot.tree, snapshot.constraints
    return {
        "requests": requests,
        "arrays": {name: getattr(snapshot, name) for name in (*_SEEN, "age")},
        "tree": None if tree is None else tree.document(),
        "constraints": None if rules is None else rules.document(),
        "allowances": [asdict(each) for each in snapshot.allowances],
    }


def _restored_snapshot(
    kept: CheckpointData, resources: tuple[str, ...]
) -> tuple[Snapshot, IntArray]:
    """Return the snapshot and requests of an idle round from a checkpoint."""
    wide = (None, len(resources))
    arrays: dict[str, Any] = {
        name: read_array(
            kept["arrays"],
            name,
            {"eligible": "bool", "weight": "float"}.get(name, "int"),
            wide if name in _WIDE else (None, None) if name == "eligible" else (None,),
        )
        for name in (*_SEEN, "age")
    }
    tree, rules = kept["tree"], kept["constraints"]
    snapshot = Snapshot(
        resources=resources,
        tree=None if tree is None else TenantTree.from_document(tree),
        constraints=None if rules is None else Constraints.from_document(rules),
        allowances=tuple(map(QuotaHeadroom.from_document, kept["allowances"])),
        **arrays,
    )
    return snapshot, read_array(kept, "requests", "int", (None,))


def are_same_to_policies(before: Snapshot, now: Snapshot, patience: int) -> bool:
    """Return whether two snapshots are the same to a policy that placed nothing on the first.

    Ages of requests are compared only as far as they change decisions: by waiting levels, as
    in the digest of a round's inputs.
    """
    return (
        all(np.array_equal(getattr(before, name), getattr(now, name)) for name in _SEEN)
        and before.constraints == now.constraints
        and before.allowances == now.allowances
        and _are_same_trees(before.tree, now.tree)
        and np.array_equal(waiting_levels(before.age, patience), waiting_levels(now.age, patience))
    )


def _are_same_trees(before: TenantTree | None, now: TenantTree | None) -> bool:
    """Return whether two trees of tenants are equal."""
    if before is None or now is None:
        return before is now
    nodes = before.parent == now.parent and before.leaf == now.leaf
    return nodes and np.array_equal(before.weight, now.weight)
