"""FUGA, the worked example: Fig. 2, two hosts and their strategies, and Fig. 3, the game tree."""

from __future__ import annotations

from typing import Final

import numpy as np

from placement import Allocation, Budget, Snapshot
from placement.fairness.targets import fair_targets
from placement.fuga.game import Game
from placement.fuga.players import find_players
from placement.fuga.service_order import ServiceOrder
from placement.fuga.strategies import GivenStrategies, TopCombinations, given_strategies_by_kind
from placement.model.vm_kinds import vm_kinds
from simulation.reproduction.example_problems import checked_allocation, round_snapshot
from simulation.reproduction.model import Item, ItemOutcome, Number, Paper, Setup, Statement, Table
from simulation.reproduction.plots import bar_plotter

_RESOURCES: Final = ("cpu", "memory", "disk")
_HOSTS: Final = ((4, 8, 40), (4, 6, 50))
_TYPES: Final = ((2, 4, 20), (1, 1, 10), (2, 2, 10))
_ALPHA: Final = 2.0
#: VMs of each type in the strategies of host 1 and of host 2, by the paper's letters.
_HOST_1: Final = {"d": (2, 0, 0), "e": (1, 2, 0), "f": (1, 0, 1)}
_HOST_2: Final = {"a": (1, 2, 0), "b": (1, 0, 1), "c": (0, 0, 2)}
#: What host 1 answers to each strategy of host 2.
_ANSWERS: Final = {"a": "f", "b": "e", "c": "e"}
#: What the users hold where host 2 takes b and host 1 takes e.
_AT_B_E: Final = ((4, 8, 40), (2, 2, 20), (2, 2, 10))


def _example_snapshot() -> Snapshot:
    """Return the snapshot of the FUGA paper's worked example."""
    return round_snapshot(_RESOURCES, np.array(_HOSTS), _TYPES, 10)


def _solve_example() -> Allocation:
    """Return the allocation of the worked example by FUGA's exact equilibrium."""
    return checked_allocation(
        "fuga",
        _example_snapshot(),
        alpha=_ALPHA,
        ranking=list(_RESOURCES),
        equilibrium="exact",
        quota=False,
        fallback=False,
        strategies={0: list(_HOST_1.values()), 1: list(_HOST_2.values())},
    )


def _example_game() -> Game:
    """Return the game of the worked example; its first player is host 2."""
    snapshot = _example_snapshot()
    kinds, ranking = vm_kinds(snapshot), np.arange(len(_RESOURCES))
    serving = ServiceOrder(
        snapshot,
        kinds,
        targets=fair_targets(snapshot),
        offered=snapshot.count,
        given=np.zeros(len(_TYPES), dtype=np.int64),
        held=snapshot.held,
        alpha=_ALPHA,
    )
    strategies = {0: tuple(_HOST_1.values()), 1: tuple(_HOST_2.values())}
    search = TopCombinations(kinds.demand, ranking, 5, np.random.default_rng(0), Budget())
    return Game.of(
        find_players(snapshot, kinds, snapshot.free, snapshot.free, ranking),
        serving,
        GivenStrategies(
            given_strategies_by_kind(snapshot, kinds, snapshot.free, strategies),
            search,
            kinds.demand,
            ranking,
        ),
        kinds.demand,
        ranking,
    )


def _utilities_by_strategy(game: Game) -> dict[tuple[str, str], tuple[float, float]]:
    """Return U of host 1 and of host 2 in the example, by the strategies of host 2 and host 1."""
    found = {}
    for theirs in _HOST_2:
        answer = game.best_response(1, game.strategies(1), _HOST_2[theirs])
        for place, ours in enumerate(_HOST_1):
            leader = game.best_response(0, game.strategies(0), _HOST_1[ours])
            found[theirs, ours] = (
                float(answer.utilities[place]),
                float(leader.utilities[list(_HOST_2).index(theirs)]),
            )
    return found


def _reproduce_fig2(setup: Setup) -> ItemOutcome:
    """Reproduce Fig. 2 of FUGA: two hosts of the worked example and their strategies."""
    del setup
    snapshot, game = _example_snapshot(), _example_game()
    fair = fair_targets(snapshot)[:, None] * snapshot.demand / snapshot.pool
    tasks = np.array(_HOST_2["b"]) + np.array(_HOST_1["e"])
    held = tasks[:, None] * snapshot.demand
    numbers = (
        _exact_number("host that acts first", 2, int(game.players.host[0]) + 1, ""),
        _exact_number("d*, the fair dominant share", 1 / 2.875, float(fair.max()), "of the pool"),
        *(
            _exact_number(
                f"{name} of user {i + 1} when host 2 takes b and host 1 takes e",
                _AT_B_E[i][r],
                int(held[i, r]),
                "units",
            )
            for i in range(len(_TYPES))
            for r, name in enumerate(_RESOURCES)
        ),
    )
    share = 100 * held / snapshot.pool
    return ItemOutcome(
        numbers=numbers,
        tables=(
            Table(
                name="held_at_b_e",
                columns=("user", *_RESOURCES),
                rows=[(i + 1, *row) for i, row in enumerate(held.tolist())],
            ),
        ),
        draw=bar_plotter(
            "What the users hold when host 2 takes b and host 1 takes e",
            "The fair share of each user's dominant resource is 34.8 %: user 1 has more, users 2 "
            "and 3 less.",
            [f"user {user + 1}" for user in range(len(_TYPES))],
            {name: share[:, r].tolist() for r, name in enumerate(_RESOURCES)},
            over="user (number)",
            unit="held (% of the pool)",
        ),
    )


def _reproduce_fig3(setup: Setup) -> ItemOutcome:
    """Reproduce Fig. 3 of FUGA: the game tree of the worked example, and its equilibrium."""
    del setup
    game, found = _example_game(), _utilities_by_strategy(_example_game())
    answers = {
        theirs: max(_HOST_1, key=lambda ours, theirs=theirs: found[theirs, ours][0])  # type: ignore[misc]
        for theirs in _HOST_2
    }
    taken = _solve_example().details["strategies"]
    letters = {
        1: next(letter for letter, row in _HOST_1.items() if list(row) == taken["0"]),
        2: next(letter for letter, row in _HOST_2.items() if list(row) == taken["1"]),
    }
    first, second = found["b", "e"]
    return ItemOutcome(
        numbers=(
            # Printed with two and three digits; the last is what they may be off by.
            _rounded_number("utility of host 1 at (b, e)", -1.2, first, within=0.05),
            _rounded_number("utility of host 2 at (b, e)", -1.27, second, within=0.005),
        ),
        statements=(
            Statement(
                says="host 1 answers a by f, b by e and c by e",
                found=", ".join(f"{theirs} by {ours}" for theirs, ours in answers.items()),
                holds=answers == _ANSWERS,
            ),
            Statement(
                says="the equilibrium is (c, e)",
                found=f"({letters[2]}, {letters[1]}), where the host that acts first has "
                f"{found[letters[2], letters[1]][1]:.3f}; at (c, e) it would have "
                f"{found['c', 'e'][1]:.3f}",
                holds=(letters[2], letters[1]) == ("c", "e"),
            ),
        ),
        tables=(
            Table(
                name="game_tree",
                columns=("host_2", "host_1", "utility_of_host_1", "utility_of_host_2"),
                rows=[(*letters, *utilities) for letters, utilities in found.items()],
            ),
        ),
        draw=bar_plotter(
            f"The game tree: utilities of both hosts; {len(game.players)} players",
            "Host 2 acts first and foresees the best answer of host 1 to each of its strategies; "
            "higher is better.",
            [f"({theirs}, {ours})" for theirs, ours in found],
            {
                f"host {host + 1}": [utilities[host] for utilities in found.values()]
                for host in (0, 1)
            },
            over="strategies of host 2 and host 1 (letters of the paper)",
            unit="utility (number)",
        ),
        why="Some of the paper's formulas are known only in part. With v(A) as in "
        "placement/fuga/service_order.py and the skewness as in placement/fuga/strategies.py the "
        "utility of host 1 and all its answers are the paper's, that of host 2 is not, and so "
        "neither is the equilibrium; no consistent reading of the formulas gives all that is "
        "printed.",
    )


def _exact_number(what: str, paper: float, ours: float, unit: str) -> Number:
    """Return a number that must agree with the paper's, rounding errors aside."""
    return Number(what=what, paper=paper, ours=ours, unit=unit, within=1e-9, exact=True)


def _rounded_number(what: str, paper: float, ours: float, *, within: float) -> Number:
    """Return a number that the paper prints rounded."""
    return Number(what=what, paper=paper, ours=ours, unit="", within=within)


ITEMS: Final = (
    Item(
        name="fuga-fig2",
        paper=Paper.FUGA,
        place="Fig. 2",
        shows="two hosts, three types of VMs: order of play, fair share, what users hold",
        run=_reproduce_fig2,
    ),
    Item(
        name="fuga-fig3",
        paper=Paper.FUGA,
        place="Fig. 3",
        shows="the game tree of Fig. 2 and its equilibrium by backward induction",
        run=_reproduce_fig3,
    ),
)
