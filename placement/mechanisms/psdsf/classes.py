"""Servers that are alike are one server to PS-DSF."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from placement.mechanisms.model import DivisibleProblem
from placement.model.alike import alike
from placement.model.arrays import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MergedClasses:
    """A problem of fewer classes, and where each class went."""

    problem: DivisibleProblem
    kind: IntArray  #: (K,) the merged class of each class

    def spread(self, tasks: FloatArray) -> FloatArray:
        """Give the members of each merged class equal parts of ``tasks`` (N, V), shape (N, K)."""
        members = np.bincount(self.kind, minlength=tasks.shape[1])
        spread: FloatArray = (tasks / np.maximum(members, 1))[:, self.kind]
        return spread


def merge_classes(problem: DivisibleProblem) -> MergedClasses:
    """Merge classes that are equal in everything.

    Notes
    -----
    Derived: when everybody has the same on each of k equal servers, levels
    there are k times those on their sum, and the same resources are used up, so
    Theorem 1 holds on all or on none. Servers of one shape and different sizes
    could be merged as well, but then the split over them would no longer be the
    one that servers arrive at by themselves.
    """
    same = alike(problem.capacity, problem.free, problem.eligible.T, problem.speed.T)
    kind, first = same.of_row, same.first
    if len(first) == len(kind):
        return MergedClasses(problem=problem, kind=kind)
    members = np.bincount(kind)
    hosts = np.zeros(len(first), dtype=np.int64)
    np.add.at(hosts, kind, problem.hosts)
    merged = replace(
        problem,
        capacity=problem.capacity[first] * members[:, None],
        free=problem.free[first] * members[:, None],
        hosts=hosts,
        speed=problem.speed[:, first],
        eligible=problem.eligible[:, first],
    )
    return MergedClasses(problem=merged, kind=kind)
