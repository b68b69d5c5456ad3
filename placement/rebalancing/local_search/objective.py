"""The objective of optional moves: prices, least gains and bounds of a plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from placement.errors import ParameterError
from placement.model.arrays import IntArray
from placement.model.snapshot import Snapshot
from placement.parameters import (
    Reader,
    are_names,
    integer_reader,
    nullable_reader,
    number_reader,
    predicate_reader,
    read_parameters,
)
from placement.rebalancing.measures import RANKING

MIB_PER_GIB: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveObjective:
    """The objective of optional moves: their price, the least gain, and the bounds of a plan.

    A step (in balancing a move, in packing all moves that empty a host) is made only
    if the potential rises by at least ``price_per_gib`` for each gibibyte that it
    carries and ``least_gain`` beyond.
    """

    price_per_gib: float  #: of memory that a move carries; 0 or more
    least_gain: float  #: above 0, so that moving ends
    most_moves: int | None = None  #: of one plan
    most_gib: float | None = None  #: that all moves of one plan carry
    ranking: tuple[str, ...] | None = None  #: resources that count; None: the first two

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            _READERS[name](name, value)

    def with_given(self, given: Mapping[str, Any]) -> MoveObjective:
        """Return the objective of moves with some values replaced by given JSON values.

        Raises
        ------
        ParameterError
            Naming the parameter, what was found and what is allowed.
        """
        return dataclasses.replace(self, **read_parameters(_READERS, given))

    @property
    def max_mib(self) -> int | None:
        """The most memory that the moves of one plan transfer, in MiB."""
        return None if self.most_gib is None else int(self.most_gib * MIB_PER_GIB)

    def price(self, transfer_mib: int) -> float:
        """Return the least gain in potential that moves with this transfer must bring."""
        return self.price_per_gib * transfer_mib / MIB_PER_GIB + self.least_gain

    def ranking_of(self, snapshot: Snapshot) -> IntArray:
        """Return the resources that count in the load of hosts, indices of R, shape (J,).

        Raises
        ------
        ParameterError
            For a name that the snapshot does not have.
        """
        if self.ranking is None:
            return np.array(
                [each for each in RANKING if each < snapshot.resource_count], dtype=np.int64
            )
        for name in self.ranking:
            if name not in snapshot.resources:
                raise ParameterError("ranking", name, f"one of {', '.join(snapshot.resources)}")
        return np.array([snapshot.resources.index(name) for name in self.ranking], dtype=np.int64)

    def document(self) -> dict[str, Any]:
        """Return the objective as JSON values, which `with_given` reads."""
        ranking = None if self.ranking is None else list(self.ranking)
        return {**dataclasses.asdict(self), "ranking": ranking}


def _read_ranking(name: str, value: Any) -> tuple[str, ...]:
    """Check the parameter ``ranking``: names of the resources that count."""
    return tuple(predicate_reader("a list of different names of resources", are_names)(name, value))


_READERS: Final[Mapping[str, Reader]] = {
    "price_per_gib": number_reader("a number, 0 or more", lambda value: 0 <= value < np.inf),
    "least_gain": number_reader("a number above 0", lambda value: 0 < value < np.inf),
    "most_moves": nullable_reader(integer_reader(0, 10**9)),
    "most_gib": nullable_reader(
        number_reader("a number, 0 or more", lambda value: 0 <= value < np.inf)
    ),
    "ranking": nullable_reader(_read_ranking),
}
