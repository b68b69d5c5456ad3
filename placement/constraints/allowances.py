"""Allowances: the VMs of each request that the tenants' quotas still allow."""

from __future__ import annotations

import dataclasses

import numpy as np

from placement.constraints.tree_weights import snapshot_without_tree
from placement.fairness.service_order import service_order_of_vms
from placement.model.arrays import IntArray
from placement.model.snapshot import Snapshot


class RemainingAllowances:
    """The quota allowances of a snapshot that remain while VMs are placed; changed in place.

    Parameters
    ----------
    snapshot : Snapshot
        The snapshot that has the ``allowances``.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.left = [each.room for each in snapshot.allowances]
        self._of_tenant: dict[int, list[int]] = {}
        for index, allowance in enumerate(snapshot.allowances):
            for tenant in allowance.tenants:
                self._of_tenant.setdefault(tenant, []).append(index)
        self._resource = [each.resource for each in snapshot.allowances]
        self._demand: list[list[int]] = snapshot.demand.tolist()
        self._tenant: list[int] = snapshot.tenant.tolist()

    def exceeded_by(self, request: int, count: int = 1) -> list[int]:
        """Return the quota allowances, by index, that ``count`` more VMs of a request exceed."""
        return [
            each for each, need in self._allowance_amounts(request, count) if need > self.left[each]
        ]

    def take(self, request: int, count: int = 1) -> None:
        """Subtract ``count`` placed VMs of a request from the quota allowances."""
        for each, need in self._allowance_amounts(request, count):
            self.left[each] -= need

    def fit(self, request: int, max_vms: int) -> int:
        """Return how many more VMs of a request the quotas allow, at most ``max_vms``."""
        for each, need in self._allowance_amounts(request, 1):
            if need > 0:
                max_vms = min(max_vms, max(0, self.left[each]) // need)
        return max_vms

    def requests_over_allowance(self, wanted: IntArray) -> set[int]:
        """Return the requests whose quotas do not allow all of ``wanted``, shape (Q,)."""
        requested = [0] * len(self.left)
        under: list[list[int]] = [[] for _ in self.left]
        for request in np.flatnonzero(wanted).tolist():
            for each, need in self._allowance_amounts(request, int(wanted[request])):
                requested[each] += need
                under[each].append(request)
        return {
            request
            for each, requests in enumerate(under)
            if requested[each] > self.left[each]
            for request in requests
        }

    def _allowance_amounts(self, request: int, count: int) -> list[tuple[int, int]]:
        """Return each quota allowance that a request's VMs use, and how much of it they use."""
        demand = self._demand[request]
        found = []
        for each in self._of_tenant.get(self._tenant[request], ()):
            resource = self._resource[each]
            found.append((each, count if resource is None else count * demand[resource]))
        return found


def vms_within_allowances(snapshot: Snapshot, wanted: IntArray) -> IntArray:
    """Return how many VMs of each request the quotas allow, shape (Q,).

    Parameters
    ----------
    snapshot : Snapshot
    wanted : ndarray of int64, shape (Q,)
        VMs of each request that are still to be placed.

    Notes
    -----
    A quota is divided as rounds divide the cluster (derived): one
    VM at a time goes to the tenant of least dominant share per weight. Ties go to the
    tenant whose request comes first. A tenant takes its requests in order. A gang
    takes ``min_count`` VMs at once or none.
    """
    rooms = RemainingAllowances(snapshot)
    short = rooms.requests_over_allowance(wanted)
    if not short:
        return wanted
    contested = np.zeros_like(wanted)
    contested[list(short)] = wanted[list(short)]
    for request in np.flatnonzero(wanted - contested).tolist():
        rooms.take(request, int(wanted[request]))
    minimum = snapshot.min_count.tolist()
    given = [0] * len(wanted)
    came = [0] * len(wanted)
    out: set[int] = set()
    for request in service_order_of_vms(
        snapshot_without_tree(snapshot), contested, snapshot.held
    ).tolist():
        came[request] += 1
        if request in out or came[request] <= given[request]:
            continue
        vms = 1 if given[request] else max(1, minimum[request])
        if rooms.exceeded_by(request, vms):
            out.add(request)
        else:
            rooms.take(request, vms)
            given[request] += vms
    within = wanted - contested
    within += np.array(given, dtype=np.int64)
    return within


def snapshot_within_allowances(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with counts reduced to its allowances, and the allowances removed."""
    if not snapshot.allowances:
        return snapshot
    counts = vms_within_allowances(snapshot, snapshot.count)
    return dataclasses.replace(snapshot, count=counts, allowances=())
