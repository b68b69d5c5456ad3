"""Compare the game of a round with Best-Fit DRFH filling alone, where a single resource ranks.

With one ranking resource of several every combination is even, and the game neglects the
others (derived).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from placement.fairness.shares import dominant_shares, fair_distance, fractions_of_pool
from placement.model.arrays import FloatArray
from placement.packing.draft import Draft


@dataclass(frozen=True, slots=True)
class PlacedMeasures:
    """What a placement of the whole batch reaches."""

    amount: int  #: of the ranking resource, in its unit
    fair_distance: float  #: of the tenants' dominant shares, see `fair_distance`

    @classmethod
    def of(cls, draft: Draft, resource: int, targets: FloatArray) -> PlacedMeasures:
        """Measure a draft; ``targets`` are the fair VMs of each request, (Q,)."""
        snapshot = draft.snapshot
        fair = fractions_of_pool(snapshot.held, snapshot.pool)
        demand = fractions_of_pool(snapshot.demand, snapshot.pool)
        np.add.at(fair, snapshot.tenant, demand * targets[:, None])
        shares = dominant_shares(draft.held, snapshot.pool)
        return cls(
            amount=int(draft.placed_counts @ snapshot.demand[:, resource]),
            fair_distance=fair_distance(shares, fair.max(axis=1, initial=0.0)) or 0.0,
        )


@dataclass(frozen=True, slots=True)
class FillingComparison:
    """The measures of the game with what follows it, and of filling with exchange alone."""

    resource: str
    game: PlacedMeasures
    filling: PlacedMeasures

    @property
    def filling_is_better(self) -> bool:
        """Whether filling places more of the ranking resource, or as much and fairer."""
        game, filling = self.game, self.filling
        return (-filling.amount, filling.fair_distance) < (-game.amount, game.fair_distance)

    def document(self) -> dict[str, Any]:
        """Return the comparison as JSON values; ``chosen`` is ``game`` or ``filling``."""
        return {
            "resource": self.resource,
            "chosen": "filling" if self.filling_is_better else "game",
            "amounts": {"game": self.game.amount, "filling": self.filling.amount},
            "fair_distances": {
                "game": self.game.fair_distance,
                "filling": self.filling.fair_distance,
            },
        }
