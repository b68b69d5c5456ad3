"""A worker whose hosts are stand-ins that take a while for each build, for `benchmarks.outbox`."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from registry.hosts import HostAccess
from service import ProcessMetrics
from service.logs import configure_logging
from service.settings_names import load_settings
from tests.fakes.hypervisor import FakeHypervisor
from workers import app
from workers.settings import WorkerSettings

BUILD_S: Final = float(os.environ.get("BENCHMARK_BUILD_S", "2"))


class SlowHost(FakeHypervisor):
    """A host stand-in that starts a domain after a delay."""

    def start_paused(self, vm_id: str, **named: Any) -> None:
        time.sleep(BUILD_S)
        super().start_paused(vm_id, **named)


class SlowHosts:
    """A pool of host stand-ins that exist only in this process, in place of hosts by URI."""

    def __init__(self, *_: object) -> None:
        self._lock = threading.Lock()
        self._hosts: dict[str, SlowHost] = {}

    @contextmanager
    def use(self, host: HostAccess) -> Iterator[SlowHost]:
        """Lend a host stand-in to a thread."""
        with self._lock:
            found = self._hosts.setdefault(host.uri, SlowHost(host.uri))
        yield found


if __name__ == "__main__":
    app.LibvirtHostDrivers = SlowHosts  # type: ignore[assignment,misc, attr-defined]  # the edge that is stood in for
    settings, metrics = load_settings(WorkerSettings), ProcessMetrics("worker")
    configure_logging(settings.log_level, form="json", on_problem=metrics.count_problem)
    sys.exit(app.run_worker(settings, metrics))
