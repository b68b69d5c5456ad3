"""Sends tasks to workers by name. A message is only a nudge: the row holds the truth."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol
from uuid import UUID

import structlog
from celery import Celery
from kombu.exceptions import OperationalError

from registry.tasks import ATTACH_CONSOLE, READ_CONSOLE, WorkQueue
from service.settings import SharedSettings, celery_config

log = structlog.get_logger()


class TaskQueue(Protocol):
    """Sends the ids of rows to workers."""

    def send(self, task: str, row_id: UUID) -> bool:
        """Send a row's id; return whether the broker took it. A failure only delays the work."""
        ...


class NoWorkers:
    """The queue without a broker: it drops all messages."""

    def send(self, task: str, row_id: UUID) -> bool:
        """Drop the message; a caller that waits for an answer times out."""
        return False


NO_WORKERS: Final = NoWorkers()


#: Expiry of messages in seconds: console calls wait this long. Other messages do not expire.
_OF_USE_S: Final = MappingProxyType({READ_CONSOLE: 20.0, ATTACH_CONSOLE: 20.0})


class CeleryQueue:
    """Sends the tasks of `workers` through the Celery broker."""

    def __init__(self, settings: SharedSettings) -> None:
        # kombu warns that a filesystem broker has no host name.
        logging.getLogger("kombu").setLevel(logging.ERROR)
        self._app = Celery("fuga-controller")
        self._app.conf.update(celery_config(settings))
        self._connection: Any = None

    def send(self, task: str, row_id: UUID) -> bool:
        """Publish a task with a row's id to the broker; return whether the broker took it."""
        try:
            self._app.send_task(
                task,
                args=[str(row_id)],
                ignore_result=True,
                expires=_OF_USE_S.get(task),
                retry=False,  # one attempt, not several
            )
        except (OperationalError, OSError) as error:
            log.warning("broker_unreachable", task=task, row_id=str(row_id), error=str(error))
            return False
        return True

    def queue_lengths(self) -> Mapping[WorkQueue, int] | None:
        """Return the number of waiting messages by queue; None if the broker does not answer."""
        try:
            if self._connection is None:
                self._connection = self._app.connection_for_write()
                self._connection.ensure_connection(max_retries=1, interval_start=0)
            return {queue: self._queue_length(queue) for queue in WorkQueue}
        except self._broker_errors():
            # The broken connection is useless once the broker is back.
            if self._connection is not None:
                self._connection.release()
                self._connection = None
            return None

    def _broker_errors(self) -> tuple[type[Exception], ...]:
        known: tuple[type[Exception], ...] = (OperationalError, OSError)
        return known if self._connection is None else (*known, *self._connection.connection_errors)

    def _queue_length(self, queue: WorkQueue) -> int:
        """Return the number of waiting messages in a queue; 0 if the broker has no such queue."""
        channel = self._connection.default_channel
        try:
            return int(channel.queue_declare(queue.broker_name, passive=True).message_count)
        except self._connection.channel_errors:  # there is no queue of that name, yet or any more
            return 0
