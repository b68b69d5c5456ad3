"""`python -m monitor`: the cloud environment monitor."""

from __future__ import annotations

import logging
import signal
import sys
import threading

import structlog

from hypervisor import HostConnection
from monitor.service import Monitor
from monitor.settings import MonitorSettings
from registry import Registry, RegistryError
from registry.logs import configure_logging


def main() -> int:
    """Watch the hosts of the register center until SIGTERM or SIGINT."""
    settings = MonitorSettings()
    configure_logging(settings.log_level)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    log = structlog.get_logger(__name__)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        registry = Registry.connect(settings.resolved_database_url())
    except RegistryError as error:
        log.error("monitor_not_started", error=str(error))
        return 1
    try:
        log.info("monitor_started", poll_interval_s=settings.poll_interval_s)
        Monitor(
            registry,
            lambda uri: HostConnection(uri, deadline_s=settings.poll_deadline_s),
            settings,
        ).run(stop)
        log.info("monitor_stopped")
    finally:
        registry.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
