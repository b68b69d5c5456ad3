"""Readers that check parameters of policies and mechanisms from JSON values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from placement.errors import ParameterError

#: Takes a parameter's name and value; returns the value checked, or raises `ParameterError`.
Reader: TypeAlias = Callable[[str, Any], Any]


def read_parameters(readers: Mapping[str, Reader], given: Mapping[str, Any]) -> dict[str, Any]:
    """Check the parameters of a policy or mechanism, each with the reader of its name.

    Raises
    ------
    ParameterError
        If a parameter is unknown or its value is not allowed. The error has the
        name, the value and what is allowed.
    """
    for name, value in given.items():
        if name not in readers:
            raise ParameterError(name, value, f"one of {', '.join(sorted(readers))}")
    return {name: readers[name](name, value) for name, value in given.items()}


def are_names(value: Any) -> bool:
    """Return whether a value is a list of different names, at least one."""
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and len(value) > 0
        and all(isinstance(each, str) for each in value)
        and len(set(value)) == len(value)
    )


def predicate_reader(allowed: str, is_allowed: Callable[[Any], bool]) -> Reader:
    """Return a reader of parameters that a predicate accepts; ``allowed`` describes them."""

    def check_value(name: str, value: Any) -> Any:
        """Return the value, or raise `ParameterError` if it is not allowed."""
        if not is_allowed(value):
            raise ParameterError(name, value, allowed)
        return value

    return check_value


def number_reader(allowed: str, fits: Callable[[float], bool]) -> Reader:
    """Return a reader of number parameters within bounds, which ``allowed`` describes."""

    def is_allowed(value: Any) -> bool:
        """Return whether a value is a number within the bounds."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and fits(value)

    checked = predicate_reader(allowed, is_allowed)
    return lambda name, value: float(checked(name, value))


def integer_reader(minimum: int, maximum: int) -> Reader:
    """Return a reader of whole-number parameters from ``minimum`` to ``maximum``."""

    def is_allowed(value: Any) -> bool:
        """Return whether a value is a whole number within the bounds."""
        return (
            isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= maximum
        )

    return predicate_reader(f"a whole number from {minimum:,} to {maximum:,}", is_allowed)


def choice_reader(values: Sequence[str]) -> Reader:
    """Return a reader of parameters that are one of a list of words."""
    return predicate_reader(
        " | ".join(values), lambda value: isinstance(value, str) and value in values
    )


def nullable_reader(reader: Reader) -> Reader:
    """Return a reader of parameters that accepts None, too."""
    return lambda name, value: None if value is None else reader(name, value)


#: True or false.
switch_reader: Final = predicate_reader("true or false", lambda value: isinstance(value, bool))
#: A part of a whole.
fraction_reader: Final = number_reader("a number above 0, at most 1", lambda value: 0 < value <= 1)
