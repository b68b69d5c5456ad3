"""Limits as extra columns after the resources: they bound VMs and count nowhere else."""

from __future__ import annotations

import dataclasses

import numpy as np

from placement.model.arrays import BoolArray
from placement.model.snapshot import Snapshot
from placement.model.vm_kinds import VmKinds


def is_limited(snapshot: Snapshot) -> BoolArray:
    """Return which requests a limit bounds, shape (Q,)."""
    bound: BoolArray = np.asarray((snapshot.demand[:, snapshot.resource_count :] > 0).any(axis=1))
    return bound


def snapshot_without_limits(snapshot: Snapshot, kinds: VmKinds) -> tuple[Snapshot, VmKinds]:
    """Return a snapshot and its kinds without limits (columns that are no resources)."""
    if not snapshot.limits:
        return snapshot, kinds
    counted = snapshot.resource_count
    plain = dataclasses.replace(
        snapshot,
        resources=snapshot.resources[:counted],
        capacity=snapshot.capacity[:, :counted],
        free=snapshot.free[:, :counted],
        demand=snapshot.demand[:, :counted],
        held=snapshot.held[:, :counted],
        limits=0,
    )
    return plain, VmKinds(kinds.demand[:, :counted], kinds.eligible, kinds.of_request)
