"""`python -m monitor`: the cloud environment monitor."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from typing import Final

import structlog

from hypervisor import SharedHosts
from monitor.metrics import PollMetrics
from monitor.service import Monitor
from monitor.settings import MonitorSettings
from registry import Registry, RegistryError, SettingsError
from service import Check, ProcessMetrics, database_check, listening
from service.certificates import watching_certificates
from service.heartbeat import sending_heartbeats
from service.process_log import begin_log
from service.settings_names import load_settings
from service.systemd_notify import supervised

BAD_SETTINGS: Final = 2


def main() -> int:
    """Run the monitor until SIGTERM or SIGINT; return its exit status."""
    try:
        settings = load_settings(MonitorSettings)
    except SettingsError as error:
        sys.stderr.write(f"fuga monitor: {error}\n")
        return BAD_SETTINGS
    metrics = ProcessMetrics("monitor")
    begin_log(settings, metrics)
    log = structlog.get_logger(__name__)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        registry = Registry.connect(settings.resolved_database_url())
    except RegistryError as error:
        log.error("monitor_not_started", error=str(error))
        return 1
    hosts = SharedHosts(deadline_s=settings.poll_deadline_s)
    try:
        monitor = Monitor(registry, hosts.host, settings, PollMetrics(metrics))

        def check_readiness() -> list[Check]:
            return [database_check(registry), monitor.check()]

        name = f"{socket.gethostname()}:{os.getpid()}"
        with (
            listening(settings.metrics_address("monitor"), metrics, ready=check_readiness),
            sending_heartbeats(registry, "monitor", name, ready=check_readiness, settings=settings),
            watching_certificates(settings, metrics, monitor.certificate_ends),
            supervised(check_readiness, lambda: monitor.turned_at),
        ):
            log.info("monitor_started", poll_interval_s=settings.poll_interval_s)
            monitor.run(stop)
            log.info("monitor_stopped")
    except RegistryError as error:
        log.error("monitor_not_started", error=str(error))
        return 1
    finally:
        hosts.close()
        registry.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
