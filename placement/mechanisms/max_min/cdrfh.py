"""C-DRFH: DRFH where tenants may be restricted to some servers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.mechanisms.max_min.drfh import max_min_dominant_shares
from placement.mechanisms.model import DivisibleProblem, Division


@dataclass(frozen=True, slots=True)
class Cdrfh:
    """Constrained DRFH: lexicographic max-min of dominant shares on allowed servers.

    The level of a tenant is ``x_i mu_i / w_i``, its dominant share of the totals
    of *all* servers per weight, as PS-DSF [1]_ describes DRFH under placement
    constraints.

    References
    ----------
    .. [1] Khamse-Ashari et al., "Per-Server Dominant-Share Fairness (PS-DSF)",
       2016, Section II.
    """

    def divide(self, problem: DivisibleProblem, rng: np.random.Generator) -> Division:
        """Divide the servers; raises as `Drfh.divide` does."""
        return max_min_dominant_shares(problem, "cdrfh")
