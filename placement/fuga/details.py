"""Details of a FUGA round as JSON values, hosts and requests by index."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from placement.fuga.certificate import GameCertificate
from placement.fuga.equilibrium import GameSolution
from placement.fuga.filling_comparison import FillingComparison
from placement.fuga.game import Game
from placement.fuga.request_counter import FEW_PAIRS, RequestCounter, combination_documents
from placement.fuga.service_order import fairness_of
from placement.fuga.strategies import skewness
from placement.model.arrays import FloatArray, IntArray
from placement.model.snapshot import Snapshot
from placement.model.vm_kinds import VmKinds

#: With more hosts in the games, only those that took VMs are reported: most rounds of a large
#: cluster are about few VMs, and what all others did not do would be most of their record.
_FEW_HOSTS: Final = 1_000
#: The most combinations that also report what the others would take.
_VERY_FEW_PAIRS: Final = 5_000


@dataclass(frozen=True, slots=True, eq=False)
class PlayedGame:
    """One game of the round, solved."""

    game: Game
    solution: GameSolution
    handed_out: IntArray  #: (Q,) VMs of each request that it placed


def build_details(
    snapshot: Snapshot,
    kinds: VmKinds,
    *,
    games: Sequence[PlayedGame],
    gangs: IntArray,
    after_games: IntArray,
    final: IntArray,
    targets: FloatArray,
    alpha: float,
    ranking: IntArray,
    exchanges: int,
    cuts: Sequence[str],
    comparison: FillingComparison | None = None,
    steps: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return `Allocation.details` of the policy.

    ``gangs``, ``after_games`` and ``final`` are what was placed before the games,
    after them, and in the end: rows of request, host, VMs, shape (P, 3), sorted; ``targets``
    is of requests, (Q,), ``ranking`` of resources, (J,).

    Returns
    -------
    dict
        ``ranking``
            names of the resources that ranked combinations;
        ``order``
            hosts in the order in which they act, first game first; of more than a
            thousand, here and in ``strategies`` and ``utilities``, those that took VMs;
        ``strategies``
            host -> VMs of each request that it took in the games;
        ``utilities``
            host -> U(m) after the games;
        ``weighed``
            host -> the combinations weighed in the first game in which it took
            VMs, when it chose last: ``counts`` by request as the others' choices
            then had it (in large rounds all VMs of a kind under the kind's first
            request), ``minimum_utilization`` of what was free before the game,
            ``utility`` = ``fairness`` - ``skewness``, ``chosen``, ``game``; in
            small rounds also ``others``, VMs by request that the other players
            would then take;
        ``gangs``
            rows of request, host, VMs placed before the games to begin gangs;
        ``phase``
            rows of request, host, VMs from the games, VMs from what came before
            and after;
        ``targets``
            fair target of each request in VMs;
        ``games``
            of each game how it was solved, whether that is ``certified`` (no player gains by
            deviating) and the ``largest_gain`` if one does, ``potential`` before and
            after sweeps, and ``handed_out``, VMs by request;
        ``potential``, ``sweeps``
            of the last game, and of all together;
        ``exchanges``
            fair exchanges after the games;
        ``cuts``
            what the budget or a limit cut, empty if nothing;
        ``comparisons``
            if a single resource ranked and a game was played: the game's round and one without
            games, see `FillingComparison.document`;
        ``steps``
            if requested, all of that move by move, see `placement.fuga.round_steps`.
    """
    acted = np.concatenate([np.zeros(0, np.int64), *(each.game.players.host for each in games)])
    if len(acted) > _FEW_HOSTS and len(np.unique(acted)) > _FEW_HOSTS:
        acted = acted[np.isin(acted, after_games[:, 1])]
    order = list(dict.fromkeys(acted.tolist()))
    last = games[-1].solution if games else None
    details: dict[str, Any] = {
        "ranking": [snapshot.resources[index] for index in ranking.tolist()],
        "order": order,
        "utilities": _utilities(
            snapshot, order=order, taken=after_games, targets=targets, alpha=alpha, ranking=ranking
        ),
        "weighed": _weighed_combinations(snapshot, kinds, games),
        "gangs": gangs.tolist(),
        "phase": _phase_rows(snapshot, gangs, after_games, final),
        "targets": [float(target) for target in targets],
        "games": [
            {
                "equilibrium": each.solution.equilibrium,
                "subgames": each.solution.subgames,
                **_certificate_details(each.solution.certificate),
                "players": len(each.game.players),
                "vms": int(each.game.totals.sum()),
                "handed_out": {
                    str(request): int(each.handed_out[request])
                    for request in np.flatnonzero(each.handed_out).tolist()
                },
                "potential": list(each.solution.potential),
                "sweeps": each.solution.sweeps,
            }
            for each in games
        ],
        "potential": list(last.potential) if last else [],
        "sweeps": sum(each.solution.sweeps for each in games),
        "exchanges": exchanges,
        "cuts": list(cuts),
    }
    if comparison is not None:
        details["comparisons"] = [comparison.document()]
    if steps:
        details["steps"] = list(steps)
    if len(order) * len(snapshot.count) <= FEW_PAIRS:
        taken = np.zeros((len(snapshot.count), len(snapshot.free)), dtype=np.int64)
        taken[after_games[:, 0], after_games[:, 1]] = after_games[:, 2]
        taken[gangs[:, 0], gangs[:, 1]] -= gangs[:, 2]
        details["strategies"] = {str(host): taken[:, host].tolist() for host in order}
    return details


def _certificate_details(certificate: GameCertificate | None) -> dict[str, Any]:
    """Return the result of a game's equilibrium check; None if the budget was spent before it."""
    if certificate is None:
        return {"certified": None}
    gain = certificate.largest_gain
    gain_found = {} if certificate.holds or not math.isfinite(gain) else {"largest_gain": gain}
    return {"certified": certificate.holds, **gain_found}


def _phase_rows(
    snapshot: Snapshot, gangs: IntArray, after_games: IntArray, final: IntArray
) -> list[list[int]]:
    """Return rows of request, host, VMs placed by a game, and VMs placed before or after games."""
    from_game = _counts_at_rows(snapshot, after_games, final) - _counts_at_rows(
        snapshot, gangs, final
    )
    game = np.minimum(final[:, 2], from_game)
    rows: list[list[int]] = np.column_stack([final[:, :2], game, final[:, 2] - game]).tolist()
    return rows


def _counts_at_rows(snapshot: Snapshot, rows: IntArray, wanted: IntArray) -> IntArray:
    """Look up the counts of sorted rows at other rows' requests and hosts; 0 if missing."""
    hosts = len(snapshot.free)
    there, wanted_at = (each[:, 0] * hosts + each[:, 1] for each in (rows, wanted))
    place = np.searchsorted(there, wanted_at)
    inside = place < len(there)
    found = np.zeros(len(wanted), dtype=np.bool_)
    found[inside] = there[place[inside]] == wanted_at[inside]
    counts = np.zeros(len(wanted), dtype=np.int64)
    counts[found] = rows[place[found], 2]
    return counts


def _utilities(
    snapshot: Snapshot,
    *,
    order: Sequence[int],
    taken: IntArray,
    targets: FloatArray,
    alpha: float,
    ranking: IntArray,
) -> dict[str, float]:
    """Return the utility U(m) of each host in ``order`` after rows are ``taken``, by host."""
    tasks = np.zeros(len(snapshot.count), dtype=np.int64)
    np.add.at(tasks, taken[:, 0], taken[:, 2])
    used = snapshot.capacity - snapshot.after_placing(taken).free
    fairness = fairness_of(snapshot, tasks, targets, alpha)
    players = np.array(order, dtype=np.int64)
    skew = skewness(used[players][:, ranking], snapshot.capacity[players][:, ranking])
    return {str(host): fairness - each for host, each in zip(order, skew.tolist(), strict=True)}


def _weighed_combinations(
    snapshot: Snapshot, kinds: VmKinds, games: Sequence[PlayedGame]
) -> dict[str, list[dict[str, Any]]]:
    """Return the combinations that each host weighed in the first game in which it took VMs."""
    weighed: dict[int, list[dict[str, Any]]] = {}
    for number, each in enumerate(games, start=1):
        game = each.game
        pairs = len(game.players) * len(snapshot.count)
        by_request = RequestCounter(game, kinds, in_order=pairs <= FEW_PAIRS)
        hosts = game.players.host.tolist()
        for index, move in game.moves.items():
            host = hosts[index]
            if host not in weighed and any(move.taken):
                weighed[host] = combination_documents(
                    by_request, move, number, with_others=pairs <= _VERY_FEW_PAIRS
                )
    return {str(host): weighed[host] for host in sorted(weighed)}
