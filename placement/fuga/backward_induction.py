"""Backward induction over a game of hosts; each subgame is solved once.

What the players after one do depends on the VMs of each kind that were taken before them, and not
on which players took them. So a subgame is a player and such totals: all plays that lead there
share it. The subgames of one player form its turn and are solved together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import numpy as np

from placement.fuga.game import UTILITY_TOLERANCE, Game, PlayerChoice
from placement.fuga.strategies import skewness
from placement.model.arrays import FloatArray, IntArray
from placement.model.budget import Budget

#: Each total is encoded as one number below this.
_LARGEST_NUMBER: Final = 2**62


@dataclass(frozen=True, slots=True, eq=False)
class PlayerSubgames:
    """The subgames in which one player acts.

    Attributes
    ----------
    player : int
        Index of the player in `Game.players`.
    taken : ndarray of int64, shape (S, T)
        VMs of each kind that earlier players took, for each subgame.
    after : ndarray of int64, shape (S, K)
        Each strategy's subgame in the next turn; -1 where nothing of the strategy is left.
    skewness : ndarray of float64, shape (S, K) or (1, K)
        ske(m) of each strategy, clipped to the VMs that are left.
    """

    player: int
    taken: IntArray
    after: IntArray
    skewness: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class SubgameTree:
    """All subgames that play can reach.

    Attributes
    ----------
    turns : list of PlayerSubgames
        In the order of play.
    totals : ndarray of int64, shape (E, T)
        VMs of each kind taken at each end that play can reach.
    """

    turns: list[PlayerSubgames]
    totals: IntArray

    @property
    def subgames(self) -> int:
        """The number of subgames, without the ends."""
        return sum(len(turn.taken) for turn in self.turns)


class TreeTooLarge(Enum):
    """The reason for which the subgames of a game were not enumerated."""

    SUBGAMES = auto()  #: they are more than was allowed
    BUDGET = auto()


def enumerate_subgames(
    game: Game, players: Sequence[int], budget: Budget, max_subgames: int | None = None
) -> SubgameTree | TreeTooLarge:
    """Enumerate the subgames of some players, or say why there are too many.

    Parameters
    ----------
    players : sequence of int
        Indices in `Game.players`, in the order of play.
    budget : Budget
        One unit for each strategy of a subgame.
    max_subgames : int, optional
        Largest number of subgames; by default the budget is the only limit.
    """
    turns: list[PlayerSubgames] = []
    taken = np.zeros((1, len(game.demand)), dtype=np.int64)
    subgames = 0
    for player in players:
        subgames += len(taken)
        if max_subgames is not None and subgames > max_subgames:
            return TreeTooLarge.SUBGAMES
        if not budget.spend(len(taken) * len(game.strategies(player))):
            return TreeTooLarge.BUDGET
        turn, taken = _expand_turn(game, player, taken)
        turns.append(turn)
    return SubgameTree(turns, taken)


def _expand_turn(game: Game, player: int, taken: IntArray) -> tuple[PlayerSubgames, IntArray]:
    """Return a player's subgames, and the VMs taken before each subgame of the next player."""
    own = game.strategies(player)
    rows = own.counts
    left = game.serving.available - taken
    scarce = np.flatnonzero((left < rows.max(axis=0)).any(axis=1))
    takes = np.broadcast_to(rows, (len(taken), *rows.shape))
    skew = np.array([own.skewness])
    usable = np.ones((len(taken), len(rows)), dtype=np.bool_)
    if len(scarce):
        takes = takes.copy()
        takes[scarce] = np.minimum(rows, left[scarce, None])
        # To take nothing is a strategy only where nothing else is left.
        usable[scarce] = takes[scarce].any(axis=2)
        usable[scarce, 0] |= ~usable[scarce].any(axis=1)
        skew = np.repeat(skew, len(taken), axis=0)
        skew[scarce] = _skewness(game, player, takes[scarce])
    reached, numbers = _distinct_rows((taken[:, None] + takes)[usable])
    after = np.full(usable.shape, -1, dtype=np.int64)
    after[usable] = numbers
    return PlayerSubgames(player, taken, after, skew), reached


def _skewness(game: Game, player: int, takes: IntArray) -> FloatArray:
    """Return ske(m) of a player for each choice of VMs of each kind, (..., T) to (...)."""
    capacity = game.players.capacity[player, game.ranking]
    running = capacity - game.players.free[player, game.ranking]
    return skewness(running + (takes @ game.demand)[..., game.ranking], capacity)


def _distinct_rows(rows: IntArray) -> tuple[IntArray, IntArray]:
    """Return the distinct rows of taken VMs, (X, T), and the index of each row in them, (X,)."""
    number, below = np.zeros(len(rows), dtype=np.int64), 1
    for column in rows.T:
        width = int(column.max()) + 1
        if below * width >= _LARGEST_NUMBER:
            known, number = np.unique(number, return_inverse=True)
            below = len(known)
        number = number * width + column
        below *= width
    _, first, places = np.unique(number, return_index=True, return_inverse=True)
    return rows[first], places


@dataclass(frozen=True, slots=True, eq=False)
class SubgameChoices:
    """The players' choices in every subgame, and the end to which each leads.

    Attributes
    ----------
    chosen : list of ndarray of int64, shape (S,)
        The strategy that each turn's player chooses in each subgame.
    ends : list of ndarray of int64, shape (S,)
        The end that play reaches from each subgame, a row of `SubgameTree.totals`: an array for
        each turn, and one for the ends themselves.
    """

    chosen: list[IntArray]
    ends: list[IntArray]


def solve_subgames(game: Game, tree: SubgameTree) -> SubgameChoices:
    """Return the best choice of the acting player in every subgame, by backward induction.

    The value of a strategy is v(A) at the end that the followers' best answers lead to, less the
    player's own skewness. Ties go to the earliest strategy.
    """
    fairness = game.serving.fairness(tree.totals)
    chosen: list[IntArray] = []
    ends = [np.arange(len(tree.totals))]
    for turn in reversed(tree.turns):
        led_to = ends[-1][turn.after]
        utility = np.where(turn.after >= 0, fairness[led_to] - turn.skewness, -np.inf)
        good = utility >= utility.max(axis=1, keepdims=True) - UTILITY_TOLERANCE
        best = good.argmax(axis=1)
        chosen.append(best)
        ends.append(np.take_along_axis(led_to, best[:, None], axis=1)[:, 0])
    return SubgameChoices(chosen[::-1], ends[::-1])


def equilibrium_path(game: Game, tree: SubgameTree, answers: SubgameChoices) -> list[PlayerChoice]:
    """Return the players' choices in the subgame-perfect equilibrium, in the order of play."""
    moves, place = [], 0
    for turn, led_to in zip(tree.turns, answers.ends[1:], strict=True):
        left = game.serving.available - turn.taken[place]
        strategies = game.clip_strategies(turn.player, left.tolist())
        after = turn.after[place][turn.after[place] >= 0]
        others = tree.totals[led_to[after]] - strategies.counts
        move = game.best_response(turn.player, strategies, [tuple(row) for row in others.tolist()])
        place = int(after[move.chosen])
        moves.append(move)
    return moves
