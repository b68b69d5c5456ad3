"""NAME=VALUE words of a command line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TypeVar

from controller.terminal.errors import BadInputError
from plain_text import RepeatedNameError, dict_of_unique_names

T = TypeVar("T")


def unique_pairs(option: str, pairs: Iterable[tuple[str, T]]) -> dict[str, T]:
    """Return the values of an option or argument by name; refuse repeated names."""
    try:
        return dict_of_unique_names(pairs)
    except RepeatedNameError as error:
        raise BadInputError(f"{option}: {error}") from None


def parse_pairs(option: str, words: Iterable[str] | None) -> dict[str, str]:
    """Return the NAME=VALUE words of an option by name; a value may be empty."""
    return unique_pairs(option, (_parse_pair(option, word) for word in words or ()))


def _parse_pair(option: str, word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not (name and equals):
        raise BadInputError(f"{option} {word}: expected NAME=VALUE")
    return name, value


def parse_parameters(option: str, words: Iterable[str]) -> dict[str, Any]:
    """Parse a policy's parameters: each value is JSON, or else plain text."""
    return unique_pairs(option, (_parse_parameter(option, word) for word in words))


def _parse_parameter(option: str, word: str) -> tuple[str, Any]:
    name, _, text = word.partition("=")
    if not (name and text):
        raise BadInputError(f"{option} {word}: expected NAME=VALUE")
    try:
        return name, json.loads(text)
    except (ValueError, RecursionError):
        return name, text
