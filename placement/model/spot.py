"""Spot VMs: what a snapshot knows of them, and how the cluster would be without them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from placement.model.snapshot import Snapshot


def snapshot_without_spot(snapshot: Snapshot) -> Snapshot:
    """Return the cluster as if it had no spot VMs; fairness is computed on it."""
    spot = snapshot.spot
    if spot is None:
        return snapshot
    free = snapshot.free.copy()
    np.add.at(free, spot.host[spot.may_end], spot.amounts[spot.may_end])
    return dataclasses.replace(
        snapshot, spot=None, free=free, count=np.where(spot.asks, 0, snapshot.count)
    )
