"""The Celery queue of simulations, whose messages name job files in a shared folder.

It is separate from `workers`: a machine that simulates needs no libvirt, no register center and no
connection to hosts, and `workers` knows neither policies nor simulations.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from celery import Celery
from kombu.exceptions import OperationalError

from controller.errors import ControllerError
from registry.db import mask_secrets
from service.settings import SharedSettings, celery_config, direct_queue

QUEUE: Final = "fuga-simulations"
TASK: Final = "simulations.run"


class NoFleetError(ControllerError):
    """No broker is configured for simulation workers, or it does not answer."""


def build_app(settings: SharedSettings) -> Celery:
    """Return the Celery app of simulations; it has no tasks yet.

    Raises
    ------
    NoFleetError
        If the settings name no broker: the filesystem broker serves one machine only.
    """
    if settings.broker_url is None:
        raise NoFleetError(
            "a fleet needs a broker that its machines share: set FUGA_BROKER_URL,"
            " such as rediss://USER:PASSWORD@HOST:6379/0"
        )
    app = Celery("fuga-simulations", set_as_current=False)
    app.conf.update(
        celery_config(settings),
        task_default_queue=QUEUE,
        task_queues=[direct_queue(QUEUE)],
        worker_redirect_stdouts=False,
        worker_enable_remote_control=False,
    )
    return app


class SimulationQueue:
    """Sends jobs to the processes of `fuga simulation-worker`."""

    def __init__(self, settings: SharedSettings) -> None:
        self._app = build_app(settings)

    def check(self) -> None:
        """Raise `NoFleetError` unless the broker answers."""
        try:
            with self._open_connection() as connection:
                connection.ensure_connection(max_retries=1, interval_start=0)
        except (OperationalError, OSError) as error:
            raise NoFleetError(
                f"FUGA_BROKER_URL: the broker does not answer: {mask_secrets(str(error))}"
            ) from error

    def send(self, folder: Path, name: str) -> bool:
        """Send a simulation job to a worker; return whether the broker took it."""
        try:
            self._app.send_task(TASK, args=[str(folder), name], ignore_result=True, retry=False)
        except (OperationalError, OSError):
            return False
        return True

    def is_empty(self) -> bool:
        """Return whether no simulation job waits; False if the broker does not answer."""
        try:
            with self._open_connection() as connection:
                channel = connection.default_channel
                try:
                    found = channel.queue_declare(QUEUE, passive=True)
                except connection.channel_errors:  # there is no queue of that name, yet or any more
                    return True
                return int(found.message_count) == 0
        except (OperationalError, OSError):
            return False

    def _open_connection(self) -> Any:
        return self._app.connection_for_write()
