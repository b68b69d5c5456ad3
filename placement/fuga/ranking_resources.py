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
        Names of resources. "auto" means the first two resources, or `short_resources` if
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
        short = short_resources(snapshot)
        return first if np.isin(short, first).all() else short
    for name in ranking:
        if name not in snapshot.resources:
            raise ParameterError("ranking", name, f"one of {', '.join(snapshot.resources)}")
    return np.array([snapshot.resources.index(name) for name in ranking], dtype=np.int64)


def short_resources(snapshot: Snapshot) -> IntArray:
    """Return the resources of which the cluster runs short, shape (J,); empty if nothing is needed.

    Notes
    -----
    Derived. On the sum of all hosts the program that serves what runs and what waits as
    often as it goes, max lambda with lambda (used[r] + demand[r]) <= pool[r], is bound by the
    resource of which the largest part is needed: its dual is positive. Those whose part is
    nearly as large (0.8 of it) would bind next. No tenant needs more than there is: of two
    resources that are both demanded beyond it, both run short.
    """
    counted = snapshot.resource_count
    used = (snapshot.capacity - snapshot.free).sum(axis=0)
    requested = snapshot.count @ snapshot.demand
    needed = fractions_of_pool((used + requested)[None], snapshot.pool)[0, :counted]
    needed = np.minimum(needed, 1.0)
    return np.flatnonzero((needed > 0) & (needed >= _SHORT * needed.max()))
