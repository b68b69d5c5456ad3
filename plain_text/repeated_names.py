"""Refusal of repeated names in mappings, of which a parser would silently keep the last."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from plain_text.escaping import plain

T = TypeVar("T")


class RepeatedNameError(ValueError):
    """A name is given twice."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{plain(name)!r} is given twice; give each name once")
        self.name = name


def dict_of_unique_names(pairs: Iterable[tuple[str, T]]) -> dict[str, T]:
    """Return the pairs as a dict; raise `RepeatedNameError` for a repeated name.

    It also serves `json.loads` as ``object_pairs_hook``.
    """
    found: dict[str, T] = {}
    for name, value in pairs:
        if name in found:
            raise RepeatedNameError(name)
        found[name] = value
    return found
