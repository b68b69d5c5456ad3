"""Choose the resources that rank combinations: cores and memory, or scarce ones."""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from placement.errors import ParameterError
from placement.fairness.shares import fractions_of_pool
from placement.model.arrays import IntArray
from placement.model.snapshot import Snapshot

Ranking = tuple[str, ...] | Literal["auto"] | None

#: A resource runs short that is needed by at least this part of what the shortest one is.
_SHORT: Final = 0.8
#: The first resources of a cluster: CPU and memory.
_FIRST: Final = 2


def ranking_resources(snapshot: Snapshot, ranking: Ranking) -> IntArray:
    """Return the resources that rank a host's combinations of VMs, indices of R, shape (J,).

    Parameters
    ----------
    ranking : sequence of str, "auto" or None
        Names of resources. "auto" means the first two resources, or `_scarce_resources` if
        one of those is not among the first two. None means the first two.

    Raises
    ------
    ParameterError
        For a name that the snapshot does not have.
    """
    first = np.arange(min(_FIRST, snapshot.resource_count))
    if ranking is None:
        return first
    if ranking == "auto":
        scarce = _scarce_resources(snapshot)
        return first if np.isin(scarce, first).all() else scarce
    for name in ranking:
        if name not in snapshot.resources:
            raise ParameterError("ranking", name, f"one of {', '.join(snapshot.resources)}")
    return np.array([snapshot.resources.index(name) for name in ranking], dtype=np.int64)


def _scarce_resources(snapshot: Snapshot) -> IntArray:
    """Return the scarce resources, by which ranking "auto" ranks combinations, shape (J,).

    Empty if nothing is needed.

    Notes
    -----
    Derived. The need for a resource is what runs and what waits, as a fraction of the pool, at
    most 1. The resource of the greatest need bounds lambda in: max lambda with
    lambda (used[r] + requested[r]) <= pool[r]. Resources with at least 0.8 of the greatest need
    are scarce, too. The fractions end at 1, so all resources needed beyond the pool are scarce.
    """
    counted = snapshot.resource_count
    used = (snapshot.capacity - snapshot.free).sum(axis=0)
    requested = snapshot.count @ snapshot.demand
    needed = fractions_of_pool((used + requested)[None], snapshot.pool)[0, :counted]
    needed = np.minimum(needed, 1.0)
    return np.flatnonzero((needed > 0) & (needed >= _SHORT * needed.max()))
