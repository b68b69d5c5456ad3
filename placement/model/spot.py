"""The cluster as if nobody requested spot or borrowed VMs; fairness is computed on it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from placement.model.snapshot import Snapshot


def ordinary_snapshot(snapshot: Snapshot) -> Snapshot:
    """Return the cluster with its ordinary requests alone; fairness is computed on it.

    It has no spot VMs. Borrowed VMs stay, as they count in the share; no more are requested.
    """
    borrowed = snapshot.borrowed
    if borrowed is not None:
        count = np.where(borrowed.asks, 0, snapshot.count)
        snapshot = dataclasses.replace(snapshot, borrowed=None, count=count)
    spot = snapshot.spot
    if spot is None:
        return snapshot
    free = snapshot.free.copy()
    np.add.at(free, spot.host[spot.may_end], spot.amounts[spot.may_end])
    return dataclasses.replace(
        snapshot, spot=None, free=free, count=np.where(spot.asks, 0, snapshot.count)
    )
