"""Details of a decision for explanations, and how details of several parts are joined.

A policy's `Allocation.details` are JSON values of its own choice. Some of them mean the
same from every policy, and explanations look for them at the top, however many zones,
passes or runs the decision took: these are joined here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from placement.model.arrays import IntArray
from placement.model.snapshot import Allocation

_Vms = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """The details of an allocation that explanations use; empty where a policy gives none."""

    #: by host, the combinations that it weighed in the game
    weighed: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    #: by request and host, VMs from the game and VMs from what came before and after
    phase: Mapping[tuple[int, int], _Vms] = field(default_factory=dict)
    gangs: tuple[tuple[int, ...], ...] = ()  #: request, host, VMs placed to begin gangs
    holding: tuple[tuple[int, ...], ...] = ()  #: request, host held back for it
    cuts: tuple[str, ...] = ()  #: what the budget or a limit cut
    games: tuple[Mapping[str, Any], ...] = ()  #: how each game was solved
    #: rounds with and without games that were compared, see `placement.fuga.filling_comparison`
    comparisons: tuple[Mapping[str, Any], ...] = ()
    #: what was placed move by move, with rows of request, host and VMs
    steps: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def of(cls, allocation: Allocation) -> Details:
        """Return the known details of an allocation."""
        details = allocation.details
        return cls(
            weighed=details.get("weighed", {}),
            phase={(q, h): (game, rest) for q, h, game, rest in details.get("phase", ())},
            gangs=tuple(tuple(row) for row in details.get("gangs", ())),
            holding=tuple(tuple(row) for row in details.get("holding", ())),
            cuts=tuple(details.get("cuts", ())),
            games=tuple(details.get("games", ())),
            comparisons=tuple(details.get("comparisons", ())),
            steps=tuple(details.get("steps", ())),
        )

    def with_original_requests(self, origin: IntArray) -> Details:
        """Return the details with original request indices; ``origin``, (Q,), maps to them."""
        of = origin.tolist()
        return Details(
            weighed={
                host: [_rename_combination(combination, of) for combination in listed]
                for host, listed in self.weighed.items()
            },
            phase=_sum_pairs(((of[q], h), vms) for (q, h), vms in self.phase.items()),
            gangs=tuple((of[q], *rest) for q, *rest in self.gangs),
            holding=tuple((of[q], *rest) for q, *rest in self.holding),
            cuts=self.cuts,
            games=tuple(
                {**game, "handed_out": _counts_by_origin(game.get("handed_out", {}), of)}
                for game in self.games
            ),
            comparisons=self.comparisons,
            steps=tuple(_rename_step(step, of) for step in self.steps),
        )

    def document(self) -> dict[str, Any]:
        """Return these details in the form of `Allocation.details`."""
        document: dict[str, Any] = {
            "weighed": dict(self.weighed),
            "phase": [[*pair, *vms] for pair, vms in sorted(self.phase.items())],
            "gangs": [list(row) for row in self.gangs],
            "holding": [list(row) for row in self.holding],
            "cuts": list(self.cuts),
            "games": [dict(game) for game in self.games],
            "comparisons": [dict(each) for each in self.comparisons],
            "steps": [dict(step) for step in self.steps],
        }
        return {name: value for name, value in document.items() if value}


def merge_details(parts: Sequence[Details]) -> Details:
    """Join the details of the parts of one decision.

    A host that weighed combinations in several parts is reported as the first part has
    it; VMs of one request on one host are summed. Games are numbered through all parts.
    """
    weighed: dict[str, Sequence[Mapping[str, Any]]] = {}
    steps: list[Mapping[str, Any]] = []
    played = 0
    for part in parts:
        for host, listed in part.weighed.items():
            if host not in weighed:
                weighed[host] = [{**each, "game": played + each["game"]} for each in listed]
        steps += [
            {**step, "game": played + step["game"]} if "game" in step else step
            for step in part.steps
        ]
        played += len(part.games)
    return Details(
        weighed=weighed,
        phase=_sum_pairs(item for part in parts for item in part.phase.items()),
        gangs=tuple(row for part in parts for row in part.gangs),
        holding=tuple(sorted({row for part in parts for row in part.holding})),
        cuts=tuple(cut for part in parts for cut in part.cuts),
        games=tuple(game for part in parts for game in part.games),
        comparisons=tuple(each for part in parts for each in part.comparisons),
        steps=tuple(steps),
    )


def _sum_pairs(items: Iterable[tuple[tuple[int, int], _Vms]]) -> dict[tuple[int, int], _Vms]:
    """Add up VMs by pair of request and host."""
    sums: dict[tuple[int, int], _Vms] = {}
    for pair, (game, rest) in items:
        before = sums.get(pair, (0, 0))
        sums[pair] = before[0] + game, before[1] + rest
    return sums


def _rename_combination(combination: Mapping[str, Any], origin: Sequence[int]) -> dict[str, Any]:
    """Renumber the requests of a weighed combination; drop the VMs that others would take."""
    renamed = {key: value for key, value in combination.items() if key != "others"}
    return renamed | {"counts": _counts_by_origin(combination["counts"], origin)}


def _rename_step(step: Mapping[str, Any], origin: Sequence[int]) -> dict[str, Any]:
    """Renumber the requests of a recorded step of a round."""
    renamed = {**step, "rows": [[origin[q], h, count] for q, h, count in step["rows"]]}
    if "combinations" in step:
        renamed["combinations"] = [
            _rename_combination(each, origin) for each in step["combinations"]
        ]
    return renamed


def _counts_by_origin(counts: Mapping[str, int], origin: Sequence[int]) -> dict[str, int]:
    """Return counts by original request; counts of one original are added up."""
    renamed: dict[str, int] = {}
    for request, count in counts.items():
        name = str(origin[int(request)])
        renamed[name] = renamed.get(name, 0) + count
    return renamed
