"""`fuga simulation-worker`: runs simulation jobs from the queue."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
import warnings
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Any, Final

import structlog
from celery import signals
from celery.apps.worker import Worker
from celery.exceptions import SecurityWarning
from celery.worker import state as worker_state
from prometheus_client import Counter, Gauge, Histogram

from controller.simulations.queue import QUEUE, TASK, NoFleetError, SimulationQueue, build_app
from registry.db import uuid7
from service import Check, ProcessMetrics, listening
from service.broker.inbox import Inbox
from service.broker.messages import AllowedMessages, is_text
from service.broker.redis_inbox import redis_broker_config
from service.process_log import begin_log
from service.settings import SharedSettings
from simulation import JobFiles, SimulationError, run_job

_BUCKETS_S: Final = (1.0, 10.0, 60.0, 300.0, 1800.0, 3600.0, 6 * 3600.0, 24 * 3600.0)


class RunMessageOutcome(StrEnum):
    """The outcome of a message that names a simulation run."""

    FINISHED = "finished"
    STOPPED = "stopped"  #: it was stopped and has written a checkpoint
    FAILED = "failed"
    NOT_OURS = "not_ours"  #: another worker runs it, or it is no longer needed
    REFUSED = "refused"  #: its folder is not allowed or not usable
    ERROR = "error"  #: an unexpected error


class RunMetrics:
    """Counts messages by outcome, and runs under way."""

    def __init__(self, metrics: ProcessMetrics, *, jobs: int) -> None:
        self._messages = Counter(
            "fuga_simulation_messages",
            "Messages taken by this worker, by outcome of the run.",
            ["outcome"],
            registry=metrics.registry,
        )
        for outcome in RunMessageOutcome:
            self._messages.labels(outcome.value)
        self._running = Gauge(
            "fuga_simulation_running", "Runs under way on this worker.", registry=metrics.registry
        )
        Gauge(
            "fuga_simulation_jobs",
            "Maximum number of simultaneous runs.",
            registry=metrics.registry,
        ).set(jobs)
        self._seconds = Histogram(
            "fuga_simulation_run_seconds",
            "Duration of the parts of runs that ended here.",
            buckets=_BUCKETS_S,
            registry=metrics.registry,
        )

    def run(self, work: Callable[[], RunMessageOutcome]) -> None:
        """Run a simulation job and count its outcome."""
        started = time.perf_counter()
        became = RunMessageOutcome.ERROR
        try:
            with self._running.track_inprogress():
                became = work()
        finally:
            self._messages.labels(became.value).inc()
            if became is RunMessageOutcome.FINISHED:
                self._seconds.observe(time.perf_counter() - started)


log: Final = structlog.get_logger(__name__)

PROCESS: Final = "simulation-worker"
#: Maximum characters of a path, as many as bytes in Linux.
_LONGEST_PATH: Final = 4096


class SimulationWorker(Worker):  # type: ignore[misc]  # celery is untyped
    """Celery's worker with other signal handling.

    SIGTERM and SIGINT both stop it: it takes no new messages, all runs write a checkpoint, and it
    exits. A second signal changes nothing.
    """

    def __init__(self, stopping: threading.Event, **options: Any) -> None:
        self._stopping = stopping
        super().__init__(**options)

    def install_platform_tweaks(self, worker: Worker) -> None:
        """Install our signal handlers; Celery calls this as the worker starts."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stopping.set()
        worker_state.should_stop = os.EX_OK


def run_worker(settings: SharedSettings, root: Path, *, jobs: int) -> int:
    """Run a simulation worker until SIGTERM or SIGINT; return its exit status."""
    metrics = ProcessMetrics(PROCESS)
    app = build_app(settings)
    inbox = Inbox([AllowedMessages(QUEUE, {TASK: _is_folder_and_name}, jobs)], metrics)
    app.conf.update(redis_broker_config(app.conf.broker_transport_options, inbox))
    begin_log(settings, metrics)
    _limit_library_logs()
    # Celery would set up logging of its own; ours is in place already.
    signals.setup_logging.connect(_skip_celery_logging, weak=False)
    root, stopping = root.resolve(), threading.Event()
    runs = RunMetrics(metrics, jobs=jobs)
    name_of_worker = f"{socket.gethostname()}:{os.getpid()}"

    def simulate(folder: str, name: str) -> None:
        with structlog.contextvars.bound_contextvars(folder=folder, run=name):
            runs.run(lambda: run_message(root, folder, name, stopping, worker=name_of_worker))

    app.task(simulate, name=TASK)
    worker = SimulationWorker(
        stopping,
        app=app,
        pool="threads",
        concurrency=jobs,
        queues=[QUEUE],
        hostname=f"{name_of_worker}:{uuid7().hex[-8:]}",
        quiet=True,
        without_mingle=True,
        without_gossip=True,
        without_heartbeat=True,
    )
    probe = SimulationQueue(settings)
    with listening(
        settings.metrics_address(PROCESS),
        metrics,
        ready=lambda: [_broker_check(probe), _folder_check(root)],
    ):
        log.info("simulation_worker_started", folder=str(root), jobs=jobs, worker=name_of_worker)
        worker.start()
        log.info("simulation_worker_stopped")
    return int(worker.exitcode or 0)


def run_message(
    root: Path, folder: str, name: str, stopping: threading.Event, *, worker: str
) -> RunMessageOutcome:
    """Run the simulation job that a message names, if its file is below ``root``.

    Loading a job's checkpoint can execute code. So messages can only name files below one folder,
    and every process that may write there is trusted.
    """
    there = Path(folder).resolve()
    if not there.is_relative_to(root) or name in ("", "..") or Path(name).name != name:
        log.warning("simulation_refused", reason=f"it is not below {root}")
        return RunMessageOutcome.REFUSED
    files = JobFiles(there)
    try:
        if files.read(name) is None:
            log.info("simulation_not_there", reason="the study ended, or the folder is not shared")
            return RunMessageOutcome.NOT_OURS
        log.info("simulation_begins")
        summary = run_job(files, name, stopping.is_set, worker=worker)
    except (OSError, SimulationError) as error:  # only the log can report it
        log.error("simulation_impossible", error=str(error))
        return RunMessageOutcome.REFUSED
    if summary is not None:
        log.info("simulation_ends", finished=summary["finished"])
        return RunMessageOutcome.FINISHED if summary["finished"] else RunMessageOutcome.STOPPED
    if (failure := files.failure(name)) is not None:
        log.warning("simulation_failed", error=failure.message)
        return RunMessageOutcome.FAILED
    log.info("simulation_left", reason="another worker runs it, or it is done")
    return RunMessageOutcome.NOT_OURS


def _is_folder_and_name(arguments: list[Any]) -> bool:
    return len(arguments) == 2 and all(
        is_text(each, max_length=_LONGEST_PATH) for each in arguments
    )


def _broker_check(queue: SimulationQueue) -> Check:
    try:
        queue.check()
    except NoFleetError:  # its words may name the broker's user
        return Check("broker", False, "it does not answer")
    return Check("broker", True, "it answers")


def _folder_check(root: Path) -> Check:
    if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
        return Check("folder", False, f"{root} does not exist or is not writable")
    return Check("folder", True, f"{root} is writable")


def _limit_library_logs() -> None:
    # Their lines about each received message are of no use here.
    for name in ("celery", "amqp"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # Celery warns of running as root because of pickle, which is not accepted here.
    warnings.simplefilter("ignore", SecurityWarning)


def _skip_celery_logging(**_: Any) -> None:
    """Do nothing: a receiver of this signal keeps Celery from configuring logging."""
