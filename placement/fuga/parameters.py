"""What can be set on the policy `fuga`, and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from placement.errors import ParameterError
from placement.filling.overload import read_overload

Equilibrium: TypeAlias = Literal["auto", "exact", "sequential", "sweeps"]

#: Largest game tree, in leaves, that is solved exactly.
LARGEST_TREE: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FugaParameters:
    """Parameters of the FUGA game."""

    alpha: float = 2.0  #: of the fairness v(A), above 1
    eta: int = 5  #: strategies that a host weighs
    overload: float = 1.0  #: no host is filled above this part of its capacity
    ranking: tuple[str, ...] | None = None  #: resources that rank; None: the first two
    equilibrium: Equilibrium = "auto"
    quota: bool = True  #: first offer each request its fair target only
    fallback: bool = True  #: place the remainder by Best-Fit DRFH
    sweeps: int = 20  #: most best-response sweeps
    #: host -> count of VMs per request, in place of the best combinations
    strategies: Mapping[int, tuple[tuple[int, ...], ...]] | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> FugaParameters:
        """Return the parameters, checked; JSON values are welcome.

        Raises
        ------
        ParameterError
            Naming the parameter, what was found and what is allowed.
        """
        for name, value in given.items():
            if name not in _READERS:
                raise ParameterError(name, value, f"one of {', '.join(sorted(_READERS))}")
        return cls(**{name: _READERS[name](name, value) for name, value in given.items()})


PARAMETERS: Final = frozenset(field.name for field in fields(FugaParameters))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _alpha(name: str, value: Any) -> float:
    # beyond, a distance of a billion VMs to the power of alpha leaves the floats
    if not _is_number(value) or not 1 < value <= 30:
        raise ParameterError(name, value, "a number above 1, at most 30")
    return float(value)


def _whole_number(least: int, most: int) -> Callable[[str, Any], int]:
    def read(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ParameterError(name, value, f"a whole number from {least} to {most}")
        return value

    return read


def _switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ParameterError(name, value, "true or false")
    return value


def _equilibrium(name: str, value: Any) -> Equilibrium:
    if value not in get_args(Equilibrium):
        raise ParameterError(name, value, " | ".join(get_args(Equilibrium)))
    return cast("Equilibrium", value)


def _ranking(name: str, value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if (
        isinstance(value, str)
        or not isinstance(value, Sequence)
        or not value
        or not all(isinstance(each, str) for each in value)
        or len(set(value)) != len(value)
    ):
        raise ParameterError(name, value, "a list of different names of resources")
    return tuple(value)


def _strategies(name: str, value: Any) -> Mapping[int, tuple[tuple[int, ...], ...]] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ParameterError(name, value, "a mapping from host to lists of counts")
    read = {}
    for key, rows in value.items():
        place = f"{name}.{key}"
        if isinstance(key, bool) or not str(key).isdigit():
            raise ParameterError(place, key, "the index of a host")
        if not isinstance(rows, Sequence) or isinstance(rows, str) or not rows:
            raise ParameterError(place, rows, "a list of combinations, at least one")
        read[int(key)] = tuple(
            _combination(f"{place}[{number}]", row) for number, row in enumerate(rows)
        )
    return read


def _combination(place: str, row: Any) -> tuple[int, ...]:
    if not isinstance(row, Sequence) or isinstance(row, str):
        raise ParameterError(place, row, "a list of counts, one per request")
    for count in row:
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ParameterError(place, count, "whole numbers, 0 or more")
    return tuple(row)


_READERS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "alpha": _alpha,
    "eta": _whole_number(1, 100),
    "overload": read_overload,
    "ranking": _ranking,
    "equilibrium": _equilibrium,
    "quota": _switch,
    "fallback": _switch,
    "sweeps": _whole_number(0, 10_000),
    "strategies": _strategies,
}
