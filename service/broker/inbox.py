"""Receives messages; drops, counts and logs foreign ones, at most once a minute.

The kombu transports in `service.broker.redis_inbox` and `workers.broker` pass each message's bytes
to an `Inbox` before kombu or Celery parse them. The inbox also counts the messages of each queue in
progress. A queue that uses all its threads is not read until one is free, so long work never takes
the threads of urgent work.
"""

from __future__ import annotations

import threading
import time
from collections import Counter as Tally
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import structlog
from prometheus_client import Counter

from service import ProcessMetrics
from service.broker.messages import AllowedMessages, ForeignMessageError, envelope

log: Final = structlog.get_logger(__name__)

_LOG_EVERY_S: Final = 60.0
_EXCERPT_BYTES: Final = 120

#: Key of the inbox in the options of a transport.
OPTION: Final = "inbox"


class Inbox:
    """Checks the messages of queues, given in order of urgency."""

    def __init__(
        self,
        known: Sequence[AllowedMessages],
        metrics: ProcessMetrics,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._known = {each.queue: each for each in known}
        #: Queues by delivery tag.
        self._in_hand: dict[str, str] = {}
        self._clock = clock
        self.turned_at = clock()
        self._lock = threading.Lock()
        self._unlogged: Tally[str] = Tally()
        self._logged_at: float | None = None
        self._dropped = Counter(
            "fuga_messages_dropped",
            "Messages in the queue that are not fuga's, by fault.",
            ["reason"],
            registry=metrics.registry,
        )

    def record_turn(self) -> None:
        """Record a turn of the worker's main loop, also while all threads are busy."""
        self.turned_at = self._clock()

    def readable_queues(self) -> list[str]:
        """Return the queues from which one more message may be taken, as a thread is free."""
        self.record_turn()
        with self._lock:
            in_hand = Tally(self._in_hand.values())
        return [each.queue for each in self._known.values() if in_hand[each.queue] < each.threads]

    def check_message(self, queue: str, content: bytes) -> dict[str, Any] | None:
        """Return a message's checked envelope for Celery; None for a foreign one, now dropped."""
        try:
            message = envelope(content, self._known[queue], now=datetime.now(UTC))
        except ForeignMessageError as error:
            self.drop(error.reason, content)
            return None
        with self._lock:
            self._in_hand[message["properties"]["delivery_tag"]] = queue
        return message

    def record_done(self, delivery_tag: str) -> None:
        """Record that a taken message is done, whatever its outcome."""
        with self._lock:
            self._in_hand.pop(delivery_tag, None)

    def drop(self, reason: str, content: bytes = b"") -> None:
        """Count a dropped message; log it at most once a minute."""
        self._dropped.labels(reason).inc()
        if reason == "expired":  # fuga's, but expired: the sweep has sent it again
            return
        with self._lock:
            self._unlogged[reason] += 1
            now = self._clock()
            if self._logged_at is not None and now - self._logged_at < _LOG_EVERY_S:
                return
            self._logged_at = now
            dropped, self._unlogged = dict(self._unlogged), Tally()
        log.warning(
            "messages_dropped",
            queues=list(self._known),
            reasons=dropped,
            last=repr(content[:_EXCERPT_BYTES]),
        )


class InboxChannel:
    """Mixin for a kombu channel that reads through an `Inbox`; reports finished messages to it."""

    inbox: Inbox

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Acknowledge a message to the broker, even if its connection is gone."""
        self.inbox.record_done(delivery_tag)
        super().basic_ack(delivery_tag, multiple)  # type: ignore[misc]  # it is mixed in

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Refuse a message to the broker."""
        self.inbox.record_done(delivery_tag)
        super().basic_reject(delivery_tag, requeue)  # type: ignore[misc]  # it is mixed in
