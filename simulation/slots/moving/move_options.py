"""Options of moves in a study: balance, spare capacity, rolls, room and prices."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, TypeVar

from placement import PlacementError
from placement.constraints.starving_requests import ROOM_PATIENCE
from placement.parameters import (
    Reader,
    integer_reader,
    nullable_reader,
    number_reader,
    predicate_reader,
    read_parameters,
)
from placement.rebalancing.balance import BALANCE_OBJECTIVE
from placement.rebalancing.local_search.objective import MoveObjective
from placement.rebalancing.model import RebalanceLimits
from plain_text import RepeatedNameError, dict_of_unique_names
from simulation.errors import InputError

_HOURS: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
_DAY_S: Final = 86_400.0
_seconds: Final = number_reader("seconds, 0 or more", lambda value: 0 <= value < 1e12)
_gib: Final = number_reader("GiB, 0 or more", lambda value: 0 <= value < 1e12)
_above_0: Final = number_reader("a number above 0", lambda value: 0 < value < 1e12)
_words: Final = predicate_reader("words", lambda value: isinstance(value, str) and bool(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePrice:
    """The time that a simulated move takes, and the limits on simultaneous moves."""

    gib_per_s: float = 1.0  #: of memory, of one move
    least_s: float = 5.0  #: of any move, in addition to the time for its memory
    rest_s: float = 3600.0  #: a VM that moved is not balanced again before
    per_host: int = 2  #: moves away from one host, and moves to one
    at_once: int = 20  #: in the whole site

    @property
    def limits(self) -> RebalanceLimits:
        """The limits on simultaneous moves, as move plans take them."""
        return RebalanceLimits(
            per_source=self.per_host, per_destination=self.per_host, at_once=self.at_once
        )

    def seconds(self, transfer_mib: int) -> float:
        """Return the seconds that a simulated move with this transfer takes."""
        return self.least_s + transfer_mib / 1024 / self.gib_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceOptions:
    """Options of a standing rule that balances hosts at an interval."""

    every_s: float = 3600.0
    hours: str | None = None  #: of the day, UTC, in which it may begin, as 01:00-05:00
    price_per_gib: float = BALANCE_OBJECTIVE.price_per_gib
    least_gain: float = BALANCE_OBJECTIVE.least_gain
    most_gib: float | None = None  #: of one plan
    most_moves: int | None = None  #: of one plan

    @property
    def objective(self) -> MoveObjective:
        """The objective that balancing moves must meet."""
        given = {name: getattr(self, name) for name in _OBJECTIVE_FIELDS}
        return BALANCE_OBJECTIVE.with_given(given)

    def is_open(self, at_s: float) -> bool:
        """Return whether balancing may begin at a time, in seconds since 1970."""
        if self.hours is None:
            return True
        matched = _HOURS.fullmatch(self.hours)
        assert matched is not None  # noqa: S101 - read by `_check_hours`
        first, last = (3600 * int(matched[i]) + 60 * int(matched[i + 1]) for i in (1, 3))
        now = at_s % _DAY_S
        return first <= now < last if first < last else now >= first or now < last


@dataclass(frozen=True, slots=True, kw_only=True)
class RollOptions:
    """Options of a roll over hosts: empty some, keep them busy for a time, then the next."""

    at_s: float = 0.0  #: when it begins, in seconds of the trace
    hosts: str = "*"  #: names or patterns, with ``;`` between, or one ``label=LABEL``
    at_once: int = 1  #: hosts
    takes_s: float = 600.0  #: of one host, once it is empty
    wait_s: float = 3600.0  #: for VMs that cannot move; then the host is left out


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomOptions:
    """Options of moves that make room for starving requests, instead of reserving hosts."""

    patience: int = ROOM_PATIENCE  #: slots that a request waits before
    most_gib: float | None = None  #: of one plan


_OBJECTIVE_FIELDS: Final = ("price_per_gib", "least_gain", "most_gib", "most_moves")


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveOptions:
    """All options of moves of a simulated run."""

    price: MovePrice = field(default_factory=MovePrice)
    balance: BalanceOptions | None = None
    spare: str | None = None  #: ``host``, ``zone``, or the name of a label as ``rack`` in rack=3
    measured_spare: str | None = None  #: like ``spare``: recorded whether it would hold, not kept
    roll: RollOptions | None = None
    room: RoomOptions | None = None
    #: are potential, skewness and hosts in use recorded, though nothing moves?
    measured: bool = False

    @property
    def moves(self) -> bool:
        """Whether VMs move in the run."""
        return not (self.balance is None and self.roll is None and self.room is None)

    @property
    def is_enabled(self) -> bool:
        """Whether the run differs from one without moves and spare capacity."""
        return self.moves or self.spare is not None

    @classmethod
    def from_options(
        cls,
        *,
        balance: str | None = None,
        spare: str | None = None,
        roll: str | None = None,
        room: str | None = None,
        price: str | None = None,
    ) -> MoveOptions:
        """Read move options of the command line: ``NAME=VALUE``, separated by commas.

        Raises
        ------
        InputError
            For unknown names and values out of bounds.
        """
        if price is not None and balance is roll is room is None:
            raise InputError("--move-price", "nothing moves: give --balance, --roll or --room")
        found = cls(
            price=_read_option(MovePrice, "--move-price", price or ""),
            balance=None if balance is None else _read_option(BalanceOptions, "--balance", balance),
            spare=spare,
            roll=None if roll is None else _read_option(RollOptions, "--roll", roll),
            room=None if room is None else _read_option(RoomOptions, "--room", room),
        )
        return replace(found, measured=found.is_enabled)

    def without_moves(self) -> MoveOptions:
        """Return the options of the unchanged variant: the same measures, without moves."""
        return MoveOptions(measured=self.measured, measured_spare=self.spare)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> MoveOptions:
        """Return the move options of a document that `dataclasses.asdict` returned."""
        values = {**document, "price": MovePrice(**document["price"])}
        for name, its in (
            ("balance", BalanceOptions),
            ("roll", RollOptions),
            ("room", RoomOptions),
        ):
            values[name] = None if document[name] is None else its(**document[name])
        return cls(**values)


def _check_hours(name: str, value: Any) -> str:
    """Check hours of the day, as 01:00-05:00."""
    wanted = "hours of the day as 01:00-05:00"
    checked = predicate_reader(
        wanted, lambda value: isinstance(value, str) and bool(_HOURS.fullmatch(value))
    )
    return str(checked(name, value))


_READERS: Final[Mapping[type, Mapping[str, Reader]]] = {
    MovePrice: {
        "gib_per_s": _above_0,
        "least_s": _seconds,
        "rest_s": _seconds,
        "per_host": integer_reader(1, 10**6),
        "at_once": integer_reader(1, 10**6),
    },
    BalanceOptions: {
        "every_s": _above_0,
        "hours": _check_hours,
        "price_per_gib": number_reader("a number, 0 or more", lambda value: 0 <= value < 1e12),
        "least_gain": _above_0,
        "most_gib": nullable_reader(_gib),
        "most_moves": nullable_reader(integer_reader(0, 10**9)),
    },
    RollOptions: {
        "at_s": _seconds,
        "hosts": _words,
        "at_once": integer_reader(1, 10**6),
        "takes_s": _seconds,
        "wait_s": _seconds,
    },
    RoomOptions: {"patience": integer_reader(1, 10**9), "most_gib": nullable_reader(_gib)},
}
_Read = TypeVar("_Read", MovePrice, BalanceOptions, RollOptions, RoomOptions)


def _read_option(its: type[_Read], option: str, words: str) -> _Read:
    """Read the values of one move option from the command line."""
    pairs: list[tuple[str, Any]] = []
    for word in filter(None, words.split(",")):
        name, equals, value = word.partition("=")
        if not equals:
            known = ", ".join(asdict(its()))
            raise InputError(f"{option} {words}", f"{word!r} is no NAME=VALUE; names are {known}")
        try:
            pairs.append((name, json.loads(value)))
        except ValueError:
            pairs.append((name, value))
    try:
        return its(**read_parameters(_READERS[its], dict_of_unique_names(pairs)))
    except (PlacementError, RepeatedNameError) as error:
        raise InputError(f"{option} {words}", str(error)) from error
