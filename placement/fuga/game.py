"""The FUGA game: hosts as players, combinations as strategies, U(m) = v(A) - ske(m)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress, count
from operator import add, lt, sub
from typing import Final

import numpy as np

from placement.fuga.players import Players
from placement.fuga.service_order import ServiceOrder
from placement.fuga.strategies import (
    Counts,
    PlayerStrategies,
    Strategies,
    StrategySource,
    skewness,
    strategies_with_scores,
)
from placement.model.arrays import FloatArray, IntArray

#: A strategy that gains less than this is no better.
UTILITY_TOLERANCE: Final = 1e-9


@dataclass(slots=True, eq=False)  # frozen, it would take three times as long to make one
class PlayerChoice:
    """A player's last choice, with the strategies that it weighed; immutable."""

    player: int  #: place in `Game.players`
    strategies: Strategies
    others: list[Counts]  #: (K, T) VMs of each kind that the others take if it takes strategy k
    fairness: list[float]  #: (K,) v(A) of each strategy
    chosen: int

    @property
    def taken(self) -> Counts:
        """VMs of each kind that it takes."""
        return self.strategies.rows[self.chosen]

    @property
    def counts(self) -> IntArray:
        """VMs of each kind that it takes, shape (T,)."""
        return np.array(self.taken, dtype=np.int64)

    @property
    def utilities(self) -> FloatArray:
        """Utility U of each strategy, shape (K,)."""
        utilities: FloatArray = np.array(self.fairness) - np.array(self.strategies.skewness)
        return utilities

    def utility(self, strategy: int) -> float:
        """Utility U of one strategy: its fairness less its skewness."""
        return self.fairness[strategy] - self.strategies.skewness[strategy]


@dataclass(slots=True, eq=False)
class Game:
    """The players of a game in the order in which they act, and their strategies.

    Attributes
    ----------
    players : Players
        In ascending order of the lowest minimum utilization among their
        strategies; equals by host.
    initial_strategies : PlayerStrategies
        The strategies of each with all VMs still there to take.
    moves : dict
        Player to its move; a player without one takes nothing.
    """

    players: Players
    initial_strategies: PlayerStrategies
    serving: ServiceOrder
    source: StrategySource
    demand: IntArray  #: (T, R)
    ranking: IntArray
    moves: dict[int, PlayerChoice] = field(default_factory=dict)
    #: how each player chose and what, in order, the first ``most_noted``; None: not recorded
    noted: list[tuple[str, PlayerChoice]] | None = None
    most_noted: int = 0
    moved: int = 0  #: number of times that a player chose, or chose otherwise
    #: strategies that were looked for again when VMs had run out
    refreshed: dict[int, Strategies] = field(default_factory=dict)
    _strategies: dict[int, Strategies] = field(default_factory=dict)
    _idle: list[float] = field(default_factory=list)
    _totals: list[int] = field(default_factory=list)
    #: of each kind the most that any strategy takes
    _most_wanted: list[int] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        players: Players,
        serving: ServiceOrder,
        source: StrategySource,
        demand: IntArray,
        ranking: IntArray,
    ) -> Game:
        """Find all players' strategies and set the order of play.

        ``demand`` has a row for each kind of VM, shape (T, R).
        """
        found = source.strategies_of_all(players, serving.available)
        order = np.lexsort((players.host, found.lowest_score()))
        order = order[found.counts[order] > 0]
        return cls(players.take(order), found.take(order), serving, source, demand, ranking)

    def strategies(self, player: int) -> Strategies:
        """Return a player's current strategies; see `refresh_strategies`."""
        own = self._strategies.get(player)
        if own is None:
            own = self._strategies[player] = self.initial_strategies[player]
        return own

    def choose(self, move: PlayerChoice, how: str) -> None:
        """Apply a player's choice, and update the totals of all players."""
        former = self.moves.get(move.player)
        self.moves[move.player] = move
        taken = move.taken
        if former is None or former.taken != taken:
            self.moved += 1
            before = (0,) * len(taken) if former is None else former.taken
            totals = self._totals or (0,) * len(taken)
            self._totals = list(map(sub, map(add, totals, taken), before))
            if self.noted is not None and len(self.noted) < self.most_noted:
                self.noted.append((how, move))

    @property
    def taken(self) -> IntArray:
        """VMs of each kind that each player takes, shape (P, T)."""
        taken = np.zeros((len(self.players), len(self.demand)), dtype=np.int64)
        if self.moves:
            taken[list(self.moves)] = [move.taken for move in self.moves.values()]
        return taken

    @property
    def totals(self) -> IntArray:
        """VMs of each kind that are taken, shape (T,)."""
        return np.array(self._totals or [0] * len(self.demand), dtype=np.int64)

    def skewness(self) -> FloatArray:
        """Return ske(m) of all players as they have moved, shape (P,)."""
        skew = self.idle_skewness()
        if self.moves:
            moves = self.moves.values()
            skew[list(self.moves)] = [move.strategies.skewness[move.chosen] for move in moves]
        return skew

    def idle_skewness(self) -> FloatArray:
        """Return ske(m) of all players before the first move, shape (P,)."""
        capacity = self.players.capacity[:, self.ranking]
        return skewness(capacity - self.players.free[:, self.ranking], capacity)

    def potential(self) -> float:
        """Return the potential: v(A) less all players' skewness."""
        fairness = self.serving.fairness_of_one(self.totals.tolist())
        return fairness - float(self.skewness().sum())

    def choice_of(self, player: int, totals: Counts) -> PlayerChoice:
        """Return a player's choice; a player that has not chosen takes no VM.

        Its fairness then is v(A) of ``totals``, the VMs of each kind that all players take.
        """
        move = self.moves.get(player)
        if move is None:
            fairness = [self.serving.fairness_of_one(totals)]
            move = PlayerChoice(player, self._idle_strategy(player), [totals], fairness, 0)
        return move

    def clip_strategies(self, player: int, left: Sequence[int]) -> Strategies:
        """Return a player's strategies clipped to the VMs that are left.

        If no strategy takes a VM after clipping, the only strategy is to take nothing.
        """
        own = self.strategies(player)
        if not self.needs_more(player, left):
            return own
        # Plain numbers, also where the caller counts in an array.
        maximum = [int(each) for each in left]
        rows = [tuple(map(min, row, maximum)) for row in own.rows]
        rows = [row for row in rows if any(row)]
        if not rows:
            return self._idle_strategy(player)
        return self._score_rows(player, rows)

    def _idle_strategy(self, player: int) -> Strategies:
        """Return the only strategy of a player that takes no VM."""
        if not self._idle:  # towards the end of a game that is nearly every player
            self._idle = self.idle_skewness().tolist()
        return Strategies([(0,) * len(self.demand)], [0.0], [self._idle[player]])

    def _score_rows(self, player: int, rows: list[Counts]) -> Strategies:
        """Return combinations as the player's strategies, with their scores."""
        return strategies_with_scores(self.players[player], rows, self.demand, self.ranking)

    def needs_more(self, player: int, left: Sequence[int]) -> bool:
        """Return whether a strategy of a player takes more of a kind than is left."""
        if not self._most_wanted:
            rows = [row for pool in self.initial_strategies.pools for row in pool.rows]
            rows += [row for own in self.refreshed.values() for row in own.rows]
            self._most_wanted = [max(column, default=0) for column in zip(*rows, strict=True)]
        # No strategies are checked until VMs of a kind run out, and then of that kind alone.
        short = list(compress(count(), map(lt, left, self._most_wanted)))
        if not short:
            return False
        for row in self.strategies(player).rows:
            for kind in short:
                if row[kind] > left[kind]:
                    return True
        return False

    def refresh_strategies(self, player: int, left: Sequence[int]) -> None:
        """Search a player's strategies again if they need VMs that are not left."""
        if self.needs_more(player, left):
            found = self.source.strategies(self.players[player], np.array(left, dtype=np.int64))
            if len(found) > 0:
                self._strategies[player] = self.refreshed[player] = found
                self._most_wanted = list(map(max, self._most_wanted, *found.rows))

    def best_response(
        self, player: int, strategies: Strategies, others: Sequence[int] | Sequence[Counts]
    ) -> PlayerChoice:
        """Return a player's best response to the others' choices; ties go to the earliest.

        ``others`` has one row per strategy if the other players respond differently to
        each strategy, and a single row otherwise.
        """
        rows: list[Counts]
        if len(others) and isinstance(others[0], tuple):
            rows = list(others)  # type: ignore[arg-type]  # rows, as the first one shows
        else:
            rows = [tuple(others)] * len(strategies.rows)  # type: ignore[arg-type]  # one row
        fairness = self.serving.fairness_of_each(strategies.rows, rows)
        best = earliest_best_strategy(list(map(sub, fairness, strategies.skewness)))
        return PlayerChoice(player, strategies, rows, fairness, best)


def earliest_best_strategy(utilities: Sequence[float]) -> int:
    """Return a player's first strategy that no other beats by more than `UTILITY_TOLERANCE`."""
    good, place = max(utilities) - UTILITY_TOLERANCE, 0
    while utilities[place] < good:
        place += 1
    return place
