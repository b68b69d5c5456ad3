"""How the game is solved: exactly, in Algorithm 1's order, and by best-response sweeps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import add, sub
from typing import Final

import numpy as np

from placement.errors import ParameterError
from placement.fuga.game import UTILITY_TOLERANCE, Game, Move
from placement.fuga.panel import Panel
from placement.fuga.parameters import LARGEST_TREE, Equilibrium
from placement.fuga.strategies import Counts, Strategies
from placement.round.arrays import IntArray
from placement.round.budget import Budget

#: After so many players in a row who gain nothing, all who wait are looked at again.
_IN_VAIN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """How a game was solved; the moves stand in the game."""

    equilibrium: Equilibrium  #: never "auto"
    sweeps: int  #: best-response sweeps, the last of which changed nothing unless cut
    potential: tuple[float, float]  #: before and after the sweeps
    cut: str | None = None  #: what stopped it early


def solve(
    game: Game, *, equilibrium: Equilibrium, eta: int, most_sweeps: int, budget: Budget
) -> Solution:
    """Let every player move.

    Parameters
    ----------
    equilibrium : {"auto", "exact", "sequential", "sweeps"}
        ``exact``: subgame-perfect equilibrium by backward induction;
        ``sequential``: the paper's Algorithm 1; ``sweeps``: Algorithm 1, then
        best-response sweeps; ``auto``: exact where the tree has at most
        `LARGEST_TREE` leaves, else sweeps.
    budget : Budget
        One unit for each strategy weighed.

    Raises
    ------
    ParameterError
        If ``exact`` is asked for and the tree is larger.

    Notes
    -----
    v is common and ske is private, so the game is an exact potential game with
    potential v(A) minus the sum of ske: each change of a sweep raises it, and
    sweeps end in a pure Nash equilibrium (derived).
    """
    # Given strategies may be more than eta.
    width = max(eta, int(game.hands.counts.max()))
    leaves = width ** len(game.players)
    if equilibrium == "exact" and leaves > LARGEST_TREE:
        raise ParameterError(
            "equilibrium",
            equilibrium,
            f"auto | sequential | sweeps: {width}^{len(game.players)} leaves are more "
            f"than {LARGEST_TREE}",
        )
    cut = None
    if equilibrium == "exact" or (equilibrium == "auto" and leaves <= LARGEST_TREE):
        if budget.spend(leaves):
            _play_exactly(game)
            potential = game.potential()
            return Solution(equilibrium="exact", sweeps=0, potential=(potential, potential))
        cut = "budget"
    cut = _play_in_sequence(game, budget) or cut
    before = game.potential()
    if equilibrium == "sequential":
        return Solution(equilibrium="sequential", sweeps=0, potential=(before, before), cut=cut)
    sweeps, stopped = _sweep(game, most_sweeps, budget)
    return Solution(
        equilibrium="sweeps",
        sweeps=sweeps,
        potential=(before, game.potential()),
        cut=stopped or cut,
    )


def _play_exactly(game: Game) -> None:
    _, moves = _subgame(game, list(range(len(game.players))), (0,) * len(game.demand))
    game.moves = {move.player: move for move in moves}


def _subgame(game: Game, players: list[int], taken: Counts) -> tuple[Counts, list[Move]]:
    """Return the totals and moves of the equilibrium once ``taken`` has been chosen."""
    # Who has no choice needs no branch: they may be thousands.
    bound: list[tuple[int, Strategies]] = []
    for player in players:
        strategies = game.clipped(player, _less(game.serving.most, taken))
        if len(strategies) > 1:
            break
        bound.append((player, strategies))
        taken = _more(taken, strategies.rows[0])
    else:
        return taken, _bound_moves(game, bound, taken)
    followers = players[len(bound) + 1 :]
    if not followers:
        move = game.weigh(player, strategies, taken)
        totals, moves = _more(taken, move.taken), [move]
    else:
        ends = [_subgame(game, followers, _more(taken, row)) for row in strategies.rows]
        # Each strategy is judged by where the followers' answers to it lead.
        others = [
            _less(totals, row) for (totals, _), row in zip(ends, strategies.rows, strict=True)
        ]
        own = game.weigh(player, strategies, others)
        totals, moves = ends[own.chosen]
        moves = [own, *moves]
    return totals, [*_bound_moves(game, bound, totals), *moves]


def _bound_moves(game: Game, bound: list[tuple[int, Strategies]], totals: Counts) -> list[Move]:
    """Return the moves of players who had no choice, once all totals are known."""
    return [
        game.weigh(player, strategies, _less(totals, strategies.rows[0]))
        for player, strategies in bound
    ]


def _play_in_sequence(game: Game, budget: Budget) -> str | None:
    """Algorithm 1: the last two in equilibrium, then one at a time backwards."""
    players = list(range(len(game.players)))
    last_two = players[-2:]
    pairs = int(np.prod([len(game.strategies(player)) for player in last_two]))
    if not budget.spend(pairs):
        return "budget"
    taken, moves = _subgame(game, last_two, (0,) * len(game.demand))
    game.moves = {move.player: move for move in moves}
    waiting = players[:-2]
    while waiting:
        left = _less(game.serving.most, taken)
        if not any(left):
            return None if budget.spend(len(waiting)) else "budget"
        player = waiting.pop()
        game.refresh(player, left)
        strategies = game.clipped(player, left)
        if not budget.spend(len(strategies)):
            return "budget"
        move = game.moves[player] = game.weigh(player, strategies, taken)
        taken = _more(taken, move.taken)
    return None


def _more(one: Counts, other: Counts) -> Counts:
    return tuple(map(add, one, other))


def _less(one: Counts, other: Counts) -> Counts:
    return tuple(map(sub, one, other))


def _sweep(game: Game, most_sweeps: int, budget: Budget) -> tuple[int, str | None]:
    """Let one player after another answer the others until nobody gains.

    A sweep asks all players at once who may gain as things stand, and lets those
    answer in turn; the sweep in which nobody does shows an equilibrium.
    """
    panel = Panel.of(game)
    for sweep in range(1, most_sweeps + 1):
        if not budget.spend(panel.strategies):
            return sweep, "budget"
        changed = False
        for block in panel.blocks():
            changed |= _sweep_block(game, panel, block)
        if not changed:
            return sweep, None
    return most_sweeps, "sweeps" if most_sweeps else None


def _sweep_block(game: Game, panel: Panel, block: IntArray) -> bool:
    """Let those of some players who may gain answer in turn; does any of them change?"""
    waiting = panel.may_gain(block)
    changed, stale, in_vain = False, False, 0
    while len(waiting):
        if stale and in_vain >= _IN_VAIN:
            # What they could gain others may have taken since.
            waiting = panel.may_gain(waiting)
            stale, in_vain = False, 0
            continue
        player, waiting = int(waiting[0]), waiting[1:]
        before = game.move(player, panel.totals)
        others = _less(panel.totals, before.taken)
        strategies = game.clipped(player, _less(game.serving.most, others))
        after = _response(game, before, game.weigh(player, strategies, others))
        game.moves[player] = after
        if after.taken == before.taken:
            in_vain += 1
        else:
            changed = stale = True
            panel.change(player, after)
    return changed


def _response(game: Game, before: Move, best: Move) -> Move:
    """Return the best response, or the former choice looked at anew if nothing gains."""
    if before.taken in best.strategies.rows:
        stays = best.strategies.rows.index(before.taken)
        gain = best.utility(best.chosen) - best.utility(stays)
        return best if gain > UTILITY_TOLERANCE else replace(best, chosen=stays)
    with_former = best.strategies.also(before.strategies, before.chosen)
    weighed = game.weigh(before.player, with_former, best.others[0])
    stays = len(with_former) - 1
    gain = best.utility(best.chosen) - weighed.utility(stays)
    return best if gain > UTILITY_TOLERANCE else replace(weighed, chosen=stays)
