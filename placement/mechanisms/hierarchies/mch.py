"""MCH: a tree of tenants is flattened by weights and divided by DRF over its leaves."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from placement.mechanisms.hierarchies.flattening import mch_weights
from placement.mechanisms.hierarchies.leaves import Leaves
from placement.mechanisms.max_min.drf import Drf
from placement.mechanisms.model import DivisibleProblem, Division
from placement.model.arrays import FloatArray


@dataclass(frozen=True, slots=True)
class Mch:
    """Flatten the tree once, and divide by weighted DRF over the leaves [1]_.

    Leaves that demand the resource which saturates first get weights that
    reproduce their shares in the tree, all others weight 1. So a group whose
    jobs are many in the other resources gets more of those than its share; the
    hierarchical share guarantee does not hold in general (derived). See
    `MchStaged`.

    References
    ----------
    .. [1] "Low Complexity Hierarchical Scheduling for Diverse Datacenter Jobs",
       IEEE Communications Letters, 2019.
    """

    def divide(self, problem: DivisibleProblem, rng: np.random.Generator) -> Division:
        """Divide the pool by weighted DRF, with the weights of MCH.

        Raises
        ------
        UnsupportedProblemError
            If a tenant's demand depends on the host.
        """
        leaves = Leaves.of(problem, "mch")
        weights = mch_weights(leaves.tree, problem.demand, problem.pool, leaves.active)
        return divide_among_leaves(problem, weights, rng)


def divide_among_leaves(
    problem: DivisibleProblem, weights: FloatArray, rng: np.random.Generator
) -> Division:
    """Divide the pool by weighted DRF over a tree's leaves, with their weights, shape (N,)."""
    flat = dataclasses.replace(problem, weight=weights, tree=None)
    division = Drf().divide(flat, rng)
    return dataclasses.replace(division, details={"weights": weights.tolist(), **division.details})
