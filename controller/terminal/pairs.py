"""KEY=VALUE words of a command line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from controller.terminal.errors import BadInputError
from plain_text import RepeatedNameError, each_once

T = TypeVar("T")


def once(option: str, pairs: Iterable[tuple[str, T]]) -> dict[str, T]:
    """Return what an option or argument gives by name; each name may be given once."""
    try:
        return each_once(pairs)
    except RepeatedNameError as error:
        raise BadInputError(f"{option}: {error}") from None
