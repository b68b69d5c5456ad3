"""PS-DSF: per-server dominant-share fairness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np

from placement.mechanisms.max_min.levels import levels_and_shares
from placement.mechanisms.model import DivisibleProblem, Division
from placement.mechanisms.psdsf.pareto import scale_all_tasks
from placement.mechanisms.psdsf.residual import theorem1_residual
from placement.mechanisms.psdsf.servers import held_tasks
from placement.mechanisms.psdsf.sweeps import (
    PROCEDURES,
    Procedure,
    step_until_converged,
    sweep_until_converged,
)
from placement.mechanisms.tasks_alone import tasks_alone
from placement.model.arrays import FloatArray, IntArray
from placement.model.row_groups import group_rows
from placement.parameters import (
    Reader,
    choice_reader,
    integer_reader,
    nullable_reader,
    number_reader,
    switch_reader,
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MergedClasses:
    """A problem with fewer classes, and the merged class of each original one."""

    problem: DivisibleProblem
    kind: IntArray  #: (K,) the merged class of each class

    def split_among_members(self, tasks: FloatArray) -> FloatArray:
        """Give the members of each merged class equal parts of ``tasks`` (N, V), shape (N, K)."""
        members = np.bincount(self.kind, minlength=tasks.shape[1])
        spread: FloatArray = (tasks / np.maximum(members, 1))[:, self.kind]
        return spread


def merge_classes(problem: DivisibleProblem) -> MergedClasses:
    """Merge the host classes of a problem that are equal in everything.

    Notes
    -----
    Derived: when every tenant has the same on each of k equal servers, levels
    there are k times those on their sum, and the same resources are used up, so
    Theorem 1 holds on all or on none. Servers of one shape and different sizes
    could be merged as well, but then the split over them would no longer be the
    one that servers arrive at by themselves.
    """
    same = group_rows(problem.capacity, problem.free, problem.eligible.T, problem.speed.T)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Psdsf:
    """Per-server dominant-share fairness [1]_.

    ``gamma[i, l]`` is what tenant i could run if it had all of server l, and
    ``s[i, l] = x_i / gamma[i, l]`` its virtual dominant share there, with its
    tasks on *all* servers in x_i. Each server gives to the tenants of least
    ``s[i, l] / w_i``; a division is PS-DSF when every tenant has a bottleneck on
    every server that it may use (Theorem 1).

    It suffices that a server knows the totals of its users, so servers can run
    by themselves: the procedure ``"distributed"``.

    Notes
    -----
    What tenants hold counts in x_i (`held_tasks`), gamma is of capacity, and
    what is divided is what is free (derived). Envy-free and with sharing
    incentive where nothing is held and hosts are free; neither unique nor
    Pareto optimal in general. On one server it is DRF.

    Servers that are alike are merged (`merge_classes`).

    References
    ----------
    .. [1] Khamse-Ashari, Lambadaris, Kesidis, Urgaonkar, Zhao, "Per-Server
       Dominant-Share Fairness (PS-DSF): A Multi-Resource Fair Allocation
       Mechanism for Heterogeneous Servers", 2016.
    """

    #: What a server does at its step of the central sweeps, or ``"distributed"``: the servers run
    #: by themselves in random order (`step_until_converged`).
    procedure: Procedure | Literal["distributed"] = "water_filling"
    max_rounds: int | None = None  #: most sweeps over all servers; None: see `default_max_rounds`
    tolerance: float = 1e-9  #: part of a tenant's tasks whose move counts as standing still
    pareto: bool = False  #: afterwards raise all tenants as far as there is room

    def divide(self, problem: DivisibleProblem, rng: np.random.Generator) -> Division:
        """Divide the servers by PS-DSF.

        ``details`` has ``residual``, the largest violation of Theorem 1
        (`theorem1_residual`) before any Pareto step, whether the matrix stood
        ``still``, and ``rounds``, ``moved`` and ``leaps`` of the sweeps.
        ``levels`` are the least ``s[i, l] / w_i`` over the tenant's servers.

        Raises
        ------
        SolverError
            If the solver of the Pareto step fails.
        """
        merged = merge_classes(problem)
        max_rounds = self.max_rounds or default_max_rounds(merged.problem)
        if self.procedure == "distributed":
            settled = step_until_converged(
                merged.problem, rng, max_rounds=max_rounds, tolerance=self.tolerance
            )
        else:
            settled = sweep_until_converged(
                merged.problem,
                procedure=self.procedure,
                max_rounds=max_rounds,
                tolerance=self.tolerance,
            )
        tasks = merged.split_among_members(settled.tasks)
        details: dict[str, Any] = {
            "residual": theorem1_residual(problem, tasks),
            "still": settled.moved <= self.tolerance,
            "rounds": settled.rounds,
            "moved": settled.moved,
            "leaps": settled.leaps,
        }
        if self.pareto:
            raised = scale_all_tasks(merged.problem, settled.tasks)
            tasks = merged.split_among_members(raised.tasks)
            details["pareto_factor"] = raised.factor
        return Division(
            tasks=tasks,
            details={**levels_and_shares(problem, _least_levels(problem, tasks), tasks), **details},
        )


def _least_levels(problem: DivisibleProblem, tasks: FloatArray) -> FloatArray:
    """Return each tenant's least level, ``s[i, l] / w_i``, over the servers it may use, (N,)."""
    best = tasks_alone(problem).max(axis=1, initial=0.0)
    total = held_tasks(problem) + tasks.sum(axis=1)
    levels: FloatArray = np.divide(
        total, problem.weight * best, out=np.zeros(len(best)), where=best > 0
    )
    return levels


def default_max_rounds(problem: DivisibleProblem) -> int:
    """Return the default number of PS-DSF sweeps: 300,000 server steps, but 30 to 3,000 sweeps."""
    return min(max(300_000 // max(len(problem.hosts), 1), 30), 3_000)


#: What may be set on it.
READERS: Final[Mapping[str, Reader]] = {
    "procedure": choice_reader((*PROCEDURES, "distributed")),
    "max_rounds": nullable_reader(integer_reader(1, 1_000_000)),
    "tolerance": number_reader("a number from 0, below 1", lambda value: 0 <= value < 1),
    "pareto": switch_reader,
}
