"""A semaphore whose permits several holders share fairly."""

from __future__ import annotations

import threading
from collections import Counter


class FairSemaphore:
    """Permits that are taken under a holder's name.

    A holder gets at most half of the permits that others have not taken: of eight, the first
    may have four, the next two. So while one name holds its most, there is room for others, in
    any order of arrival. ``of_a_name`` is the
    maximum of one name.
    """

    def __init__(self, limit: int, *, of_a_name: int | None = None) -> None:
        self._limit = limit
        self._of_a_name = limit if of_a_name is None else of_a_name
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()

    def permits_allowed(self, name: str) -> int:
        """Return how many permits a holder may have now, including those that it has."""
        others = self._held.total() - self._held[name]
        return min(self._of_a_name, -(-(self._limit - others) // 2))

    def held_by(self, name: str) -> int:
        """Return how many permits a holder has."""
        return self._held[name]

    def take(self, name: str) -> bool:
        """Take a permit for a holder, if it may have one more."""
        with self._lock:
            if self._held[name] >= self.permits_allowed(name):
                self._held += Counter()  # drops names without permits
                return False
            self._held[name] += 1
            return True

    def give_back(self, name: str) -> None:
        """Give back a holder's permit."""
        with self._lock:
            self._held[name] -= 1
            self._held += Counter()
