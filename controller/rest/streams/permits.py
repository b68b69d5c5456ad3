"""Limits on open event streams: in total, per token, and per address.

A stream costs little more than a connection, but for as long as its caller wants.
"""

from __future__ import annotations

from collections import Counter
from typing import Final
from uuid import UUID

from controller.rest.middleware.callers import Caller
from controller.rest.middleware.peer_addresses import network_of
from controller.rest.problems.errors import RateLimitedError
from service.fair_semaphore import FairSemaphore

MAX_STREAMS: Final = 300
#: `Retry-After`: permits become free when web pages are closed; until then clients poll.
RETRY_AFTER_S: Final = 30
_OF_A_TOKEN: Final = 6  #: a sixth of all
_OF_AN_ADDRESS: Final = 3  #: a third


class StreamPermits:
    """Counts the open streams of a process against its limits; for use by one thread."""

    def __init__(self, max_streams: int = MAX_STREAMS) -> None:
        self._max_streams = max_streams
        self._parties = FairSemaphore(max_streams)
        self._of_tokens: Counter[UUID] = Counter()
        self._of_addresses: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        """The number of open streams."""
        return self._of_tokens.total()

    def take(self, caller: Caller, address: str) -> None:
        """Count a stream that opens, or raise `RateLimitedError` if a limit is reached."""
        network = network_of(address)
        if self._of_tokens[caller.token_id] >= -(-self._max_streams // _OF_A_TOKEN):
            raise _rate_limit_error(
                f"too many streams of events are open with token {caller.token}"
            )
        if self._of_addresses[network] >= -(-self._max_streams // _OF_AN_ADDRESS):
            raise _rate_limit_error("too many streams of events are open from this address")
        if not self._parties.take(caller.scope):
            raise _rate_limit_error("too many streams of events are open")
        self._of_tokens[caller.token_id] += 1
        self._of_addresses[network] += 1

    def give_back(self, caller: Caller, address: str) -> None:
        """Stop counting a stream that ended."""
        self._parties.give_back(caller.scope)
        self._of_tokens[caller.token_id] -= 1
        self._of_addresses[network_of(address)] -= 1
        self._of_tokens += Counter()  # drops zero counts
        self._of_addresses += Counter()


def _rate_limit_error(reason: str) -> RateLimitedError:
    return RateLimitedError(f"{reason}; close one, or poll GET /v1/events", RETRY_AFTER_S)
