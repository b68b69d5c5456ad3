"""A limited number of places that several parties share fairly."""

from __future__ import annotations

import threading
from collections import Counter


class FairPlaces:
    """Places that are taken under a name.

    Whoever has places already gets another one only if that leaves him no more than half of
    what the others leave: of eight, the first may have four, the next two. So while one name
    holds all that it may there is room for others, whoever came first.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()

    def may_have(self, name: str) -> int:
        """Return how many places a name may have now, including those that it has."""
        others = self._held.total() - self._held[name]
        return -(-(self._limit - others) // 2)

    def take(self, name: str) -> bool:
        """Take a place, if the name may have one more."""
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
