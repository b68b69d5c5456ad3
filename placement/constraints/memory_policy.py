"""Memory of past holdings for policies that know only what is held."""

from __future__ import annotations

import numpy as np

from placement.fairness.memory import count_past_as_held
from placement.model.budget import Budget
from placement.model.snapshot import Allocation, Policy, Snapshot


class MemoryPolicy:
    """A policy that, given a memory of past holdings, decides with the past counted as held."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def place(self, snapshot: Snapshot, rng: np.random.Generator, budget: Budget) -> Allocation:
        """Count the past as held and let the policy decide."""
        if snapshot.memory is None:
            return self._policy.place(snapshot, rng, budget)
        return self._policy.place(count_past_as_held(snapshot), rng, budget)
