"""Sends tasks to the workers, by name: a nudge, never the truth (that is the row)."""

from __future__ import annotations

import logging
from typing import Final, Protocol
from uuid import UUID

import structlog
from celery import Celery
from kombu.exceptions import OperationalError

from registry import SharedSettings, celery_config

log = structlog.get_logger()


class TaskQueue(Protocol):
    """Takes the id of a row for a worker to look at."""

    def send(self, task: str, row_id: UUID) -> None:
        """Send it; a broker that does not take it costs a delay, nothing else."""
        ...


class NoWorkers:
    """Stands where there is no broker: nobody takes anything."""

    def send(self, task: str, row_id: UUID) -> None:
        """Let it go: whoever waits for an answer learns that none came."""


NO_WORKERS: Final = NoWorkers()


class CeleryQueue:
    """The tasks of `workers`, reached by name through the broker.

    A message that nobody took before the sweep sends the next one is worthless:
    it expires, so that messages do not pile up while no worker runs.
    """

    def __init__(self, settings: SharedSettings, *, resend_after_s: float) -> None:
        self._expires_s = resend_after_s
        # It warns that a filesystem has no host name.
        logging.getLogger("kombu").setLevel(logging.ERROR)
        self._app = Celery("fuga-controller")
        self._app.conf.update(celery_config(settings))

    def send(self, task: str, row_id: UUID) -> None:
        """Publish the task; the sweep sends it again when nobody picks it up."""
        try:
            self._app.send_task(
                task, args=[str(row_id)], ignore_result=True, expires=self._expires_s
            )
        except (OperationalError, OSError) as error:
            log.warning("broker_unreachable", task=task, row_id=str(row_id), error=str(error))
