"""Parameters of the policy `fuga` and their bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from placement.errors import ParameterError
from placement.fuga.ranking_resources import Ranking
from placement.parameters import (
    Reader,
    are_names,
    choice_reader,
    fraction_reader,
    integer_reader,
    nullable_reader,
    number_reader,
    predicate_reader,
    switch_reader,
)

Equilibrium: TypeAlias = Literal["auto", "exact", "sequential", "sweeps"]

#: Largest game, in subgames, that is solved exactly on request: some hundred MB.
LARGEST_GAME: Final = 2_000_000
#: The subgames of games with more players are not counted.
MAX_PLAYERS: Final = 32
#: More moves than a reader looks at one by one.
MAX_STEPS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FugaParameters:
    """Parameters of the policy `fuga`, which plays the game."""

    alpha: float = 2.0  #: of the fairness v(A), above 1
    eta: int = 5  #: strategies that a host weighs
    overload: float = 1.0  #: no host is filled above this part of its capacity
    #: resources that rank; "auto": those that run short; None: the first two
    ranking: Ranking = "auto"
    equilibrium: Equilibrium = "auto"
    subgames: int = 20_000  #: most of a game that `auto` solves exactly
    #: part of the hosts that stay empty while others have room, the largest of each class
    kept_empty: float = 0.2
    #: where a single resource ranks: the fuller, else the fairer, of game and filling
    compare_filling: bool = True
    quota: bool = True  #: first offer each request its fair target only
    fallback: bool = True  #: place the remainder by Best-Fit DRFH
    sweeps: int = 20  #: most best-response sweeps
    #: host -> count of VMs per request, in place of the best combinations
    strategies: Mapping[int, tuple[tuple[int, ...], ...]] | None = None
    steps: int = 0  #: most moves reported in the answer; they do not change it


def _read_ranking(name: str, value: Any) -> Ranking:
    """Check the parameter ``ranking``: "auto", or names of resources."""
    if value == "auto":
        return "auto"
    return tuple(
        predicate_reader("auto, or a list of different names of resources", are_names)(name, value)
    )


def _read_strategies(name: str, value: Any) -> Mapping[int, tuple[tuple[int, ...], ...]]:
    """Check the parameter ``strategies``: lists of combinations by host."""
    if not isinstance(value, Mapping):
        raise ParameterError(name, value, "a mapping from host to lists of counts")
    read = {}
    for key, rows in value.items():
        place = f"{name}.{key}"
        if isinstance(key, bool) or not str(key).isdecimal():
            raise ParameterError(place, key, "the index of a host")
        if not isinstance(rows, Sequence) or isinstance(rows, str) or not rows:
            raise ParameterError(place, rows, "a list of combinations, at least one")
        read[int(key)] = tuple(
            _read_combination(f"{place}[{number}]", row) for number, row in enumerate(rows)
        )
    return read


def _read_combination(place: str, row: Any) -> tuple[int, ...]:
    """Check one given combination: a count of VMs for each request."""
    if not isinstance(row, Sequence) or isinstance(row, str):
        raise ParameterError(place, row, "a list of counts, one per request")
    for count in row:
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ParameterError(place, count, "whole numbers, 0 or more")
    return tuple(row)


READERS: Final[Mapping[str, Reader]] = {
    # Beyond 30 a distance of a billion VMs to the power of alpha leaves the floats.
    "alpha": number_reader("a number above 1, at most 30", lambda value: 1 < value <= 30),
    "eta": integer_reader(1, 100),
    "overload": fraction_reader,
    "ranking": nullable_reader(_read_ranking),
    "equilibrium": choice_reader(get_args(Equilibrium)),
    "subgames": integer_reader(0, LARGEST_GAME),
    "kept_empty": number_reader("a number from 0 to 1", lambda value: 0 <= value <= 1),
    "compare_filling": switch_reader,
    "quota": switch_reader,
    "fallback": switch_reader,
    "sweeps": integer_reader(0, 10_000),
    "strategies": nullable_reader(_read_strategies),
    "steps": integer_reader(0, MAX_STEPS),
}
