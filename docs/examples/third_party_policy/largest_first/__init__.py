"""A policy and a mechanism for fuga in a package of their own.

Install it beside fuga (``pip install .``); then `fuga solve --list` shows both,
`fuga solve FILE --policy largest_first` decides with the policy, and a control
centre does with ``FUGA_POLICY=largest_first``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement import (
    Allocation,
    Budget,
    CatalogEntry,
    DivisibleProblem,
    Division,
    LeftOut,
    MechanismEntry,
    ParameterError,
    Reason,
    Snapshot,
)


@dataclass(frozen=True, slots=True)
class LargestFirst:
    """Place the largest VMs first, each on the first host where it fits."""

    least_share: float = 0.0  #: VMs below this share of the pool come in order of requests

    def __post_init__(self) -> None:
        if not isinstance(self.least_share, int | float) or not 0 <= self.least_share <= 1:
            raise ParameterError("least_share", self.least_share, "a number from 0 to 1")

    def place(self, snapshot: Snapshot, rng: np.random.Generator, budget: Budget) -> Allocation:
        """Decide; a pure function of what it is given."""
        free = snapshot.free.copy()
        pool = np.maximum(snapshot.pool, 1)
        share = (snapshot.demand / pool).max(axis=1, initial=0.0)
        share[share < self.least_share] = 0.0
        rows, left_out = [], []
        for request in np.argsort(-share, kind="stable").tolist():
            demand, wanted = snapshot.demand[request], int(snapshot.count[request])
            requested = demand > 0
            fits = (free[:, requested] // demand[requested]).min(axis=1, initial=wanted)
            fits[~snapshot.eligible[request][snapshot.host_class]] = 0
            before = np.cumsum(fits) - fits
            take = np.clip(wanted - before, 0, fits)
            if take.sum() < snapshot.min_count[request]:  # a gang: whole or not at all
                take[:] = 0
            free -= take[:, None] * demand
            rows += [(request, host, int(take[host])) for host in np.flatnonzero(take).tolist()]
            missing = wanted - int(take.sum())
            if missing:
                left_out.append(LeftOut(request=request, count=missing, reason=Reason.NO_ROOM))
        placed = np.array(sorted(rows), dtype=np.int64).reshape(-1, 3)
        return Allocation(placed=placed, left_out=tuple(left_out))


@dataclass(frozen=True, slots=True)
class EqualSlices:
    """Give every tenant the same slice of the pool, whatever it makes of it."""

    def divide(self, problem: DivisibleProblem, rng: np.random.Generator) -> Division:
        """Divide; a pure function of what it is given."""
        part = problem.weight / problem.weight.sum()
        slices = part[:, None] * problem.free.sum(axis=0)
        requested = problem.demand > 0
        tasks = np.divide(
            slices, problem.demand, out=np.full(slices.shape, np.inf), where=requested
        )
        able = requested.any(axis=1) & problem.eligible.any(axis=1)
        most = np.where(able, np.minimum(tasks.min(axis=1), problem.count), 0.0)
        return Division(tasks=most[:, None], pooled=True)


LARGEST_FIRST = CatalogEntry(
    summary="the largest VMs first, each on the first host where it fits",
    parameters=frozenset({"least_share"}),
    make=lambda given: LargestFirst(**given),
    paper="none: an example",
    guarantees="nothing that fits is left out; no fairness",
    complexity="O(p) per demand",
)

EQUAL_SLICES = MechanismEntry(
    summary="the same slice of the pool for everybody",
    paper="none: an example",
    guarantees="sharing incentive in the pool; not Pareto optimal",
    complexity="O(n m)",
    make=lambda _: EqualSlices(),
)
