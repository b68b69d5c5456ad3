"""All players of a game side by side: who may gain by another strategy?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from placement.game import UTILITY_TOLERANCE, Game, Move
from placement.model import BoolArray, FloatArray, IntArray
from placement.strategies import Counts, skewness

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
    movers: IntArray  #: (P,) players who have moved, in order
    taken: IntArray  #: (P, T) VMs of each kind
    skew: FloatArray  #: (P,) of what they take
    totals: Counts  #: VMs of each kind that all take
    strategies: int  #: of all players together
    distinct: IntArray  #: (D, T) all combinations that any player may choose
    offered: IntArray  #: (P, K) the strategies of each, places in `distinct`
    capacity: IntArray  #: (P, J) of the ranking resources
    running: IntArray  #: (P, J) of what runs on the host already

    @classmethod
    def of(cls, game: Game) -> Panel:
        """Look at the moves of a game."""
        movers = sorted(game.moves)
        width = max((len(game.strategies[player]) for player in movers), default=1)
        known: dict[Counts, int] = {}
        offered = np.zeros((len(movers), width), dtype=np.int64)
        for place, player in enumerate(movers):
            rows = game.strategies[player].rows
            # Who has fewer strategies has its first one again.
            ids = [known.setdefault(row, len(known)) for row in rows]
            offered[place] = ids + ids[:1] * (width - len(ids))
        moves = [game.moves[player] for player in movers]
        players = [game.players[player] for player in movers]
        kinds = len(game.demand)
        capacity = _stacked([player.capacity for player in players], game)
        return cls(
            game=game,
            movers=np.array(movers, dtype=np.int64),
            taken=np.array([move.taken for move in moves], np.int64).reshape(-1, kinds),
            skew=np.array([move.strategies.skewness[move.chosen] for move in moves]),
            totals=tuple(game.totals.tolist()),
            strategies=sum(len(game.strategies[player]) for player in movers),
            distinct=np.array(list(known), dtype=np.int64).reshape(-1, kinds),
            offered=offered,
            capacity=capacity,
            running=capacity - _stacked([player.free for player in players], game),
        )

    def change(self, player: int, move: Move) -> None:
        """Take note of another choice."""
        place = int(np.searchsorted(self.movers, player))
        before = self.taken[place].copy()
        self.taken[place] = move.taken
        self.skew[place] = move.strategies.skewness[move.chosen]
        self.totals = tuple((np.array(self.totals) + self.taken[place] - before).tolist())

    def may_gain(self) -> Iterator[int]:
        """Yield players who can gain as things stand when their block is looked at.

        Besides a few for whom rounding errors look like a gain.
        """
        for start in range(0, len(self.movers), _BLOCK):
            block = slice(start, start + _BLOCK)
            yield from self.movers[block][self._gains(block)].tolist()

    def _gains(self, block: slice) -> IntArray:
        serving, ranking = self.game.serving, self.game.ranking
        own = self.taken[block][:, None]
        totals = np.array(self.totals, dtype=np.int64)
        left = np.array(serving.most, dtype=np.int64) - totals
        rows = np.minimum(self.distinct[self.offered[block]], own + left)
        amounts = (rows @ self.game.demand)[:, :, ranking]
        skew = skewness(self.running[block][:, None] + amounts, self.capacity[block][:, None])
        away = serving.away(totals - own + rows)
        now = serving.away(totals[None])[0]
        least = np.minimum(away, now)
        slack = serving.as_fairness(least) - serving.as_fairness(least + _ROUNDING)
        gain = (
            serving.as_fairness(away)
            - skew
            - (serving.as_fairness(now) - self.skew[block])[:, None]
        )
        # To take nothing at all is a strategy only where nothing else is left.
        usable: BoolArray = np.any(rows != 0, axis=2)
        usable |= ~np.any(usable, axis=1, keepdims=True)
        other = np.any(rows != own, axis=2)
        gains = (gain + slack > UTILITY_TOLERANCE) & usable & other
        return np.flatnonzero(gains.any(axis=1))


def _stacked(amounts: list[IntArray], game: Game) -> IntArray:
    stacked = np.array(amounts, dtype=np.int64).reshape(-1, game.demand.shape[1])
    return stacked[:, game.ranking]
