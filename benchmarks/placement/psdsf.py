"""Print how long PS-DSF takes to a residual of Theorem 1, against DRFH in the same run.

    python -m benchmarks.placement.psdsf [--quick]

Ratios compare across machines, seconds do not. "sweep" is one round over all
servers, as a ratio of water filling to the published procedure.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.kit import parser, timed
from benchmarks.placement.clusters import GOOGLE_SERVERS, VM_TYPES
from placement.mechanisms import MECHANISMS
from placement.mechanisms.model import DivisibleProblem, Division
from placement.mechanisms.psdsf.residual import theorem1_residual
from placement.mechanisms.psdsf.sweeps import sweep_until_converged

GOAL = 1e-3


def a_problem(capacity: Any, demand: Any, *, weight: Any = None, count: Any = None):
    capacity, demand = np.asarray(capacity, float), np.asarray(demand, float)
    shape = (len(demand), len(capacity))
    return DivisibleProblem(
        resources=tuple(f"r{r}" for r in range(demand.shape[1])),
        capacity=capacity,
        free=capacity.copy(),
        hosts=np.ones(shape[1], dtype=np.int64),
        demand=demand,
        speed=np.ones(shape),
        eligible=np.ones(shape, dtype=np.bool_),
        count=np.full(shape[0], np.inf) if count is None else count,
        weight=np.ones(shape[0]) if weight is None else weight,
        held=np.zeros_like(demand),
    )


def cases(*, quick: bool) -> dict[str, DivisibleProblem]:
    rng = np.random.default_rng(0)
    table = np.array(GOOGLE_SERVERS)
    classes = table[:, :1] * table[:, 1:]
    types = np.array(VM_TYPES)[:, :2] / np.array([64, 256])
    tails = rng.pareto(1.0, 900) * 100
    three = np.column_stack([classes, classes.sum(axis=1) * rng.uniform(0.5, 1.5, len(classes))])
    found = {
        "900 users of 5 types, 10 classes": a_problem(classes, np.resize(types, (900, 2))),
        "900 users of 900 types, 10 classes": a_problem(
            classes, rng.uniform(0.002, 0.02, (900, 2))
        ),
        "the same, 3 resources, weights, counts": a_problem(
            three, rng.uniform(0.002, 0.02, (900, 3)), weight=rng.uniform(0.5, 2, 900), count=tails
        ),
    }
    for hosts in (100,) if quick else (100, 300, 1000):
        found[f"100 users, {hosts} distinct hosts"] = a_problem(
            rng.uniform(0.2, 1, (hosts, 3)), rng.uniform(0.005, 0.1, (100, 3))
        )
    return found


def divided(name: str, problem: DivisibleProblem) -> Division:
    return MECHANISMS[name].make({}).divide(problem, np.random.default_rng(0))


def to_residual(problem: DivisibleProblem) -> tuple[float, int, float]:
    """Return seconds, sweeps and residual of the shortest run tried that reaches the goal."""
    rounds = 8
    while True:
        settled, taken = timed(partial(sweep_until_converged, problem, max_rounds=rounds))
        residual = theorem1_residual(problem, settled.tasks)
        if residual <= GOAL or rounds >= 1024:
            return taken, settled.rounds, residual
        rounds = rounds * 5 // 4


def main(argv: Sequence[str] | None = None) -> None:
    given = parser(__doc__, quick=(False, "leave out the large cases")).parse_args(argv)
    print(
        f"{'problem':<42}{'seconds':>9}{'sweeps':>8}{'residual':>10}{'default s':>11}"
        f"{'residual':>10}{'× drfh':>9}{'sweep':>8}"
    )
    for title, problem in cases(quick=given.quick).items():
        taken, rounds, residual = to_residual(problem)
        division, whole = timed(partial(divided, "psdsf", problem))
        _, drfh = timed(partial(divided, "drfh", problem))
        _, one = timed(partial(sweep_until_converged, problem, max_rounds=1))
        _, two = timed(partial(sweep_until_converged, problem, max_rounds=6))
        _, slow_one = timed(
            partial(sweep_until_converged, problem, max_rounds=1, procedure="published")
        )
        fast = max(two - one, 1e-9) / 5
        published = max(slow_one - (one - fast), 1e-9)
        print(
            f"{title:<42}{taken:>9.2f}{rounds:>8}{residual:>10.0e}{whole:>11.2f}"
            f"{division.details['residual']:>10.0e}{taken / drfh:>9.2f}{fast / published:>8.4f}"
        )


if __name__ == "__main__":
    main()
