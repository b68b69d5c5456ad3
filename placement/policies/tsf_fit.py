"""TSF in whole VMs: the tenant of least task share is next, on the host of best shape."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.fairness.targets import fair_targets
from placement.filling.buckets import FreeBuckets
from placement.filling.draft import Draft
from placement.filling.gangs import fill_with_gangs
from placement.filling.overload import room_below
from placement.policies.task_levels import fill_by_tasks, tasks_alone_on
from placement.round.budget import Budget
from placement.round.model import Allocation, Snapshot
from placement.round.vm_kinds import VmKinds, vm_kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class TsfFit:
    """One VM at a time to the tenant of least ``x_i / (w_i sum over l of gamma[i, l])``.

    Notes
    -----
    Derived from task share fairness: ``gamma[i, l]`` are the tenant's VMs on the
    whole of host l alone, whether it may use that host or not. The VM goes to
    the fitting host of least H (`placement.filling.buckets.mismatch`), of equals the
    first. For x_i of a tenant with several requests, or with VMs that run
    already, see `fill_by_tasks`.

    References
    ----------
    TSF as in Khamse-Ashari et al., "Per-Server Dominant-Share Fairness
    (PS-DSF)", 2016, Section II; H: Wang, Li, Liang, INFOCOM 2014, Section V.
    """

    overload: float = 1.0  #: no host is filled above this part of its capacity

    def place(self, snapshot: Snapshot, rng: np.random.Generator, budget: Budget) -> Allocation:
        """Fill the hosts; nothing that fits is left out."""
        del rng, budget  # nothing is random, nothing is searched
        draft = Draft(snapshot, room_below(snapshot, self.overload))
        kinds = vm_kinds(snapshot)
        fill_with_gangs(
            draft,
            lambda: fill_by_tasks(draft, kinds, _BestShapes(draft, kinds)),
            lambda: fair_targets(snapshot),
        )
        return draft.allocation()


class _BestShapes:
    """Hosts by H; only `take` finds out whether one has room."""

    def __init__(self, draft: Draft, kinds: VmKinds) -> None:
        snapshot = draft.snapshot
        self._buckets = FreeBuckets(draft.room, snapshot.host_class, snapshot.pool, kinds)
        capacity = snapshot.capacity[:, : snapshot.counted]
        self._alone = [
            float(tasks_alone_on(capacity, demand).sum())
            for demand in kinds.demand[:, : snapshot.counted]
        ]

    def alone(self, kind: int, *, first: bool) -> float | None:
        """Return the sum of gamma over all hosts, None if no host could hold any."""
        del first
        return self._alone[kind] or None

    def take(self, kind: int, *, first: bool) -> int | None:
        """Place one VM on the fitting host of least H; None if there is none."""
        del first
        hosts = self._buckets.fill((kind,))
        return hosts[0] if hosts else None
