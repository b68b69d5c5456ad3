"""FUGA: a game between hosts that trades fairness against even use of resources.

The steps of a round at scale, in order (derived; the paper has single games):
targets, order of service (`service_order`), top combinations (`combinations`), play
(`game`, `equilibrium`), two phases, remainder by Best-Fit DRFH and fair
exchange (`exchange`). Where a single resource ranks, the round is compared with one
without games (`filling_comparison`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import numpy as np

from placement.fairness.targets import fair_targets, whole_targets
from placement.fuga.details import PlayedGame, build_details
from placement.fuga.equilibrium import solve_game
from placement.fuga.exchange import exchange_unfair
from placement.fuga.filling_comparison import FillingComparison, PlacedMeasures
from placement.fuga.game import Game
from placement.fuga.parameters import FugaParameters
from placement.fuga.players import find_players
from placement.fuga.ranking_resources import ranking_resources
from placement.fuga.round_steps import RoundSteps, row_difference
from placement.fuga.service_order import ServiceOrder
from placement.fuga.strategies import (
    GivenStrategies,
    StrategySource,
    TopCombinations,
    given_strategies_by_kind,
)
from placement.model.arrays import BoolArray, IntArray
from placement.model.budget import Budget
from placement.model.snapshot import Allocation, Snapshot
from placement.model.vm_kinds import max_vms_per_request, vm_kinds
from placement.packing.draft import Draft
from placement.packing.drfh_fill import fill_by_best_fit
from placement.packing.gangs import begin_covered_gangs, begin_next_gangs
from placement.packing.limit_columns import is_limited, snapshot_without_limits
from placement.packing.overload import room_below_threshold

#: Times that each player can weigh its strategies, on average, with the budget kept for the game.
_LOOKS: Final = 4

Placed = TypeVar("Placed")


class Fuga:
    """The FUGA policy.

    Parameters
    ----------
    parameters : FugaParameters, optional

    References
    ----------
    X. Xu, H. Yu, "A Game Theory Approach to Fair and Efficient Resource
    Allocation in Cloud Computing", Mathematical Problems in Engineering, 2014.
    """

    def __init__(self, parameters: FugaParameters | None = None) -> None:
        self.parameters = parameters or FugaParameters()

    def place(self, snapshot: Snapshot, rng: np.random.Generator, budget: Budget) -> Allocation:
        """Place the batch of a round by games between hosts, Best-Fit DRFH and exchange.

        Equal combinations are put in random order by ``rng``. ``budget`` counts
        combinations evaluated, in the search and in the game; at its end the
        game stops where it is and Best-Fit DRFH places the rest.

        Raises
        ------
        ParameterError
            For parameters that this snapshot does not know, or an exact
            equilibrium that is too large.
        """
        played = _Round(self.parameters, snapshot, rng, budget)
        played.decide(with_games=True)
        comparing = self.parameters.compare_filling and self.parameters.fallback
        neglects_resources = len(played.ranking) == 1 < snapshot.resource_count
        if not (comparing and neglects_resources and played.games):
            return played.allocation()
        filled = _Round(self.parameters, snapshot, rng, budget)
        filled.decide(with_games=False)
        resource = int(played.ranking[0])
        comparison = FillingComparison(
            resource=snapshot.resources[resource],
            game=PlacedMeasures.of(played.draft, resource, played.targets),
            filling=PlacedMeasures.of(filled.draft, resource, played.targets),
        )
        chosen = filled if comparison.filling_is_better else played
        return chosen.allocation(comparison, cuts=[*played.cuts, *filled.cuts])


class _Round:
    """The state that the steps of one round share."""

    def __init__(
        self,
        parameters: FugaParameters,
        snapshot: Snapshot,
        rng: np.random.Generator,
        budget: Budget,
    ) -> None:
        self._parameters = parameters
        self._budget = budget
        self.snapshot = snapshot
        self.draft = Draft(snapshot, room_below_threshold(snapshot, parameters.overload))
        self.kinds = vm_kinds(snapshot)
        self.ranking = ranking_resources(snapshot, parameters.ranking)
        self.targets = fair_targets(snapshot, self.kinds)
        # The game knows no limits: each would be a kind of its own that all hosts weigh.
        self._limited = is_limited(snapshot)
        self._played, self._played_kinds = snapshot_without_limits(snapshot, self.kinds)
        self.games: list[PlayedGame] = []
        self.cuts: list[str] = []
        self.steps = RoundSteps(self.kinds, parameters.steps)
        self._gangs = self._after_games = self.draft.rows
        self._exchanges = 0
        demand = self._played_kinds.demand
        self._search = TopCombinations(demand, self.ranking, parameters.eta, rng, budget)
        self._source: StrategySource = self._search
        if parameters.strategies is not None:
            given = given_strategies_by_kind(
                snapshot, self.kinds, self.draft.room, parameters.strategies
            )
            self._source = GivenStrategies(given, self._search, demand, self.ranking)

    def decide(self, *, with_games: bool) -> None:
        """Place the batch: by games and what follows them, or by Best-Fit DRFH and exchange."""
        self._gangs = self._place_before_games()
        self.steps.add_placement("before", self._gangs.tolist())
        if with_games:
            if self._parameters.quota:
                self._play_up_to(whole_targets(self.targets))
            self._play_up_to(self.snapshot.count)
        self._after_games = self.draft.rows
        if self._parameters.fallback:
            self._exchanges = self._place_remaining()

    def allocation(
        self, comparison: FillingComparison | None = None, cuts: Sequence[str] | None = None
    ) -> Allocation:
        """Return what `decide` placed, with its details; ``cuts`` replaces the round's own."""
        cuts = self.cuts if cuts is None else cuts
        return self.draft.allocation(
            work=self._budget.spent,
            cut=bool(cuts),
            details=build_details(
                self.snapshot,
                self.kinds,
                games=self.games,
                gangs=self._gangs,
                after_games=self._after_games,
                final=self.draft.rows,
                targets=self.targets,
                alpha=self._parameters.alpha,
                ranking=self.ranking,
                exchanges=self._exchanges,
                cuts=cuts,
                comparison=comparison,
                steps=self.steps.collected,
            ),
        )

    def _place_before_games(self) -> IntArray:
        """Place by Best-Fit the VMs that the games cannot express; return them.

        The game knows single VMs: to it, what is left of a gang that has begun
        is a request like others. Gangs that their fair target covers begin before
        it, and VMs that limits bound are placed up to that target (derived).
        """
        if self.draft.not_begun.any():
            begin_covered_gangs(self.draft, self._fill_by_best_fit, self.targets)
        if self._limited.any():
            remaining = self.draft.remaining
            others = remaining.copy()
            due = np.maximum(whole_targets(self.targets) - self.draft.placed_counts, 0)
            remaining[:] = np.where(self._limited, np.minimum(due, others), 0)
            others -= remaining
            self._fill_by_best_fit()
            remaining += others
        return self.draft.rows

    def _fill_by_best_fit(self) -> None:
        fill_by_best_fit(self.draft, self.kinds, kept_empty=self._parameters.kept_empty)

    def _play_up_to(self, limit: IntArray) -> None:
        """Play for the VMs of each request up to a limit, (Q,); hosts kept empty come last."""
        kept = self.draft.hosts_kept_empty(self._parameters.kept_empty)
        if kept.any() and not kept.all():
            self._play(limit, ~kept)
        self._play(limit, np.ones_like(kept))

    def _play(self, limit: IntArray, playing: BoolArray) -> None:
        """Play one game of some hosts, (H,), up to a limit of each request, (Q,)."""
        draft = self.draft
        room = np.where(playing[:, None], draft.room, 0)
        offered = np.minimum(np.maximum(limit - draft.placed_counts, 0), draft.remaining)
        offered = np.where(self._limited, 0, offered)
        offered = np.minimum(offered, max_vms_per_request(self.snapshot, room, self.kinds))
        if not offered.any():
            return
        counted = self.snapshot.resource_count
        serving = ServiceOrder(
            self._played,
            self._played_kinds,
            targets=self.targets,
            offered=offered,
            given=draft.placed_counts,
            held=draft.held[:, :counted],
            alpha=self._parameters.alpha,
        )
        players = find_players(
            self._played,
            self._played_kinds,
            np.ascontiguousarray(draft.free[:, :counted]),
            np.ascontiguousarray(room[:, :counted]),
            self.ranking,
        )
        cut_before = self._search.cut
        self._search.reserve_budget(_LOOKS * self._parameters.eta * len(players))
        demand = self._played_kinds.demand
        game = Game.of(players, serving, self._source, demand, self.ranking)
        if len(game.players):
            if self.steps:
                game.noted, game.most_noted = [], self.steps.maximum
            solution = solve_game(
                game,
                equilibrium=self._parameters.equilibrium,
                most_subgames=self._parameters.subgames,
                most_sweeps=self._parameters.sweeps,
                budget=self._budget,
            )
            before = draft.remaining.copy()
            rows = draft.rows if self.steps else None
            place_taken_vms(game, draft)
            self.games.append(PlayedGame(game, solution, before - draft.remaining))
            if rows is not None:
                came = row_difference(rows, draft.rows)
                self.steps.add_game(len(self.games), game, solution, came)
            if solution.cut is not None:
                self.cuts.append(f"game {len(self.games)}: {solution.cut}")
        if self._search.cut > cut_before:
            self.cuts.append(f"combinations: {self._search.cut - cut_before} searches")

    def _place_remaining(self) -> int:
        """Fill by Best-Fit DRFH and exchange unfair VMs; return the number of exchanges.

        Gangs that have not begun come after single VMs. Without quotas nothing is
        exchanged: both bind the game to fair shares, and are left out together.
        Every exchange and every VM more raises the sorted levels of the tenants
        lexicographically, so this ends.
        """
        exchanged = 0
        while True:
            self._place_and_report("best_fit", self._fill_by_best_fit)
            if self._place_and_report(
                "gang", lambda: begin_next_gangs(self.draft, self._fill_by_best_fit)
            ):
                continue
            if not self._parameters.quota:
                return exchanged
            made, cut = exchange_unfair(self.draft, self.kinds, self._budget)
            exchanged += len(made)
            if self.steps:
                self.steps.add_exchanges(made)
            if cut:
                self.cuts.append("exchange: budget")
            if not made:
                return exchanged

    def _place_and_report(self, kind: str, placing: Callable[[], Placed]) -> Placed:
        """Run a placement and return its result; if steps are recorded, report its rows as one."""
        if not self.steps:
            return placing()
        before = self.draft.rows
        found = placing()
        self.steps.add_placement(kind, row_difference(before, self.draft.rows))
        return found


def place_taken_vms(game: Game, draft: Draft) -> None:
    """Place the VMs that the players took: in order of requests, host by host."""
    hosts = game.players.host
    by_host = np.argsort(hosts)
    taken, hosts = game.taken[by_host], hosts[by_host]
    for kind in np.flatnonzero(taken.any(axis=0)).tolist():
        on_host = np.repeat(hosts, taken[:, kind])
        requests = np.sort(game.serving.order[kind][: len(on_host)])
        starts = np.flatnonzero(np.diff(requests, prepend=-1) | np.diff(on_host, prepend=-1))
        counts = np.diff(starts, append=len(on_host))
        draft.put_all(np.stack([requests[starts], on_host[starts], counts], axis=1))
