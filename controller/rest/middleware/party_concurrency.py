"""Limits the simultaneous calls of one party while other parties call.

The threads of an API share one interpreter. Sixteen threads that list long pages for one tenant
would leave all others a seventeenth of it. So while others call, the calls of one party are served
one at a time, in their order. A party that is alone is not limited.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from typing import Final

#: Calls of one party, while others call.
AT_ONCE: Final = 1
#: A call that lasts longer is not counted: as a rule it waits for the database or a process.
COUNTS_S: Final = 1.0
#: A party is alone if no other has called for this long.
ALONE_AFTER_S: Final = 2.0


class PartyConcurrency:
    """The calls under way by party, for one event loop."""

    def __init__(self, at_once: int = AT_ONCE, clock: Callable[[], float] = time.monotonic) -> None:
        self._at_once = at_once
        self._clock = clock
        self._counted: Counter[str] = Counter()
        self._waiting: defaultdict[str, deque[asyncio.Future[None]]] = defaultdict(deque)
        #: The party that called last and the one before it, each with its time.
        self._latest: tuple[str, float] = ("", float("-inf"))
        self._before: tuple[str, float] = ("", float("-inf"))

    async def begin(self, party: str) -> Callable[[], None]:
        """Wait until a call may begin; return a function that ends it, safe to call twice."""
        self._record_caller(party)
        if self._counted[party] >= self._at_once and not self._is_alone(party):
            begins: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[party].append(begins)
            try:
                await begins
            except asyncio.CancelledError:
                if begins.done() and not begins.cancelled():
                    self._end_call(party)
                raise
        else:
            self._counted[party] += 1
        return self._count_call(party)

    def _count_call(self, party: str) -> Callable[[], None]:
        """Return the function that ends a begun call; after a time limit it ends by itself."""
        counts = True

        def end() -> None:
            nonlocal counts
            if counts:
                counts = False
                timer.cancel()
                self._end_call(party)

        timer = asyncio.get_running_loop().call_later(COUNTS_S, end)
        return end

    def _end_call(self, party: str) -> None:
        """End a call; let the next waiting call of its party begin."""
        self._counted[party] -= 1
        waiting = self._waiting[party]
        while waiting and (self._counted[party] < self._at_once or self._is_alone(party)):
            begins = waiting.popleft()
            if not begins.done():  # else its caller has gone
                self._counted[party] += 1
                begins.set_result(None)
        if not waiting:
            del self._waiting[party]
        if not self._counted[party]:
            del self._counted[party]

    def _record_caller(self, party: str) -> None:
        if party != self._latest[0]:
            self._before = self._latest
        self._latest = party, self._clock()

    def _is_alone(self, party: str) -> bool:
        """Return whether no other party called lately."""
        other = self._before if self._latest[0] == party else self._latest
        return self._clock() - other[1] > ALONE_AFTER_S
