"""One policy for each zone, in turn: each zone gets the VMs that the zones before it left.

A zone is a label of hosts. Shares are carried along: what one zone gave counts
in the next, and both are parts of one pool.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from placement.model.arrays import IntArray
from placement.model.budget import Budget
from placement.model.details import Details, merge_details
from placement.model.reasons import unplaced_vms
from placement.model.row_groups import join_rows
from placement.model.snapshot import Allocation, LeftOut, Policy, Reason, Snapshot


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Zone:
    """Some hosts, and the policy that decides there."""

    name: str
    hosts: IntArray  #: (X,) indices of hosts
    policy: Policy


class ZonesPolicy:
    """A policy made of the policies of zones.

    Parameters
    ----------
    zones : sequence of Zone
        Zones in the order in which they decide. A host belongs to at most one zone. A
        host without a zone receives nothing.
    """

    def __init__(self, zones: Sequence[Zone]) -> None:
        self._zones = tuple(zones)

    def place(self, snapshot: Snapshot, rng: np.random.Generator, budget: Budget) -> Allocation:
        """Let each zone in turn decide on the VMs that are not placed yet.

        A gang is placed whole in one zone or not at all. ``details["zones"]``
        has the details of each zone's policy; those for explanations (`Details`)
        stands at the top as well, with the zone in front of what was cut.
        """
        decided: list[tuple[Zone, Allocation]] = []
        rest = snapshot
        for zone in self._zones:
            allocation = zone.policy.place(close_other_hosts(rest, zone.hosts), rng, budget)
            decided.append((zone, allocation))
            rest = rest.after_placing(allocation.placed)
        return Allocation(
            placed=join_rows(allocation.placed for _, allocation in decided),
            left_out=_unplaced_vms(snapshot, rest, decided),
            work=sum(allocation.work for _, allocation in decided),
            cut=any(allocation.cut for _, allocation in decided),
            details=_merged_details(decided),
        )


def close_other_hosts(snapshot: Snapshot, hosts: IntArray) -> Snapshot:
    """Return the snapshot in which only ``hosts``, (X,), take VMs; all hosts stay in the pool."""
    classes = snapshot.eligible.shape[1]
    host_class = snapshot.host_class.copy()
    host_class[hosts] += classes
    closed = np.zeros_like(snapshot.eligible)
    return dataclasses.replace(
        snapshot,
        host_class=host_class,
        eligible=np.concatenate([closed, snapshot.eligible], axis=1),
    )


def _unplaced_vms(
    snapshot: Snapshot, rest: Snapshot, decided: Sequence[tuple[Zone, Allocation]]
) -> tuple[LeftOut, ...]:
    """Return the unplaced VMs, with the reason of a zone or one that holds over all zones."""
    held_back = {
        left.request
        for _, allocation in decided
        for left in allocation.left_out
        if left.reason is Reason.HELD_BACK
    }
    return tuple(
        dataclasses.replace(left, reason=Reason.HELD_BACK) if left.request in held_back else left
        for left in unplaced_vms(snapshot, rest.count, rest.free)
    )


def _merged_details(decided: Sequence[tuple[Zone, Allocation]]) -> dict[str, Any]:
    """Return the joined details of all zones, and those of each zone by its name."""
    parts = [
        dataclasses.replace(
            details, cuts=tuple(f"zone {zone.name!r}: {cut}" for cut in details.cuts)
        )
        for zone, details in ((zone, Details.of(allocation)) for zone, allocation in decided)
    ]
    of_each = {zone.name: dict(allocation.details) for zone, allocation in decided}
    return {"zones": of_each, **merge_details(parts).document()}
