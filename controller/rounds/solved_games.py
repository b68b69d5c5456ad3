"""Summaries of the games of a round: how each was solved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from controller.rounds.inputs import games_of


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
