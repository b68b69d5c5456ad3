"""One policy for each zone, in turn: what a zone does not place, the next may.

A zone is a label of hosts. Shares are carried along: what one zone gave counts
in the next, and both are parts of one pool.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from placement.allowances import allowances_after
from placement.budget import Budget
from placement.model import Allocation, IntArray, LeftOut, Policy, Reason, Snapshot
from placement.reasons import left_out


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Zone:
    """Some hosts, and who decides there."""

    name: str
    hosts: IntArray  #: indices of H
    policy: Policy


class InZones:
    """A policy made of the policies of zones.

    Parameters
    ----------
    zones : sequence of Zone
        In the order in which they decide; a host belongs to one at most. A host
        of no zone receives nothing.
    """

    def __init__(self, zones: Sequence[Zone]) -> None:
        self._zones = tuple(zones)

    def place(self, snapshot: Snapshot, rng: np.random.Generator, budget: Budget) -> Allocation:
        """Let each zone decide on what is still asked for.

        A gang is placed whole in one zone or not at all. ``details["zones"]``
        has what each zone's policy tells; what it tells of hosts (``weighed``),
        of hosts held back (``holding``), of gangs and of phases stands at the top
        as well, where explanations look.
        """
        placed: list[IntArray] = []
        decided: list[tuple[Zone, Allocation]] = []
        rest = snapshot
        for zone in self._zones:
            allocation = zone.policy.place(only_in(rest, zone.hosts), rng, budget)
            decided.append((zone, allocation))
            placed.append(allocation.placed)
            rest = after(rest, allocation.placed)
        rows = np.concatenate([np.zeros((0, 3), dtype=np.int64), *placed])
        return Allocation(
            placed=rows[np.lexsort((rows[:, 1], rows[:, 0]))],
            left_out=_left_out(snapshot, rest, decided),
            work=sum(allocation.work for _, allocation in decided),
            cut=any(allocation.cut for _, allocation in decided),
            details=_details(decided),
        )


def only_in(snapshot: Snapshot, hosts: IntArray) -> Snapshot:
    """Return the snapshot with every other host closed; all of them stay in the pool."""
    classes = snapshot.eligible.shape[1]
    host_class = snapshot.host_class.copy()
    host_class[hosts] += classes
    closed = np.zeros_like(snapshot.eligible)
    return dataclasses.replace(
        snapshot,
        host_class=host_class,
        eligible=np.concatenate([closed, snapshot.eligible], axis=1),
    )


def after(snapshot: Snapshot, placed: IntArray) -> Snapshot:
    """Return the snapshot once rows of (request, host, count), shape (P, 3), are placed."""
    requests, hosts, counts = placed.T
    amounts = counts[:, None] * snapshot.demand[requests]
    free, held, count = snapshot.free.copy(), snapshot.held.copy(), snapshot.count.copy()
    np.subtract.at(free, hosts, amounts)
    np.add.at(held, snapshot.tenant[requests], amounts)
    np.subtract.at(count, requests, counts)
    min_count = snapshot.min_count.copy()
    min_count[requests] = 1  # it binds only the first that places the request
    return dataclasses.replace(
        snapshot,
        free=free,
        held=held,
        count=count,
        min_count=min_count,
        allowances=allowances_after(snapshot, placed),
    )


def _left_out(
    snapshot: Snapshot, rest: Snapshot, decided: Sequence[tuple[Zone, Allocation]]
) -> tuple[LeftOut, ...]:
    """Return what no zone placed: held back if one zone says so, else judged over all hosts."""
    held_back = {
        left.request
        for _, allocation in decided
        for left in allocation.left_out
        if left.reason is Reason.HELD_BACK
    }
    return tuple(
        dataclasses.replace(left, reason=Reason.HELD_BACK) if left.request in held_back else left
        for left in left_out(snapshot, rest.count, rest.free)
    )


def _details(decided: Sequence[tuple[Zone, Allocation]]) -> dict[str, Any]:
    details: dict[str, Any] = {
        "zones": {zone.name: dict(allocation.details) for zone, allocation in decided}
    }
    weighed: dict[str, Any] = {}
    rows: dict[str, list[Any]] = {"phase": []}
    for _, allocation in decided:
        weighed |= allocation.details.get("weighed", {})
        for key in ("phase", "gangs", "holding"):
            if key in allocation.details:
                rows.setdefault(key, []).extend(allocation.details[key])
    return details | {"weighed": weighed} | {key: sorted(each) for key, each in rows.items()}
