"""Collapsed hierarchies: the tree made flat by the paths of one resource's leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from placement.errors import ParameterError
from placement.mechanisms.hierarchies.flattening import collapsed_weights
from placement.mechanisms.hierarchies.leaves import Leaves
from placement.mechanisms.hierarchies.mch import divide_among_leaves
from placement.mechanisms.model import DivisibleProblem, Division
from placement.parameters import nullable_reader, predicate_reader

#: What may be set on it.
READERS: Final = {
    "resource": nullable_reader(
        predicate_reader("the name of a resource", lambda value: isinstance(value, str))
    )
}


@dataclass(frozen=True, slots=True)
class CollapsedHierarchy:
    """Collapse the tree by one resource, and divide by weighted DRF over the leaves.

    Collapsed by CPU this is C-CH, by memory M-CH, the yardsticks of [1]_; this
    reading of them is derived, see `collapsed_weights`.

    Parameters
    ----------
    resource : str, optional
        By name; default the first.

    References
    ----------
    .. [1] "Low Complexity Hierarchical Scheduling for Diverse Datacenter Jobs",
       IEEE Communications Letters, 2019.
    """

    resource: str | None = None

    def divide(self, problem: DivisibleProblem, rng: np.random.Generator) -> Division:
        """Divide the pool by weighted DRF over the leaves of the collapsed tree.

        Raises
        ------
        ParameterError
            If the problem has no such resource.
        UnsupportedProblemError
            If a tenant's demand depends on the host.
        """
        names = problem.resources
        if self.resource is not None and self.resource not in names:
            raise ParameterError("resource", self.resource, f"one of {', '.join(names[:12])}")
        resource = 0 if self.resource is None else names.index(self.resource)
        leaves = Leaves.of(problem, "collapsed")
        weights = collapsed_weights(
            leaves.tree, problem.demand, problem.pool, leaves.active, resource
        )
        return divide_among_leaves(problem, weights, rng)
