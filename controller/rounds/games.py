"""How the games of a round were solved, in numbers and in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controller.rounds.inputs import games_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SolvedGame:
    """One game between hosts, as the round that played it tells."""

    game: int  #: its place among the round's games, from 1
    players: int  #: hosts that took part
    vms: int  #: that they took
    solved: str  #: exact, sweeps or sequential
    subgames: int  #: that backward induction looked at; 0: the game was solved otherwise
    sweeps: int
    certified: bool | None  #: whether nobody gains by deviating; None: nobody looked


def solved_games(details: Mapping[str, Any]) -> tuple[SolvedGame, ...]:
    """Return what an allocation's details tell of its games.

    Older rounds tell less.
    """
    return tuple(
        SolvedGame(
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


def in_words(game: SolvedGame) -> str:
    """Say how a game was solved: a plain sentence first, the game's terms after it."""
    if game.solved == "exact":
        plainly, term = "every host foresaw how those after it would answer", "subgame-perfect"
    else:
        plainly, term = "no host would choose otherwise, given what the others took", "Nash"
    if game.certified is None:
        return "the game was cut before an equilibrium was found"
    if not game.certified:
        return "the game ended before an equilibrium: some host would gain by choosing otherwise"
    return f"{plainly}: a {term} equilibrium, as a second computation confirmed"
