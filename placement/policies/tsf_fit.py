"""TSF in whole VMs: the tenant of least task share is next, on the host of best shape."""

from __future__ import annotations

import numpy as np

from placement.model.vm_kinds import VmKinds
from placement.packing.buckets import FreeBuckets
from placement.packing.draft import Draft
from placement.policies.task_levels import fill_by_tasks, tasks_alone_on


def tsf_fit(draft: Draft, kinds: VmKinds, rng: np.random.Generator) -> None:
    """Give one VM at a time to the tenant of least ``x_i / (w_i sum over l of gamma[i, l])``.

    Notes
    -----
    Derived from task share fairness: ``gamma[i, l]`` are the tenant's VMs on the
    whole of host l alone, whether it may use that host or not. The VM goes to
    the fitting host of least H (`placement.packing.buckets.mismatch`); ties go to the
    first. For x_i of a tenant with several requests, or with VMs that run
    already, see `fill_by_tasks`.

    References
    ----------
    TSF as in Khamse-Ashari et al., "Per-Server Dominant-Share Fairness
    (PS-DSF)", 2016, Section II; H: Wang, Li, Liang, INFOCOM 2014, Section V.
    """
    del rng  # nothing is random
    fill_by_tasks(draft, kinds, _BestShapes(draft, kinds))


class _BestShapes:
    """Hosts in order of H; only `take` checks whether one has room."""

    def __init__(self, draft: Draft, kinds: VmKinds) -> None:
        snapshot = draft.snapshot
        self._buckets = FreeBuckets(draft.room, snapshot.host_class, snapshot.pool, kinds)
        capacity = snapshot.capacity[:, : snapshot.resource_count]
        self._alone = [
            float(tasks_alone_on(capacity, demand).sum())
            for demand in kinds.demand[:, : snapshot.resource_count]
        ]

    def vms_alone(self, kind: int, *, first: bool) -> float | None:
        """Return the sum of gamma over all hosts, None if no host could hold any."""
        del first
        return self._alone[kind] or None

    def take(self, kind: int, *, first: bool) -> int | None:
        """Place one VM on the fitting host of least H; None if there is none."""
        del first
        hosts = self._buckets.fill((kind,))
        return hosts[0] if hosts else None
