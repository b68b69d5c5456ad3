"""Levels that mechanisms compare: dominant shares, or tasks relative to tasks alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from placement.mechanisms.max_min.climbs import Climbs
from placement.mechanisms.model import DivisibleProblem
from placement.mechanisms.tasks_alone import pool_fractions
from placement.model.arrays import FloatArray


def normalised_demands(demand: FloatArray, pool: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return normalised demands d, (N, R), and mu, (N,): demand over pool is mu d.

    The largest component of d is 1. A tenant that demands nothing has zeros.

    Notes
    -----
    Wang, Li, Liang, "Dominant Resource Fairness in Cloud Computing Systems with
    Heterogeneous Servers", INFOCOM 2014, Section III.
    """
    fractions = pool_fractions(demand, pool)
    unit = fractions.max(axis=1, initial=0.0)
    shape = np.divide(
        fractions, unit[:, None], out=np.zeros_like(fractions), where=unit[:, None] > 0
    )
    return shape, unit


def dominant_climbs(
    problem: DivisibleProblem, shape: FloatArray, unit: FloatArray, alone: FloatArray
) -> Climbs:
    """Return the tenants' climbs whose level is the dominant share per weight.

    Parameters
    ----------
    shape, unit : ndarray, shapes (N, R) and (N,)
        Of `normalised_demands`.
    alone : ndarray, shape (N,)
        The most that each tenant could have if it were alone, in shares.
    """
    held = pool_fractions(problem.held, problem.pool)
    return Climbs(held, shape, problem.weight, _most_shares(problem, unit, alone))


def task_climbs(
    problem: DivisibleProblem, unit: FloatArray, alone: FloatArray, monopoly: FloatArray
) -> Climbs:
    """Return the tenants' climbs whose level is ``tasks / (weight * monopoly)``.

    What a tenant holds counts as the number of its tasks that would hold as
    much of the demanded resource of which it holds most (derived).

    Parameters
    ----------
    monopoly : ndarray, shape (N,)
        Tasks of each tenant if it had all the servers that count; 0 takes it out.
    """
    counted = problem.demand > 0
    held = np.divide(
        problem.held, problem.demand, out=np.zeros(problem.held.shape), where=counted
    ).max(axis=1, initial=0.0)
    able = (monopoly > 0) & (unit > 0)
    intercept = np.divide(held, monopoly, out=np.zeros(len(held)), where=able)
    slope = np.divide(1.0, unit * monopoly, out=np.zeros(len(held)), where=able)
    limit = np.where(able, _most_shares(problem, unit, alone), 0.0)
    return Climbs(intercept[:, None], slope[:, None], problem.weight, limit)


def _most_shares(problem: DivisibleProblem, unit: FloatArray, alone: FloatArray) -> FloatArray:
    """Return the most that each tenant may take, in dominant shares: finite, (N,)."""
    # Twice what a tenant could have alone is out of reach, so as good as no limit.
    wanted = np.full(len(unit), np.inf)
    np.multiply(problem.count, unit, out=wanted, where=np.isfinite(problem.count))
    return np.where(alone > 0, np.minimum(wanted, 2.0 * alone), 0.0)


def levels_and_shares(
    problem: DivisibleProblem, levels: FloatArray, tasks: FloatArray
) -> dict[str, Any]:
    """Return the details common to all mechanisms: levels and dominant shares of the pool.

    Parameters
    ----------
    tasks : ndarray, shape (N, K) or (N, 1)
    """
    work = tasks / problem.speed if tasks.shape == problem.speed.shape else tasks
    taken = problem.held + work.sum(axis=1)[:, None] * problem.demand
    return {
        "levels": levels.tolist(),
        "dominant_shares": pool_fractions(taken, problem.pool).max(axis=1, initial=0.0).tolist(),
    }
