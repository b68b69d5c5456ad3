"""Check, independently of the solver, that no player gains by deviating.

The check computes strategies, ends and skewness from the definitions and compares them with the
solver's tables. The two share only v(A).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

import numpy as np

from placement.fuga.backward_induction import SubgameChoices, SubgameTree
from placement.fuga.game import Game
from placement.model.arrays import BoolArray, FloatArray, IntArray

#: A gain below this is none: twice what solvers take for equal, since both ends are rounded.
NO_GAIN: Final = 2e-9
#: Rows of (player or subgame, strategy) that are looked at together.
_BLOCK: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GameCertificate:
    """The result of the check of a game."""

    of: str  #: "subgame_perfect" or "nash"
    largest_gain: float  #: that a player would have by deviating, in utility; infinite: no play

    @property
    def holds(self) -> bool:
        """Whether the players' choices are an equilibrium within the tolerance."""
        return self.largest_gain <= NO_GAIN


def check_nash(game: Game) -> GameCertificate:
    """Find the largest gain of a player by another strategy, given the others' choices.

    Strategies are clipped to the VMs that the others leave. A player for which nothing is
    left has one strategy: to take nothing.
    """
    taken = game.taken
    left = game.serving.available - taken.sum(axis=0)
    if (left < 0).any():
        return GameCertificate(of="nash", largest_gain=np.inf)
    totals = taken.sum(axis=0)
    now = game.serving.fairness(totals[None])[0] - _skewness(
        game, np.arange(len(taken)), taken[:, None]
    )
    largest = 0.0
    for players, rows in _players_by_width(game):
        offered = np.minimum(rows, taken[players][:, None] + left)
        others = totals - taken[players]
        utility = game.serving.fairness(others[:, None] + offered) - _skewness(
            game, players, offered
        )
        gains = np.where(_usable_strategies(offered), utility - now[players], 0.0)
        largest = max(largest, float(gains.max(initial=0.0)))
    return GameCertificate(of="nash", largest_gain=largest)


def check_subgames(game: Game, tree: SubgameTree, answers: SubgameChoices) -> GameCertificate:
    """Find the largest gain of a player by one deviation, over all subgames.

    If no player gains by one deviation, none gains by several: the game is finite
    (the one-deviation principle). The moves have to be those that the answers lead to.
    """
    fairness = game.serving.fairness(tree.totals)
    wrong = GameCertificate(of="subgame_perfect", largest_gain=np.inf)
    reached = [*(turn.taken for turn in tree.turns[1:]), tree.totals]
    if len(tree.turns[0].taken) != 1 or tree.turns[0].taken.any():
        return wrong
    place, largest = 0, 0.0
    for number, turn in enumerate(tree.turns):
        rows = game.strategies(turn.player).counts
        chosen, ends, then = answers.chosen[number], answers.ends[number], answers.ends[number + 1]
        if game.moves[turn.player].taken != _clip_strategy(
            game, rows, turn.taken[place], chosen[place]
        ):
            return wrong
        for start in range(0, len(turn.taken), max(1, _BLOCK // len(rows))):
            some = slice(start, start + max(1, _BLOCK // len(rows)))
            left = game.serving.available - turn.taken[some]
            offered = np.minimum(rows, left[:, None])
            usable, after = _usable_strategies(offered), turn.after[some]
            leads = reached[number][after]
            if (left < 0).any() or (usable != (after >= 0)).any():
                return wrong
            if (leads != turn.taken[some][:, None] + offered)[usable].any():
                return wrong
            players = np.full(len(left), turn.player)
            utility = fairness[then[after]] - _skewness(game, players, offered)
            own = np.take_along_axis(utility, chosen[some][:, None], axis=1)
            follows = np.take_along_axis(then[after], chosen[some][:, None], axis=1)[:, 0]
            if (follows != ends[some]).any():
                return wrong
            gains = np.where(usable, utility - own, 0.0)
            largest = max(largest, float(gains.max(initial=0.0)))
        place = int(turn.after[place, chosen[place]])
    return GameCertificate(of="subgame_perfect", largest_gain=largest)


def _clip_strategy(game: Game, rows: IntArray, before: IntArray, which: int) -> tuple[int, ...]:
    """Return a strategy's VMs of each kind, cut to what is left after the ``before`` ones."""
    return tuple(np.minimum(rows[which], game.serving.available - before).tolist())


def _usable_strategies(offered: IntArray) -> BoolArray:
    """Return which strategies, (..., K, T), a player may choose: all that take a VM.

    If no strategy takes anything, the first one is usable: to take nothing.
    """
    usable: BoolArray = np.any(offered != 0, axis=-1)
    usable[..., 0] |= ~np.any(usable, axis=-1)
    return usable


def _players_by_width(game: Game) -> list[tuple[IntArray, IntArray]]:
    """Return players (X,) and their strategies (X, K, T), grouped by number of strategies."""
    combinations = [row for pool in game.initial_strategies.pools for row in pool.rows]
    numbered, counts = game.initial_strategies.pool_numbers(), game.initial_strategies.counts
    known = np.array(combinations, dtype=np.int64).reshape(-1, len(game.demand))
    found: list[tuple[IntArray, IntArray]] = []
    usual = np.ones(len(game.players), dtype=np.bool_)
    usual[list(game.refreshed)] = False
    for width in np.unique(counts[usual]).tolist():
        players = np.flatnonzero(usual & (counts == width))
        found.extend(
            (some, known[numbered[some, :width]]) for some in _player_blocks(players, width)
        )
    by_width: defaultdict[int, list[int]] = defaultdict(list)
    for player, own in game.refreshed.items():
        by_width[len(own)].append(player)
    for width, those in by_width.items():
        for some in _player_blocks(np.array(those), width):
            rows = [game.refreshed[player].rows for player in some.tolist()]
            found.append((some, np.array(rows, dtype=np.int64)))
    return found


def _player_blocks(players: IntArray, width: int) -> list[IntArray]:
    """Split players, (X,), into blocks small enough to be checked at once."""
    return np.array_split(players, -(-len(players) * width // _BLOCK))


def _skewness(game: Game, players: IntArray, offered: IntArray) -> FloatArray:
    """Return ske(m), (X, K), of players (X,) that take these VMs of each kind, (X, K, T).

    ``sqrt(sum_j (u_j / mean(u) - 1)^2)``; 0 for a host that is not used.
    """
    ranking = game.ranking
    capacity = game.players.capacity[players][:, None, ranking]
    running = capacity - game.players.free[players][:, None, ranking]
    parts = (running + offered @ game.demand[:, ranking]) / capacity
    mean = parts.sum(axis=-1) / len(ranking)
    squares = ((parts - mean[..., None]) ** 2).sum(axis=-1)
    skew: FloatArray = np.sqrt(squares) / np.where(mean > 0, mean, 1.0)
    return skew
