"""Divisible problems with defaults, so that a test shows only what matters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.placement.clusters import GOOGLE_SERVERS, LARGEST, VM_TYPES
from placement.mechanisms import MECHANISMS, DivisibleProblem, Division

#: VM types in parts of the largest server.
GOOGLE_TYPES = VM_TYPES / np.array(LARGEST, dtype=float)


def a_divisible_problem(
    capacity: Sequence[Sequence[float]] | np.ndarray,
    demand: Sequence[Sequence[float]] | np.ndarray,
    *,
    weight: Any = None,
    eligible: Any = None,
    count: Any = None,
    held: Any = None,
    free: Any = None,
    speed: Any = None,
    hosts: Any = None,
) -> DivisibleProblem:
    """Return a problem; ``capacity`` (K, R) is of whole classes, ``count`` None unbounded."""
    offered = np.array(capacity, dtype=np.float64)
    requested = np.array(demand, dtype=np.float64).reshape(-1, offered.shape[1])
    shape = (len(requested), len(offered))
    return DivisibleProblem(
        resources=tuple(f"r{r}" for r in range(offered.shape[1])),
        capacity=offered,
        free=_given(free, offered.copy()),
        hosts=np.ones(shape[1], dtype=np.int64) if hosts is None else np.array(hosts),
        demand=requested,
        speed=_given(speed, np.ones(shape)),
        eligible=np.ones(shape, dtype=np.bool_) if eligible is None else np.array(eligible) > 0,
        count=_given(count, np.full(shape[0], np.inf)),
        weight=_given(weight, np.ones(shape[0])),
        held=_given(held, np.zeros_like(requested)),
    )


def the_google_problem(tenants: int) -> DivisibleProblem:
    """Return the Google table as classes, tenants demanding the five types in turn."""
    table = np.array(GOOGLE_SERVERS)
    return a_divisible_problem(
        table[:, :1] * table[:, 1:],
        np.resize(GOOGLE_TYPES, (tenants, 2)),
        hosts=table[:, 0].astype(np.int64),
    )


def _given(value: Any, default: np.ndarray) -> np.ndarray:
    return default if value is None else np.array(value, dtype=np.float64).reshape(default.shape)


def divided(name: str, problem: DivisibleProblem) -> Division:
    return MECHANISMS[name].make({}).divide(problem, np.random.default_rng(0))


def levels(division: Division) -> np.ndarray:
    return np.array(division.details["levels"])


def without_tenants(problem: DivisibleProblem, kept: Sequence[int]) -> DivisibleProblem:
    rows = list(kept)
    return replace(
        problem,
        **{
            name: getattr(problem, name)[rows]
            for name in ("demand", "speed", "eligible", "count", "weight", "held")
        },
    )


def assert_fits(problem: DivisibleProblem, division: Division) -> None:
    """Nobody runs where it may not or gets more than it wants; no class is above its room."""
    tasks = division.tasks
    assert np.isfinite(tasks).all()
    assert (tasks >= 0).all()
    assert (division.totals <= problem.count * (1 + 1e-9)).all()
    work = tasks if division.pooled else tasks / problem.speed
    taken = work.T @ problem.demand
    room = problem.free.sum(axis=0, keepdims=True) if division.pooled else problem.free
    assert (taken <= room * (1 + 1e-9)).all()
    if not division.pooled:
        assert not tasks[~problem.eligible].any()


def the_four_classes_of_psdsf():
    """Khamse-Ashari et al., PS-DSF, 2016: classes A to D; tenants 3 and 4 only on C and D."""
    return a_divisible_problem(
        [(8, 8), (34, 34), (16.5, 8.25), (5.5, 8.25)],
        [(0.1, 0.1), (0.1, 0.2), (0.2, 0.1), (0.2, 0.3)],
        weight=[2, 2, 1, 1],
        eligible=[(1, 1, 1, 1), (1, 1, 1, 1), (0, 0, 1, 1), (0, 0, 1, 1)],
    )
