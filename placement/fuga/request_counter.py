"""Combinations by request: the requests that the VMs of each kind would serve."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from placement.fuga.game import Game, PlayerChoice
from placement.fuga.strategies import Counts
from placement.model.vm_kinds import VmKinds

#: The most pairs of host and request for which counts are listed per request.
FEW_PAIRS: Final = 1_000_000


def combination_documents(
    by_request: RequestCounter, move: PlayerChoice, number: int, *, with_others: bool
) -> list[dict[str, Any]]:
    """Return the combinations that a player weighed in a game, as JSON values."""
    strategies = move.strategies
    listed: list[dict[str, Any]] = [
        {
            "counts": by_request.counts(others, row),
            "minimum_utilization": score,
            "utility": fairness - skew,
            "fairness": fairness,
            "skewness": skew,
            "chosen": False,
            "game": number,
        }
        for row, score, skew, others, fairness in zip(
            strategies.rows,
            strategies.score,
            strategies.skewness,
            move.others,
            move.fairness,
            strict=True,
        )
    ]
    listed[move.chosen]["chosen"] = True
    if with_others:
        for described, row, others in zip(listed, strategies.rows, move.others, strict=True):
            described["others"] = by_request.counts((0,) * len(row), others)
    return listed


class RequestCounter:
    """Splits a combination's VMs of each kind by request, given the VMs served before.

    A strategy that was not chosen may want more VMs than the order of service has left.
    The surplus counts for the last request in the order. In large rounds, where the
    order is long, all VMs of a kind count for the kind's first request.
    """

    def __init__(self, game: Game, kinds: VmKinds, *, in_order: bool) -> None:
        self._serving = game.serving
        self._in_order = in_order
        first = np.full(len(kinds), len(kinds.of_request))
        np.minimum.at(first, kinds.of_request, np.arange(len(kinds.of_request)))
        self._first = [str(request) for request in first.tolist()]
        self._known: dict[Counts, dict[str, int]] = {}

    def counts(self, before: Counts, row: Counts) -> dict[str, int]:
        """Return the VMs by request of a combination, after ``before`` VMs of each kind."""
        if not self._in_order:
            known = self._known.get(row)
            if known is None:
                known = self._known[row] = {
                    self._first[kind]: count for kind, count in enumerate(row) if count
                }
            return known
        by_request: dict[int, int] = {}
        for kind, count in enumerate(row):
            if count:
                served = self._serving.requests_served(
                    kind, min(before[kind], self._serving.maximum[kind] - 1), count
                )
                missing = count - sum(served.values())
                if missing:
                    last_request = int(self._serving.order[kind][-1])
                    served[last_request] = served.get(last_request, 0) + missing
                for request, n in served.items():
                    by_request[request] = by_request.get(request, 0) + n
        return {str(request): n for request, n in sorted(by_request.items())}
