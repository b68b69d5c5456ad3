"""How the game is solved: exactly, in Algorithm 1's order, and by best-response sweeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import add, sub
from typing import Final

import numpy as np

from placement.errors import ParameterError
from placement.fuga.backward_induction import (
    SubgameTree,
    TreeTooLarge,
    enumerate_subgames,
    equilibrium_path,
    solve_subgames,
)
from placement.fuga.certificate import GameCertificate, check_nash, check_subgames
from placement.fuga.game import UTILITY_TOLERANCE, Game, PlayerChoice
from placement.fuga.parameters import LARGEST_GAME, MAX_PLAYERS, Equilibrium
from placement.fuga.strategies import Counts, skewness
from placement.model.arrays import BoolArray, FloatArray, IntArray
from placement.model.budget import Budget

#: Players that are looked at together.
_BLOCK: Final = 2_048
#: Sums of distances may differ by so much from how a single player sees them.
_ROUNDING: Final = 1e-13


@dataclass(slots=True, eq=False)
class ChoiceTable:
    """The choices of all players as arrays, updated with their moves.

    One pass over all players costs about as much as twenty single players, and most players keep
    their choice.
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
    def of(cls, game: Game) -> ChoiceTable:
        """Build the arrays from the players' choices in a game."""
        rows = [row for pool in game.initial_strategies.pools for row in pool.rows]
        offered, counts = game.initial_strategies.pool_numbers(), game.initial_strategies.counts
        for player, own in game.refreshed.items():
            # A player with fewer strategies repeats its first one.
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

    def apply_choice(self, player: int, move: PlayerChoice) -> None:
        """Update the arrays after a player's new choice."""
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

    def players_that_may_gain(self, players: IntArray) -> IntArray:
        """Return the players among those given, shape (X,), that can gain now.

        The result may include players whose gain is only a rounding error.
        """
        serving, ranking = self.game.serving, self.game.ranking
        totals = np.array(self.totals, dtype=np.int64)
        left = np.array(serving.maximum, dtype=np.int64) - totals
        if not left.any():  # then all that one can do is to take less
            players = players[self.taken[players].any(axis=1)]
        own = self.taken[players][:, None]
        rows = np.minimum(self.combinations[self.offered[players]], own + left)
        amounts = (rows @ self.game.demand)[:, :, ranking]
        skew = skewness(self.running[players][:, None] + amounts, self.capacity[players][:, None])
        away = serving.sum_of_distances(totals - own + rows)
        now = serving.sum_of_distances(totals[None])[0]
        minimum = np.minimum(away, now)
        slack = serving.fairness_of_distances(minimum) - serving.fairness_of_distances(
            minimum + _ROUNDING
        )
        gain = (
            serving.fairness_of_distances(away)
            - skew
            - (serving.fairness_of_distances(now) - self.skew[players])[:, None]
        )
        # To take nothing at all is a strategy only where nothing else is left.
        usable: BoolArray = np.any(rows != 0, axis=2)
        usable |= ~np.any(usable, axis=1, keepdims=True)
        other = np.any(rows != own, axis=2)
        gains = (gain + slack > UTILITY_TOLERANCE) & usable & other
        may: IntArray = players[gains.any(axis=1)]
        return may


#: Players in a row without gain after which all waiting players are checked again.
_MAX_UNCHANGED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GameSolution:
    """How a game was solved; the game holds the moves."""

    equilibrium: Equilibrium  #: never "auto"
    subgames: int  #: of backward induction, 0 where the game was solved otherwise
    sweeps: int  #: best-response sweeps, the last of which changed nothing unless cut
    potential: tuple[float, float]  #: before and after the sweeps
    certificate: GameCertificate | None  #: None: the budget was spent before the check
    cut: str | None = None  #: what stopped it early


def solve_game(
    game: Game, *, equilibrium: Equilibrium, most_subgames: int, most_sweeps: int, budget: Budget
) -> GameSolution:
    """Solve the game: let every player move.

    Parameters
    ----------
    equilibrium : {"auto", "exact", "sequential", "sweeps"}
        ``exact``: subgame-perfect equilibrium by backward induction;
        ``sequential``: the paper's Algorithm 1; ``sweeps``: Algorithm 1, then
        best-response sweeps; ``auto``: exact where the game has at most
        ``most_subgames`` and `MAX_PLAYERS`, else sweeps.
    budget : Budget
        One unit for each strategy weighed.

    Raises
    ------
    ParameterError
        If ``exact`` is requested and the game has more than `LARGEST_GAME` subgames.

    Notes
    -----
    v is common and ske is private, so the game is an exact potential game with
    potential v(A) minus the sum of ske: each change of a sweep raises it, and
    sweeps end in a pure Nash equilibrium (derived).
    """
    cut = None
    if equilibrium == "exact" or (equilibrium == "auto" and len(game.players) <= MAX_PLAYERS):
        maximum = LARGEST_GAME if equilibrium == "exact" else most_subgames
        tree = enumerate_subgames(game, range(len(game.players)), budget, maximum)
        if isinstance(tree, SubgameTree):
            answers = solve_subgames(game, tree)
            for move in equilibrium_path(game, tree, answers):
                game.choose(move, "exact")
            potential = game.potential()
            return GameSolution(
                equilibrium="exact",
                subgames=tree.subgames,
                sweeps=0,
                potential=(potential, potential),
                certificate=check_subgames(game, tree, answers),
            )
        if tree is TreeTooLarge.SUBGAMES and equilibrium == "exact":
            raise ParameterError(
                "equilibrium",
                equilibrium,
                f"auto | sequential | sweeps: this game of {len(game.players)} hosts has more "
                f"than {LARGEST_GAME:,} subgames",
            )
        if tree is TreeTooLarge.BUDGET:
            cut = "budget"
    cut = _play_in_sequence(game, budget) or cut
    before = game.potential()
    if equilibrium == "sequential":
        sweeps, stopped = 0, None
    else:
        sweeps, stopped = _sweep_players(game, most_sweeps, budget)
    cut = stopped or cut
    return GameSolution(
        equilibrium="sequential" if equilibrium == "sequential" else "sweeps",
        subgames=0,
        sweeps=sweeps,
        potential=(before, game.potential()),
        certificate=None if cut == "budget" else check_nash(game),
        cut=cut,
    )


def _play_in_sequence(game: Game, budget: Budget) -> str | None:
    """Play Algorithm 1; return what cut it short, if anything.

    The last two players choose in equilibrium, the others backwards one by one.
    """
    players = list(range(len(game.players)))
    last_two = players[-2:]
    tree = enumerate_subgames(game, last_two, budget)
    if isinstance(tree, TreeTooLarge):
        return "budget"
    for move in equilibrium_path(game, tree, solve_subgames(game, tree)):
        game.choose(move, "last_two")
    taken: Counts = tuple(game.totals.tolist())
    waiting = players[:-2]
    while waiting:
        left = _subtract_counts(game.serving.maximum, taken)
        if not any(left):
            return None if budget.spend(len(waiting)) else "budget"
        player = waiting.pop()
        game.refresh_strategies(player, left)
        strategies = game.clip_strategies(player, left)
        if not budget.spend(len(strategies)):
            return "budget"
        move = game.best_response(player, strategies, taken)
        game.choose(move, "sequential")
        taken = _add_counts(taken, move.taken)
    return None


def _add_counts(one: Counts, other: Counts) -> Counts:
    """Return the sum of two counts of VMs by kind."""
    return tuple(map(add, one, other))


def _subtract_counts(one: Counts, other: Counts) -> Counts:
    """Return the difference of two counts of VMs by kind."""
    return tuple(map(sub, one, other))


def _sweep_players(game: Game, most_sweeps: int, budget: Budget) -> tuple[int, str | None]:
    """Let players respond in turn until no player gains; return the sweeps, and what cut them.

    A sweep finds all players that may gain now, and lets them respond in
    turn. A sweep without a change proves an equilibrium.
    """
    panel = ChoiceTable.of(game)
    for sweep in range(1, most_sweeps + 1):
        if not budget.spend(panel.strategies):
            return sweep, "budget"
        changed = False
        for block in panel.blocks():
            changed |= _sweep_block(game, panel, block)
        if not changed:
            return sweep, None
    return most_sweeps, "sweeps" if most_sweeps else None


def _sweep_block(game: Game, panel: ChoiceTable, block: IntArray) -> bool:
    """Let the players of a block that may gain respond in turn; return whether any changed."""
    waiting = panel.players_that_may_gain(block)
    changed, stale, unchanged = False, False, 0
    while len(waiting):
        if stale and unchanged >= _MAX_UNCHANGED:
            # What they could gain others may have taken since.
            waiting = panel.players_that_may_gain(waiting)
            stale, unchanged = False, 0
            continue
        player, waiting = int(waiting[0]), waiting[1:]
        before = game.choice_of(player, panel.totals)
        others = _subtract_counts(panel.totals, before.taken)
        strategies = game.clip_strategies(player, _subtract_counts(game.serving.maximum, others))
        after = _best_response(game, before, game.best_response(player, strategies, others))
        game.choose(after, "sweeps")
        if after.taken == before.taken:
            unchanged += 1
        else:
            changed = stale = True
            panel.apply_choice(player, after)
    return changed


def _best_response(game: Game, before: PlayerChoice, best: PlayerChoice) -> PlayerChoice:
    """Return the player's best response, or its former choice if nothing gains."""
    if before.taken in best.strategies.rows:
        stays = best.strategies.rows.index(before.taken)
        gain = best.utility(best.chosen) - best.utility(stays)
        return best if gain > UTILITY_TOLERANCE else replace(best, chosen=stays)
    with_former = best.strategies.with_strategy_of(before.strategies, before.chosen)
    weighed = game.best_response(before.player, with_former, best.others[0])
    stays = len(with_former) - 1
    gain = best.utility(best.chosen) - weighed.utility(stays)
    return best if gain > UTILITY_TOLERANCE else replace(weighed, chosen=stays)
