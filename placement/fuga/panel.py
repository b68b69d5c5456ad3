"""All players of a game side by side: who may gain by another strategy?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from placement.fuga.game import UTILITY_TOLERANCE, Game, Move
from placement.fuga.strategies import Counts, skewness
from placement.model.arrays import BoolArray, FloatArray, IntArray

#: Players that are looked at together.
_BLOCK: Final = 2_048
#: Sums of distances may differ by so much from how a single player sees them.
_ROUNDING: Final = 1e-13


@dataclass(slots=True, eq=False)
class Panel:
    """The choices of all players as arrays, kept in step with their moves.

    A look at all of them at once costs about as much as twenty single ones, and
    most players stay where they are.
    """

    game: Game
    taken: IntArray  #: (P, T) VMs of each kind
    skew: FloatArray  #: (P,) of what they take
    totals: Counts  #: VMs of each kind that all take
    strategies: int  #: of all players together
    combinations: IntArray  #: (D, T) all that any player may choose
    offered: IntArray  #: (P, K) the strategies of each, places in `combinations`
    capacity: IntArray  #: (P, J) of the ranking resources
    running: IntArray  #: (P, J) of what runs on the host already

    @classmethod
    def of(cls, game: Game) -> Panel:
        """Look at the moves of a game."""
        rows = [row for pool in game.hands.pools for row in pool.rows]
        offered, counts = game.hands.numbered(), game.hands.counts
        for player, own in game.anew.items():
            # Who has fewer strategies has its first one again.
            numbers = [*range(len(rows), len(rows) + len(own))]
            offered[player] = numbers + numbers[:1] * (offered.shape[1] - len(own))
            counts[player] = len(own)
            rows += own.rows
        combinations = np.array(rows, dtype=np.int64).reshape(-1, len(game.demand))
        capacity = game.players.capacity[:, game.ranking]
        return cls(
            game=game,
            taken=game.taken,
            skew=game.skewness(),
            totals=tuple(game.totals.tolist()),
            strategies=int(counts.sum()),
            combinations=combinations,
            offered=offered,
            capacity=capacity,
            running=capacity - game.players.free[:, game.ranking],
        )

    def change(self, player: int, move: Move) -> None:
        """Take note of another choice."""
        before = self.taken[player].tolist()
        self.taken[player] = move.taken
        self.skew[player] = move.strategies.skewness[move.chosen]
        self.totals = tuple(
            total + now - then
            for total, now, then in zip(self.totals, move.taken, before, strict=True)
        )

    def blocks(self) -> Iterator[IntArray]:
        """Yield the players, (M,) in all, in blocks whose tables fit in the cache."""
        for start in range(0, len(self.taken), _BLOCK):
            yield np.arange(start, min(start + _BLOCK, len(self.taken)))

    def may_gain(self, players: IntArray) -> IntArray:
        """Return those of some players, shape (X,), who can gain as things stand.

        Besides a few for whom rounding errors look like a gain.
        """
        serving, ranking = self.game.serving, self.game.ranking
        totals = np.array(self.totals, dtype=np.int64)
        left = np.array(serving.most, dtype=np.int64) - totals
        if not left.any():  # then all that one can do is to take less
            players = players[self.taken[players].any(axis=1)]
        own = self.taken[players][:, None]
        rows = np.minimum(self.combinations[self.offered[players]], own + left)
        amounts = (rows @ self.game.demand)[:, :, ranking]
        skew = skewness(self.running[players][:, None] + amounts, self.capacity[players][:, None])
        away = serving.away(totals - own + rows)
        now = serving.away(totals[None])[0]
        least = np.minimum(away, now)
        slack = serving.as_fairness(least) - serving.as_fairness(least + _ROUNDING)
        gain = (
            serving.as_fairness(away)
            - skew
            - (serving.as_fairness(now) - self.skew[players])[:, None]
        )
        # To take nothing at all is a strategy only where nothing else is left.
        usable: BoolArray = np.any(rows != 0, axis=2)
        usable |= ~np.any(usable, axis=1, keepdims=True)
        other = np.any(rows != own, axis=2)
        gains = (gain + slack > UTILITY_TOLERANCE) & usable & other
        may: IntArray = players[gains.any(axis=1)]
        return may
