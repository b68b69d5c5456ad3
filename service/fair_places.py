"""A few places for many who want one for a while, so that nobody takes all of them."""

from __future__ import annotations

import threading
from collections import Counter


class FairPlaces:
    """Places that are taken under somebody's name.

    Whoever has places already gets another one only if that leaves him no more than half of
    what the others leave: of eight, the first may have four, the next two. So while one name
    holds all that it may there is room for others, whoever came first.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()

    def may_have(self, name: str) -> int:
        """Return how many places one may have now, those that he has included."""
        others = self._held.total() - self._held[name]
        return -(-(self._limit - others) // 2)

    def take(self, name: str) -> bool:
        """Take a place, if there is one for that name."""
        with self._lock:
            if self._held[name] >= self.may_have(name):
                self._held += Counter()  # forgets who has none
                return False
            self._held[name] += 1
            return True

    def give_back(self, name: str) -> None:
        """Leave a place."""
        with self._lock:
            self._held[name] -= 1
            self._held += Counter()
