"""`python -m workers`: one infrastructure manager."""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Final

import structlog
from celery.exceptions import SecurityWarning

from registry import RegistryError, SettingsError
from service import ProcessMetrics
from service.process_log import begin_log
from service.settings_names import load_settings
from workers.app import run_worker
from workers.settings import WorkerSettings

BAD_SETTINGS: Final = 2


def main() -> int:
    """Run an infrastructure manager with the environment's settings; return its exit status."""
    try:
        settings = load_settings(WorkerSettings)
    except SettingsError as error:
        sys.stderr.write(f"fuga worker: {error}\n")
        return BAD_SETTINGS
    metrics = ProcessMetrics("worker")
    begin_log(settings, metrics)
    _limit_library_logs()
    try:
        return run_worker(settings, metrics)
    except RegistryError as error:
        structlog.get_logger(__name__).error("worker_not_started", error=str(error))
        return 1


def _limit_library_logs() -> None:
    """Silence Celery's and its libraries' log lines about each message."""
    # One line per message received and acknowledged says nothing of ours.
    for name in ("celery", "amqp"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # It warns that a filesystem has no host name.
    logging.getLogger("kombu").setLevel(logging.ERROR)
    # Celery fears root for the sake of pickle, which is not accepted here.
    warnings.simplefilter("ignore", SecurityWarning)


if __name__ == "__main__":
    sys.exit(main())
