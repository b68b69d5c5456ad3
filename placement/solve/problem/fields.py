"""Readers of single fields: a value of the file in, a checked value or a fault out.

A reader that finds a fault notes it and returns None, so that the rest of the
file is still looked at; nothing it returned is used once a fault was noted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Concatenate, Final, ParamSpec, TypeVar

from placement.solve.problem.faults import (
    Place,
    ProblemFaults,
    describe_value,
    quote_text,
    suggest_names,
)
from placement.solve.problem.model import Amounts
from placement.solve.problem.strict_json import NotANumber, RepeatedKeys

#: The least quantity above nothing and the largest, in whatever unit the file speaks.
MIN_QUANTITY: Final = Decimal("1e-9")
MAX_QUANTITY: Final = 10**12
#: VMs of one demand.
MAX_COUNT: Final = 10**9
LONGEST_NAME: Final = 200
MIN_RATIO, MAX_RATIO = Decimal("1e-9"), Decimal("1e9")

Read = TypeVar("Read")
How = ParamSpec("How")  #: what a reader takes in addition to value, place and faults


class JsonObject:
    """A JSON object of the problem file; unknown and repeated keys are faults."""

    def __init__(
        self,
        value: object,
        place: Place,
        faults: ProblemFaults,
        *,
        required: Sequence[str],
        optional: Sequence[str],
    ) -> None:
        self.place = place
        self._faults = faults
        self._values: dict[str, object] = {}
        if not isinstance(value, dict):
            faults.add(place, f"must be an object, found {describe_value(value)}")
            return
        self._values = value
        known = (*required, *optional)
        if isinstance(value, RepeatedKeys):
            for key in value.repeated:
                faults.add((*place, key), "this key stands more than once")
        for key in value:
            if key not in known:
                faults.add((*place, key), f"unknown key{suggest_names(key, known)}")
        for key in required:
            if key not in value:
                faults.add((*place, key), "is missing")

    def read(
        self,
        key: str,
        otherwise: Read,
        reader: Callable[Concatenate[object, Place, ProblemFaults, How], Read],
        *how: How.args,
        **named: How.kwargs,
    ) -> Read:
        """Convert the value of a key with a reader; return ``otherwise`` if the key is absent."""
        if key not in self._values:
            return otherwise
        return reader(self._values[key], self.place_of(key), self._faults, *how, **named)

    def place_of(self, key: str) -> Place:
        """Return the place of a key's value in the problem file."""
        return (*self.place, key)


def nullable_reader(
    reader: Callable[Concatenate[object, Place, ProblemFaults, How], Read | None],
) -> Callable[Concatenate[object, Place, ProblemFaults, How], Read | None]:
    """Return a reader of a field that also takes null."""

    def read(
        value: object, place: Place, faults: ProblemFaults, /, *how: How.args, **named: How.kwargs
    ) -> Read | None:
        """Read the value, or return None for null."""
        return None if value is None else reader(value, place, faults, *how, **named)

    return read


def read_list(value: object, place: Place, faults: ProblemFaults, *, maximum: int) -> list[object]:
    """Read a list of the problem file, which must not be empty; [] after a fault."""
    if not isinstance(value, list):
        faults.add(place, f"must be a list, found {describe_value(value)}")
        return []
    if not value:
        faults.add(place, "must not be empty")
    if len(value) > maximum:
        faults.add(place, f"must have at most {maximum:,} entries, found {len(value):,}")
        return []
    return value


def read_name(value: object, place: Place, faults: ProblemFaults) -> str | None:
    """Read a name of the problem file: printable, so that it cannot disturb a terminal."""
    if not isinstance(value, str):
        faults.add(place, f"must be a name (a string), found {describe_value(value)}")
    elif not value:
        faults.add(place, "must not be empty")
    elif len(value) > LONGEST_NAME:
        faults.add(place, f"must have at most {LONGEST_NAME} characters, found {len(value):,}")
    elif not value.isprintable():
        faults.add(place, f"must be of printable characters, found {quote_text(value)}")
    else:
        return value
    return None


def read_names(value: object, place: Place, faults: ProblemFaults, *, maximum: int) -> list[str]:
    """Read a list of distinct names of the problem file, which may be empty."""
    if not isinstance(value, list):
        faults.add(place, f"must be a list of names, found {describe_value(value)}")
        return []
    if len(value) > maximum:
        faults.add(place, f"must have at most {maximum:,} entries, found {len(value):,}")
        return []
    names: dict[str, None] = {}
    for position, each in enumerate(value):
        name = read_name(each, (*place, position), faults)
        if name is None:
            continue
        if name in names:
            faults.add((*place, position), f"stands twice: {quote_text(name)}")
        names[name] = None
    return list(names)


def read_quantity(value: object, place: Place, faults: ProblemFaults) -> Decimal | None:
    """Read an amount of a resource, exactly."""
    number = _read_number(value, place, faults)
    if number is None:
        return None
    if number < 0:
        faults.add(place, f"must be ≥ 0, found {number}")
    elif number > MAX_QUANTITY:
        faults.add(place, f"must be at most {MAX_QUANTITY:,}, found {number}")
    elif 0 < number < MIN_QUANTITY:
        faults.add(place, f"must be 0 or at least 1e-9, found {number}")
    else:
        return number
    return None


def read_amounts(
    value: object, place: Place, faults: ProblemFaults, resources: Sequence[str]
) -> Amounts | None:
    """Read a list with one quantity for each resource."""
    if not isinstance(value, list):
        faults.add(place, f"must be a list of numbers, found {describe_value(value)}")
        return None
    if len(value) != len(resources):
        names = ", ".join(map(quote_text, resources[:8])) + (", ..." if len(resources) > 8 else "")
        faults.add(
            place,
            f"must have {len(resources)} numbers, one per resource ({names}), found {len(value)}",
        )
        return None
    amounts = [
        read_quantity(each, (*place, position), faults) for position, each in enumerate(value)
    ]
    whole = [amount for amount in amounts if amount is not None]
    return tuple(whole) if len(whole) == len(amounts) else None


def read_count(
    value: object, place: Place, faults: ProblemFaults, *, minimum: int, maximum: int
) -> int | None:
    """Read a whole number of the problem file; ``3.0`` is one, ``true`` is not."""
    number = _read_number(value, place, faults)
    if number is None:
        return None
    if not minimum <= number <= maximum:
        allowed = f"must be a whole number from {minimum:,} to {maximum:,}"
        faults.add(place, f"{allowed}, found {number}")
    elif number != int(number):
        faults.add(place, f"must be a whole number, found {number}")
    else:
        return int(number)
    return None


def read_ratio(value: object, place: Place, faults: ProblemFaults) -> float | None:
    """Read a weight or a speed: a number above 0."""
    number = _read_number(value, place, faults)
    if number is None:
        return None
    if number <= 0:
        faults.add(place, f"must be > 0, found {number}")
    elif not MIN_RATIO <= number <= MAX_RATIO:
        faults.add(place, f"must be from 1e-9 to 1e9, found {number}")
    else:
        return float(number)
    return None


def resolve_name(
    name: str, index: dict[str, int], kind: str, place: Place, faults: ProblemFaults
) -> int | None:
    """Return the index of a name that the problem file refers to; unknown names are faults."""
    found = index.get(name)
    if found is None:
        faults.add(place, f"no {kind} has the name {quote_text(name)}{suggest_names(name, index)}")
    return found


def _read_number(value: object, place: Place, faults: ProblemFaults) -> Decimal | None:
    """Read a finite number, exactly; None after a fault."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        allowed = "a finite number" if isinstance(value, NotANumber) else "a number"
        faults.add(place, f"must be {allowed}, found {describe_value(value)}")
        return None
    return Decimal(value)
