"""Celery's Redis broker for workers that survive any contents of their queue.

Kombu decodes what Redis returns in the middle of Celery's loop, and an error there ends
the worker (celery/kombu issue 2421 says the same of another broker). Here the bytes go
through the `Inbox` first. Further:

- Only the queue itself is read. Kombu would keep begun messages in its own keys and restore them
  after an hour; fuga's sweep sends again long before, so those keys would only be another target
  for strangers.
- A queue key that is no list is removed, or no process could send or receive.
- A reply longer than any message is not read; the connection is closed.
- A queue that is too long loses its oldest messages; the sweep sends them again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from queue import Empty
from typing import Any, Final

from kombu.transport import redis as kombu_redis
from redis.connection import Connection, SSLConnection
from redis.exceptions import ConnectionError as HungUp
from redis.exceptions import ResponseError

from service.broker.inbox import OPTION, Inbox, InboxChannel
from service.broker.messages import MAX_BYTES

#: Celery's `broker_transport` for Redis.
TRANSPORT: Final = f"{__name__}:RedisTransport"
#: Maximum messages of a queue: as many as a worker reads within two minutes.
MAX_WAITING: Final = 20_000
#: The queue's length is checked after this many messages.
_MEASURED_EVERY: Final = 1_000
#: Maximum wait of a thread that becomes free; needs fractions of seconds, since Redis 6.
_WHILE_SOME_ARE_FULL_S: Final = 0.1


class TooLongError(HungUp):
    """A reply exceeds every message of fuga's; the connection is unusable."""


class _ShortReplies:
    """A connection that closes instead of reading a long reply."""

    def on_connect_check_health(self, check_health: bool = True) -> None:
        """Have the new connection close instead of reading a reply beyond the limit."""
        super().on_connect_check_health(check_health)  # type: ignore[misc]  # it is mixed in
        buffer = self._parser._buffer  # type: ignore[attr-defined]
        read = buffer.read

        def read_bounded(length: int, *arguments: Any, **named: Any) -> bytes:
            if length > MAX_BYTES:
                raise TooLongError(f"a reply of {length} bytes")
            return bytes(read(length, *arguments, **named))

        buffer.read = read_bounded


class _PlainConnection(_ShortReplies, Connection):
    """A connection to Redis without TLS that closes instead of reading a long reply."""

    pass


class _TlsConnection(_ShortReplies, SSLConnection):
    """A connection to Redis with TLS that closes instead of reading a long reply."""

    pass


class RedisChannel(InboxChannel, kombu_redis.Channel):
    """Reads through the `Inbox`; sends as kombu does."""

    from_transport_options = (*kombu_redis.Channel.from_transport_options, OPTION)  # type: ignore[assignment]  # one more
    ack_emulation = False
    priority_steps = [0]  # noqa: RUF012 - as kombu has it
    connection_class = _PlainConnection
    connection_class_ssl = _TlsConnection

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)  # type: ignore[no-untyped-call]  # kombu
        self._taken = 0

    def _brpop_start(self, timeout: None = None) -> None:
        """Request a message from Redis for the readable queues, the most urgent first.

        A copy of kombu's method with other queues and another timeout: a full queue is requested
        soon after one of its threads is free.
        """
        readable = [queue for queue in self.inbox.readable_queues() if queue in self.active_queues]
        if not readable:
            return
        all_are = len(readable) == len(self.active_queues)
        wait_s = self.brpop_timeout if all_are else _WHILE_SOME_ARE_FULL_S
        self._in_poll = self.client.connection
        self._brpop_sent_at = time.monotonic()  # type: ignore[assignment]  # kombu begins with None
        self.client.connection.send_command("BRPOP", *readable, wait_s)

    def _brpop_read(self, **options: Any) -> bool:
        """Take one message from Redis; a copy of kombu's method with fuga's checks."""
        try:
            found = self._read_reply(options)
            if not found:
                raise Empty
            queue, content = found[0].decode(), found[1]
            self._trim_flooded_queues()
            message = self.inbox.check_message(queue, content)
            if message is not None:
                self.connection._deliver(message, queue)
            return True
        finally:
            self._in_poll = False
            self._flush_brpop_reauth()  # type: ignore[no-untyped-call]  # kombu

    def _read_reply(self, options: dict[str, Any]) -> Any:
        """Return Redis's reply to the request for a message; drop what is none of fuga's."""
        try:
            return self.client.parse_response(self.client.connection, "BRPOP", **options)
        except TooLongError as error:
            self.client.connection.disconnect()
            self.inbox.drop("too_long", str(error).encode())
        except self.connection_errors:
            self.client.connection.disconnect()  # the next round of the loop connects again
            raise
        except ResponseError as error:
            if not str(error).startswith("WRONGTYPE"):
                raise
            self._remove_foreign_keys()
        return None

    def _remove_foreign_keys(self) -> None:
        """Remove keys of Redis with a queue's name that are no lists."""
        with self.conn_or_acquire() as client:
            for queue in self.active_queues:
                if (kind := client.type(queue)) not in (b"list", b"none"):
                    client.unlink(queue)
                    self.inbox.drop("not_a_queue", kind)

    def _trim_flooded_queues(self) -> None:
        """Cut queues of Redis to their newest messages if they have far too many."""
        self._taken += 1
        if self._taken % _MEASURED_EVERY:
            return
        with self.conn_or_acquire() as client:
            for queue in self.active_queues:
                surplus = client.llen(queue) - MAX_WAITING
                if surplus > 0:  # keep the newest, which are on the left
                    client.ltrim(queue, 0, MAX_WAITING - 1)
                    self.inbox.drop("flood", f"{surplus} messages".encode())


class RedisTransport(kombu_redis.Transport):
    """Kombu's Redis transport with our `RedisChannel`."""

    Channel = RedisChannel

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Read messages in each turn of a worker's event loop, and record the turn."""
        super().register_with_event_loop(connection, loop)  # type: ignore[no-untyped-call]  # kombu
        loop.on_tick.add(connection.client.transport_options[OPTION].record_turn)


def redis_broker_config(options: Mapping[str, Any], inbox: Inbox) -> dict[str, Any]:
    """Return the Celery configuration of a worker with this broker."""
    return {"broker_transport": TRANSPORT, "broker_transport_options": {**options, OPTION: inbox}}
