"""A sum of vectors of which one at a time changes."""

from __future__ import annotations

from collections.abc import Sequence


class VectorSum:
    """The sum of many vectors, kept so that a change costs a logarithm of additions.

    Nothing is ever subtracted, so rounding errors do not accumulate: the total is
    always a sum of the present terms, added in the same order.
    """

    def __init__(self, terms: int, width: int) -> None:
        self._first = 1
        while self._first < terms:
            self._first *= 2
        self._nodes: list[Sequence[float]] = [(0.0,) * width] * (2 * self._first)

    def put(self, place: int, term: Sequence[float]) -> None:
        """Set one term."""
        nodes = self._nodes
        at = self._first + place
        nodes[at] = term
        while at > 1:
            at >>= 1
            nodes[at] = [a + b for a, b in zip(nodes[2 * at], nodes[2 * at + 1], strict=True)]

    @property
    def total(self) -> Sequence[float]:
        """All terms added up."""
        return self._nodes[1]
