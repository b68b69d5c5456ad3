"""Sends tasks to the workers, by name: a nudge, never the truth (that is the row)."""

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
    """Takes the id of a row for a worker to look at."""

    def send(self, task: str, row_id: UUID) -> bool:
        """Send it; return whether the broker took it. A failure only delays the work."""
        ...


class NoWorkers:
    """The queue where there is no broker: it drops everything."""

    def send(self, task: str, row_id: UUID) -> bool:
        """Drop it: the caller that waits for an answer times out."""
        return False


NO_WORKERS: Final = NoWorkers()


#: A console call waits that long; a message that a row repeats stays useful until it is done.
_OF_USE_S: Final = MappingProxyType({READ_CONSOLE: 20.0, ATTACH_CONSOLE: 20.0})


class CeleryQueue:
    """The tasks of `workers`, reached by name through the broker."""

    def __init__(self, settings: SharedSettings) -> None:
        # It warns that a filesystem has no host name.
        logging.getLogger("kombu").setLevel(logging.ERROR)
        self._app = Celery("fuga-controller")
        self._app.conf.update(celery_config(settings))
        self._connection: Any = None

    def send(self, task: str, row_id: UUID) -> bool:
        """Publish the task, to the queue that it goes by."""
        try:
            self._app.send_task(
                task,
                args=[str(row_id)],
                ignore_result=True,
                expires=_OF_USE_S.get(task),
                retry=False,  # it waits for one answer, not for several
            )
        except (OperationalError, OSError) as error:
            log.warning("broker_unreachable", task=task, row_id=str(row_id), error=str(error))
            return False
        return True

    def queue_lengths(self) -> Mapping[WorkQueue, int] | None:
        """Return how many messages no worker has taken yet; None: the broker does not answer."""
        try:
            if self._connection is None:
                self._connection = self._app.connection_for_write()
                self._connection.ensure_connection(max_retries=1, interval_start=0)
            return {queue: self._length(queue) for queue in WorkQueue}
        except self._errors():
            # What was left of this connection would say nothing of a broker that is back.
            if self._connection is not None:
                self._connection.release()
                self._connection = None
            return None

    def _errors(self) -> tuple[type[Exception], ...]:
        known: tuple[type[Exception], ...] = (OperationalError, OSError)
        return known if self._connection is None else (*known, *self._connection.connection_errors)

    def _length(self, queue: WorkQueue) -> int:
        channel = self._connection.default_channel
        try:
            return int(channel.queue_declare(queue.at_broker, passive=True).message_count)
        except self._connection.channel_errors:  # there is no queue of that name, yet or any more
            return 0
