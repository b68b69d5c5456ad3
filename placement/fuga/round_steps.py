"""Record a FUGA round move by move, with v(A) and skewness after each choice.

Recording changes no decision. The steps are in `Allocation.details` as JSON values, hosts and
requests by index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from placement.fuga.equilibrium import GameSolution
from placement.fuga.exchange import Exchange
from placement.fuga.game import Game
from placement.fuga.request_counter import FEW_PAIRS, RequestCounter, combination_documents
from placement.fuga.strategies import Counts
from placement.model.arrays import IntArray
from placement.model.vm_kinds import VmKinds


class RoundSteps:
    """Collects the steps of a round.

    Parameters
    ----------
    maximum : int
        The most moves, rows, hosts and exchanges to record; their numbers are recorded in any
        case. 0: nothing is collected.

    Notes
    -----
    Each step has a ``kind`` and ``rows`` of request, host and VMs that it places, below 0 where it
    takes VMs back; all rows of all steps together are what the policy placed. The kinds:

    ``before``
        gangs, and VMs that limits bind, placed by Best-Fit before the games;
    ``game``
        the number of the ``game``, ``players`` and the first of their ``hosts`` in the order in
        which they act, ``vms`` offered, ``how`` it was solved, how many ``moves`` there were; and
        where it begins: ``fairness`` v(A), ``skewness`` of all players together, ``potential``,
        which is v(A) less that;
    ``move``
        of the ``game``, a ``host`` that chose, ``how``, the ``combinations`` that it weighed, and
        the same three measures after it. In play that foresees (``exact``, ``last_two``) the
        utilities are those of the end that a combination leads to;
    ``handed_out``
        the requests that got the VMs: rows that differ from those of the moves, which count VMs
        of a kind in order of service, whatever their hosts;
    ``best_fit``, ``gang``
        what Best-Fit placed after the games: single VMs, and the gangs that had not begun;
    ``exchange``
        on one ``host``, VMs of one request made room for one of another.
    """

    def __init__(self, kinds: VmKinds, maximum: int) -> None:
        self._kinds = kinds
        self.maximum = maximum
        self.collected: list[dict[str, Any]] = []
        self._exchanges = 0

    def __bool__(self) -> bool:
        return self.maximum > 0

    def add_placement(self, kind: str, rows: Sequence[tuple[int, int, int]]) -> None:
        """Record rows of VMs as a step, if there are any and steps are wanted."""
        if rows and self:
            self._add_step(kind, rows)

    def add_game(
        self,
        number: int,
        game: Game,
        solution: GameSolution,
        placed_rows: Sequence[tuple[int, int, int]],
    ) -> None:
        """Record a solved game, choice by choice, and the rows that it placed."""
        idle = game.idle_skewness()
        taken: dict[int, tuple[Counts, float]] = {}
        totals: Counts = (0,) * len(game.demand)
        skewness = float(idle.sum())
        hosts = game.players.host.tolist()
        by_request = RequestCounter(
            game, self._kinds, in_order=len(hosts) * len(self._kinds.of_request) <= FEW_PAIRS
        )

        def measures() -> dict[str, float]:
            """Return fairness, skewness and potential of the game after a choice."""
            fairness = game.serving.fairness_of_one(totals)
            return {"fairness": fairness, "skewness": skewness, "potential": fairness - skewness}

        self._add_step(
            "game",
            (),
            game=number,
            players=len(hosts),
            hosts=hosts[: self.maximum],
            vms=sum(game.serving.maximum),
            how=solution.equilibrium,
            moves=game.moved,
            **measures(),
        )
        came: Counter[tuple[int, int]] = Counter()
        for how, move in (game.noted or ())[: self.maximum]:
            player, host = move.player, hosts[move.player]
            before, was = taken.get(player, ((0,) * len(totals), float(idle[player])))
            after, now = move.taken, move.strategies.skewness[move.chosen]
            rows = _request_changes(game, totals, before, after, host)
            taken[player] = after, now
            totals = tuple(t + a - b for t, a, b in zip(totals, after, before, strict=True))
            skewness += now - was
            came.update({(request, host): count for request, host, count in rows})
            weighed = combination_documents(by_request, move, number, with_others=False)
            self._add_step(
                "move",
                rows,
                game=number,
                host=host,
                how=how,
                combinations=[
                    {key: value for key, value in each.items() if key != "game"} for each in weighed
                ],
                **measures(),
            )
        changes: Counter[tuple[int, int]] = Counter(
            {(request, host): count for request, host, count in placed_rows}
        )
        changes.subtract(came)
        self._add_step("handed_out", _changed_rows(changes), game=number)

    def add_exchanges(self, made: Sequence[Exchange]) -> None:
        """Record fair exchanges as steps, in the order in which they were made."""
        for each in made[: max(0, self.maximum - self._exchanges)]:
            rows = [(each.taken_from, each.host, -each.taken), (each.given_to, each.host, 1)]
            self._add_step("exchange", rows, host=each.host)
        if omitted := made[max(0, self.maximum - self._exchanges) :]:
            changes: Counter[tuple[int, int]] = Counter()
            for each in omitted:
                changes[each.taken_from, each.host] -= each.taken
                changes[each.given_to, each.host] += 1
            self._add_step("exchange", _changed_rows(changes), exchanges=len(omitted))
        self._exchanges += len(made)

    def _add_step(self, kind: str, rows: Sequence[tuple[int, int, int]], **more: Any) -> None:
        """Record one step of the round with its rows."""
        step: dict[str, Any] = {"kind": kind, **more, "rows": [list(row) for row in rows]}
        self.collected.append(step)


def row_difference(before: IntArray, after: IntArray) -> list[tuple[int, int, int]]:
    """Return the rows of request, host and VMs by which a draft's rows, (P, 3), changed."""
    changes = Counter({(q, h): count for q, h, count in after.tolist()})
    changes.subtract({(q, h): count for q, h, count in before.tolist()})
    return _changed_rows(changes)


def _changed_rows(changes: Counter[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Return the changes other than 0 as rows of request, host and VMs."""
    return [(*pair, count) for pair, count in sorted(changes.items()) if count]


def _request_changes(
    game: Game, totals: Counts, before: Counts, after: Counts, host: int
) -> list[tuple[int, int, int]]:
    """Return how the VMs served to each request change when a host takes more or fewer."""
    changes: Counter[tuple[int, int]] = Counter()
    for kind, (total, was, now) in enumerate(zip(totals, before, after, strict=True)):
        more = now - was
        first, sign = (total, 1) if more > 0 else (total + more, -1)
        for request, count in game.serving.requests_served(kind, first, abs(more)).items():
            changes[request, host] += sign * count
    return _changed_rows(changes)
