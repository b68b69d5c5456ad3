"""The worker process: Celery with a pool of threads, without its log setup, ending cleanly."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import structlog
from celery import Celery, signals
from celery.apps.worker import Worker
from celery.worker import state as worker_state
from kombu.exceptions import OperationalError

from hypervisor import HostConnections
from registry import Registry
from registry.db import uuid7
from registry.tasks import Due
from service import Check, ProcessMetrics, database_check, listening
from service.broker.inbox import Inbox
from service.broker.redis_inbox import redis_broker_config
from service.certificates import credential_certificate_ends, watching_certificates
from service.heartbeat import sending_heartbeats
from service.settings import celery_config
from service.systemd_notify import supervised
from workers.broker import filesystem_broker_config
from workers.console_threads import ConsoleThreads
from workers.context import WorkerContext
from workers.host_limits import HostLimits
from workers.libvirt_drivers import LibvirtHostDrivers
from workers.metrics import TaskMetrics
from workers.settings import WorkerSettings
from workers.tasks import allowed_messages_of_queue, register_tasks

log: Final = structlog.get_logger(__name__)


class ThreadWorker(Worker):  # type: ignore[misc]  # celery is untyped
    """Celery's worker with fuga's signal handling.

    SIGTERM and SIGINT both mean: take no new work, stop held work between two steps, and exit.
    Celery's own handlers treat a second Ctrl-C as "drop everything", and write to standard output.
    A hung step is abandoned after the grace period. Another worker takes its work up when the lease
    has run out.
    """

    def __init__(self, context: WorkerContext, *, stop_grace_s: float, **options: Any) -> None:
        self._context = context
        self._stop_grace_s = stop_grace_s
        super().__init__(**options)

    def install_platform_tweaks(self, worker: Worker) -> None:
        """Install fuga's signal handlers; Celery calls this when the worker starts."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """End the worker at the first signal; exit after the grace time, even if steps hang."""
        if not self._context.stopping.is_set():
            self._context.stopping.set()
            worker_state.should_stop = os.EX_OK
            watchdog = threading.Timer(self._stop_grace_s, _exit_despite_hung_steps)
            watchdog.daemon = True
            watchdog.start()


def build_app(settings: WorkerSettings, inbox: Inbox) -> Celery:
    """Return the Celery app of a worker, configured by the settings; it has no tasks yet."""
    app = Celery("fuga", set_as_current=False)
    app.conf.update(celery_config(settings))
    if str(app.conf.broker_url).startswith("filesystem:"):
        app.conf.update(filesystem_broker_config(app.conf.broker_transport_options, inbox))
    else:
        app.conf.update(redis_broker_config(app.conf.broker_transport_options, inbox))
    app.conf.update(
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
    )
    return app


@contextmanager
def open_context(settings: WorkerSettings, app: Celery) -> Iterator[WorkerContext]:
    """Open the resources of a worker's tasks; at its end, kill children with running calls."""
    store = settings.resolved_image_store()  # its keys are read before anything is opened
    registry = Registry.connect(settings.resolved_database_url())
    connections = HostConnections(deadline_s=settings.call_deadline_s)
    console_connections = HostConnections(
        limit=settings.console_threads, deadline_s=settings.call_deadline_s
    )
    credentials = settings.resolved_host_credentials()
    opened = LibvirtHostDrivers(connections, credentials, call_deadline_s=settings.call_deadline_s)
    consoles = ConsoleThreads(
        LibvirtHostDrivers(console_connections, credentials), limit=settings.console_threads
    )
    try:
        yield WorkerContext(
            registry=registry,
            hosts=HostLimits(
                opened,
                max_threads=settings.threads_per_host,
                pause_s=settings.silent_host_pause_s,
                wait_s=settings.thread_wait_s,
            ),
            store=store,
            consoles=consoles,
            image_urls=settings.image_urls,
            owner=f"{socket.gethostname()}:{os.getpid()}:{uuid7().hex[-8:]}",
            lease_s=settings.lease_s,
            lookup_deadline_s=settings.lookup_deadline_s,
            piece_deadline_s=settings.upload_piece_deadline_s,
            upload_deadline_s=settings.upload_deadline_s,
            upload_threads=threading.BoundedSemaphore(
                settings.upload_threads or max(1, settings.concurrency // 2)
            ),
            moves=settings.move_options(),
            host_networks=settings.known_host_networks(),
            fence_command=settings.fence_command,
            fence_timeout_s=settings.fence_timeout_s,
            send=lambda due: _send_task(app, due),
        )
    finally:
        consoles.join(within_s=settings.stop_grace_s)
        console_connections.close()
        opened.close()
        connections.close()
        registry.close()


def run_worker(settings: WorkerSettings, metrics: ProcessMetrics) -> int:
    """Run one worker until SIGTERM or SIGINT; return its exit status."""
    # fuga's logging is in place: Celery must not set up its own.
    signals.setup_logging.connect(_skip_celery_logging, weak=False)
    threads = settings.threads
    inbox = Inbox([allowed_messages_of_queue(*each) for each in threads.items()], metrics)
    app = build_app(settings, inbox)
    with open_context(settings, app) as context:
        register_tasks(app, context, TaskMetrics(metrics))
        worker = ThreadWorker(
            context,
            stop_grace_s=settings.stop_grace_s,
            app=app,
            pool="threads",
            concurrency=sum(threads.values()),
            queues=[queue.broker_name for queue in threads],
            hostname=context.owner,
            quiet=True,
            without_mingle=True,
            without_gossip=True,
            without_heartbeat=True,
        )

        def check_readiness() -> list[Check]:
            return [database_check(context.registry), broker_check(app, worker)]

        with (
            listening(settings.metrics_address("worker"), metrics, ready=check_readiness),
            sending_heartbeats(
                context.registry, "worker", context.owner, ready=check_readiness, settings=settings
            ),
            watching_certificates(
                settings,
                metrics,
                lambda: credential_certificate_ends(settings.resolved_host_credentials()),
            ),
            supervised(
                check_readiness,
                lambda: inbox.turned_at,
                # The loop waits for a missing broker; running builds go on.
                excused=lambda: not broker_check(app, worker).well,
            ),
        ):
            log.info("worker_started", owner=context.owner, threads=threads)
            worker.start()
            log.info("worker_stopped", owner=context.owner)
        return int(worker.exitcode or 0)


def broker_check(app: Celery, worker: Worker) -> Check:
    """Check whether the message broker answers and this worker listens to it."""
    consumer = getattr(worker, "consumer", None)
    connection = getattr(consumer, "connection", None)
    if connection is None or not connection.connected:
        return Check("broker", False, "this worker is not connected to it")
    try:
        with app.connection_for_read() as probe:
            probe.ensure_connection(max_retries=1, interval_start=0)
    except (OperationalError, OSError):
        return Check("broker", False, "it does not answer")
    return Check("broker", True, "it answers, and this worker listens to it")


def _exit_despite_hung_steps() -> None:
    """End the worker's process although a step still hangs with its host."""
    log.warning("worker_stopped", held="a step that hangs with its host")
    os._exit(os.EX_OK)


def _send_task(app: Celery, due: Due) -> None:
    """Send the message of a due task; without a broker the sweep sends it later."""
    try:
        app.send_task(due.task, args=[str(due.id)], retry=False)
    except (OperationalError, OSError) as error:
        log.warning("broker_unreachable", task=due.task, error=str(error))  # the sweep goes on


def _skip_celery_logging(**_: Any) -> None:
    """Keep Celery from configuring the worker's logging."""
