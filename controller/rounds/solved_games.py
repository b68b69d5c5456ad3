"""Summaries of the games of a round: how each was solved, and what filling alone would do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from controller.rounds.inputs import games_of

_COMPARISON_KEYS: Final = {"resource", "chosen", "amounts", "fair_distances"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GameView:
    """One game between hosts, and how it was solved."""

    game: int  #: its place among the round's games, from 1
    players: Annotated[int, Field(description="Hosts that took part.")]
    vms: Annotated[int, Field(description="VMs that they took.")]
    solved: Annotated[
        str,
        Field(
            description="`exact`: by backward induction; `sweeps`: Algorithm 1 of the paper, then"
            " best-response sweeps; `sequential`: Algorithm 1 alone."
        ),
    ]
    subgames: Annotated[
        int, Field(description="Looked at by backward induction; 0: solved otherwise.")
    ]
    sweeps: int
    certified: Annotated[
        bool | None,
        Field(description="Whether a second computation found that no host gains by deviating."),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class FillingComparisonView:
    """The games of a round compared with filling alone, where a single resource ranked."""

    resource: Annotated[str, Field(description="The resource that ranked combinations.")]
    chosen: Literal["game", "filling"]
    amounts: Annotated[
        Mapping[str, int],
        Field(description="Of the resource, by `game` and `filling`: what each would place."),
    ]
    fair_distances: Annotated[
        Mapping[str, float],
        Field(description="Of tenants' shares, by `game` and `filling`, after the round."),
    ]
    sentence: Annotated[str, Field(description="Why one was chosen, in plain words.")]


def filling_comparisons(details: Mapping[str, Any]) -> tuple[FillingComparisonView, ...]:
    """Return the comparisons of games with filling in an allocation's details.

    Only zones, and runs of a round, in which a single resource ranked have one.
    """
    found = details.get("comparisons", ())
    return tuple(
        FillingComparisonView(
            resource=each["resource"],
            chosen=each["chosen"],
            amounts=each["amounts"],
            fair_distances=each["fair_distances"],
            sentence=_comparison_sentence(each),
        )
        for each in (found if isinstance(found, Sequence) else ())
        if isinstance(each, Mapping) and each.keys() >= _COMPARISON_KEYS
    )


def _comparison_sentence(comparison: Mapping[str, Any]) -> str:
    """Return "the filling was fuller: 24 against 22 vCPUs", or why else one was chosen."""
    chosen = comparison["chosen"]
    other = "filling" if chosen == "game" else "game"
    amounts, distances = comparison["amounts"], comparison["fair_distances"]
    resource = comparison["resource"]
    if amounts[chosen] != amounts[other]:
        return f"the {chosen} was fuller: {amounts[chosen]} against {amounts[other]} {resource}"
    if distances[chosen] != distances[other]:
        return (
            f"the {chosen} was fairer: {distances[chosen]:.2%} against {distances[other]:.2%} off "
            f"fair, with {amounts[chosen]} {resource} each"
        )
    return f"filling was no better than the game: {amounts[chosen]} {resource} each"


def solved_games(details: Mapping[str, Any]) -> tuple[GameView, ...]:
    """Return how the games in the details of an allocation were solved.

    Older rounds recorded less.
    """
    return tuple(
        GameView(
            game=number,
            players=each["players"],
            vms=each["vms"],
            solved=each["equilibrium"],
            subgames=each.get("subgames", 0),
            sweeps=each["sweeps"],
            certified=each.get("certified"),
        )
        for number, each in enumerate(games_of(details), start=1)
    )


def solution_sentence(game: GameView) -> str:
    """Return a sentence about how a game was solved, in plain words and then in game theory's."""
    if game.solved == "exact":
        plainly, term = "every host foresaw how those after it would answer", "subgame-perfect"
    else:
        plainly, term = "no host would choose otherwise, given what the others took", "Nash"
    if game.certified is None:
        return "the game was cut before an equilibrium was found"
    if not game.certified:
        return "the game ended before an equilibrium: some host would gain by choosing otherwise"
    return f"{plainly}: a {term} equilibrium, as a second computation confirmed"
