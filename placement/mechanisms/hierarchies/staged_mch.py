"""Staged MCH: the tree is made flat again whenever a resource is used up or a job ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from placement.mechanisms.hierarchies.flattening import Flattening
from placement.mechanisms.hierarchies.leaves import Leaves
from placement.mechanisms.max_min.ascent import max_alone_in_pool
from placement.mechanisms.max_min.climbs import ClimbPoint, Climbs
from placement.mechanisms.max_min.levels import levels_and_shares
from placement.mechanisms.model import DivisibleProblem, Division
from placement.model.arrays import BoolArray, FloatArray

#: Of what a job wants, or of what is free: closer than this it is all of it.
_ALL_BUT: Final = 1e-12
#: Weights of every stage are reported for small trees only.
_MAX_WEIGHTS_SHOWN: Final = 5_000


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MchStage:
    """One stage of staged MCH, with the weights of its leaves."""

    weights: FloatArray  #: (N,) of the leaves that were active
    active: BoolArray  #: (N,)
    level: float  #: share per weight where it ended
    used_up: BoolArray  #: (R,) what ended it; nothing: a job had all its tasks
    stopped: BoolArray  #: (N,) leaves that are not active any more


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StagedFilling:
    """The result of staged MCH on a pool."""

    amounts: FloatArray  #: (N,) given, in dominant shares of the tasks alone
    weights: FloatArray  #: (N,) the last that each leaf rose by; 1 if it never did
    claims: FloatArray  #: (N,) see `fill_in_stages`
    stages: tuple[MchStage, ...]


def fill_in_stages(
    leaves: Leaves, wanted: FloatArray, *, counted: BoolArray | None = None, at_once: float = 0.0
) -> StagedFilling:
    """Raise the leaves of a tree by staged MCH, with new weights in each stage.

    Parameters
    ----------
    leaves : Leaves
    wanted : ndarray, shape (N,)
        The most each leaf wants, in dominant shares of its tasks; may be infinite.
    counted : ndarray of bool, shape (N,), optional
        Leaves that count in the weights though they demand nothing: those that
        hold something.
    at_once : float
        The part of the active leaves that may have all their tasks before the
        weights are recomputed: 0 is exact, more saves stages.

    Returns
    -------
    StagedFilling
        ``claims`` are the shares that a leaf's weight stood for: the largest
        ``level * weight`` until it was frozen, or until the end if it had all
        its tasks before. As weights of a flat pool they let every leaf that was
        frozen reach the same level together; and unlike the shares themselves
        they do not grow with the size of a tenant's demand.

    Notes
    -----
    Derived. In each stage every active leaf has its product weight over the
    active leaves; the least share per weight rises first. When a resource is
    used up, leaves that demand it are frozen; a leaf with all its tasks stops too.
    Then the weights are recomputed. Costs O(q) for each stage, and there are
    at most q + R of them.
    """
    flattening = Flattening(leaves.tree, leaves.shape)
    shape = leaves.shape
    limit = np.where(
        leaves.active, np.minimum(wanted, 2.0 * max_alone_in_pool(shape, leaves.room)), 0.0
    )
    active = leaves.active & (limit > 0)
    amounts = np.zeros(len(limit))
    weights, claims = np.ones(len(limit)), np.zeros(len(limit))
    frozen = np.zeros(len(limit), dtype=np.bool_)
    stages: list[MchStage] = []
    present = np.zeros(len(limit), dtype=np.bool_) if counted is None else counted & ~active
    while active.any():
        stage_weights, _ = flattening.product_weights(active | present)
        weights = np.where(active, stage_weights, weights)
        climbs = Climbs(
            leaves.held + amounts[:, None] * shape,
            shape,
            stage_weights,
            np.where(active, limit - amounts, 0.0),
        )
        point, used_up = _next_stop(
            climbs, shape, active, leaves.room, amounts @ shape, at_once=at_once
        )
        given = np.where(active, climbs.needs(point), 0.0)
        amounts = amounts + given
        level = climbs.level_at(point)
        claims = np.where(frozen, claims, np.maximum(claims, level * weights))
        starved = active & (shape[:, used_up] > 0).any(axis=1)
        has_all = active & (limit - amounts <= _ALL_BUT * limit)
        frozen |= starved & ~has_all
        stopped = starved | has_all
        stages.append(
            MchStage(
                weights=stage_weights, active=active, level=level, used_up=used_up, stopped=stopped
            )
        )
        active = active & ~stopped
    return StagedFilling(amounts=amounts, weights=weights, claims=claims, stages=tuple(stages))


def _next_stop(
    climbs: Climbs,
    shape: FloatArray,
    active: BoolArray,
    room: FloatArray,
    taken: FloatArray,
    *,
    at_once: float,
) -> tuple[ClimbPoint, BoolArray]:
    """Return where the stage ends, and which resources are used up there, shape (R,).

    A stage ends where a resource is used up, or where enough jobs have all their tasks.

    Which resources are used up there comes second, shape (R,).
    """
    left = np.maximum(room - taken, 0.0)  # below 0 by rounding alone
    contested = np.flatnonzero((shape[active] > 0).any(axis=0)).tolist()
    nothing = np.zeros(len(active))
    ends = {r: climbs.last_point(shape[:, r], float(left[r]), ~active, nothing) for r in contested}
    full = climbs.full[active]
    rank = min(int(at_once * len(full)), len(full) - 1)
    done = climbs.breakpoint_at(float(np.partition(full, rank)[rank]))
    stop = min(done, *ends.values())
    now = taken + climbs.needs(stop) @ shape
    used_up = np.zeros(len(room), dtype=np.bool_)
    for r, end in ends.items():
        # Resources that end together end one stage, whatever the rounding.
        used_up[r] = (end == stop and stop < climbs.last) or now[r] >= room[r] * (1 - _ALL_BUT)
    return stop, used_up


@dataclass(frozen=True, slots=True)
class MchStaged:
    """Give every leaf its product weight over the leaves that are not blocked yet (derived).

    Whenever a resource is used up or a job has all its tasks, the weights are
    recomputed; the least share per weight rises first. See `fill_in_stages`.
    """

    def divide(self, problem: DivisibleProblem, rng: np.random.Generator) -> Division:
        """Divide the pool by staged MCH.

        Raises
        ------
        UnsupportedProblemError
            If a tenant's demand depends on the host.
        """
        leaves = Leaves.of(problem, "mch_staged")
        filling = fill_in_stages(leaves, wanted_shares(problem, leaves))
        tasks = np.divide(
            filling.amounts, leaves.unit, out=np.zeros(len(leaves.unit)), where=leaves.unit > 0
        )
        tasks = np.minimum(tasks, problem.count)
        shares = (leaves.held + filling.amounts[:, None] * leaves.shape).max(axis=1, initial=0.0)
        return Division(
            tasks=tasks[:, None],
            pooled=True,
            details={
                "weights": filling.weights.tolist(),
                **levels_and_shares(problem, shares / filling.weights, tasks[:, None]),
                "stages": _stage_details(filling, problem.resources),
            },
        )


def wanted_shares(problem: DivisibleProblem, leaves: Leaves) -> FloatArray:
    """Return each tenant's demand as dominant shares of its tasks, shape (N,)."""
    wanted = np.full(len(leaves.unit), np.inf)
    np.multiply(problem.count, leaves.unit, out=wanted, where=np.isfinite(problem.count))
    return wanted


def _stage_details(filling: StagedFilling, resources: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the stages of staged MCH as JSON values; of many leaves without weights."""
    cells = len(filling.stages) * len(filling.weights)
    stages = []
    for stage in filling.stages:
        details: dict[str, Any] = {
            "level": stage.level,
            "used_up": [resources[r] for r in np.flatnonzero(stage.used_up).tolist()],
            "stopped": np.flatnonzero(stage.stopped).tolist(),
        }
        if cells <= _MAX_WEIGHTS_SHOWN:
            details["weights"] = np.where(stage.active, stage.weights, 0.0).tolist()
        stages.append(details)
    return stages
