"""A thread that sends a process's heartbeat to the register center."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import structlog

from registry import Registry
from registry.admin import BEAT_S
from service.disks import DiskWatch
from service.health import Readiness
from service.settings import SharedSettings
from service.settings_in_force import settings_in_force
from service.version import release

log: Final = structlog.get_logger(__name__)
_GOODBYE_S: Final = 2.0
#: Interval while the process is not ready, which usually lasts only a moment after its start.
_NOT_READY_S: Final = 1.0
_START_TICK: Final = 18  #: among what `/proc/PID/stat` says after the state


@contextmanager
def sending_heartbeats(
    registry: Registry,
    kind: str,
    name: str,
    *,
    ready: Readiness,
    settings: SharedSettings | None = None,
    interval_s: float = BEAT_S,
) -> Iterator[None]:
    """Send a heartbeat every few seconds, with the failed readiness checks.

    The first one also has the release and the settings. Each one names full disks, for which an
    operator has to act.

    A check that hangs delays the heartbeat, so a process that hangs is reported as late.
    """
    over = threading.Event()
    beat = _HeartbeatSender(registry, kind, name, ready, settings)
    thread = threading.Thread(target=beat.run, args=(over, interval_s), name="beat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(_GOODBYE_S)
        if not thread.is_alive():
            beat.end()


class _HeartbeatSender:
    """Sends a process's heartbeat at an interval, and registers the process before."""

    def __init__(
        self,
        registry: Registry,
        kind: str,
        name: str,
        ready: Readiness,
        settings: SharedSettings | None,
    ) -> None:
        self._registry = registry
        self._kind = kind
        self._name = name
        self._ready = ready
        self._disks = None if settings is None else DiskWatch(settings)
        self._settings = None
        if settings is not None:
            self._settings = {each.name: each.value for each in settings_in_force(settings)}
        self._known = False
        self._is_ready = False

    def run(self, over: threading.Event, interval_s: float) -> None:
        """Send heartbeats until ``over`` is set; more often until the process is ready."""
        while not over.is_set():
            try:
                self._send_heartbeat()
            except Exception as error:  # a database that is away for a moment
                log.warning("beat_failed", error=type(error).__name__)
            over.wait(interval_s if self._is_ready else min(interval_s, _NOT_READY_S))

    def end(self) -> None:
        """Delete the process's record, as it ends regularly."""
        try:
            self._registry.processes.unregister(self._kind, self._name)
        except Exception as error:
            log.warning("beat_failed", error=type(error).__name__)

    def _send_heartbeat(self) -> None:
        """Register the process if it is not registered, and send its heartbeat."""
        if not self._known:
            self._registry.processes.register(
                self._kind,
                self._name,
                socket.gethostname(),
                os.getpid(),
                stamp_of=start_stamp,
                release=release(),
                settings=self._settings,
            )
            self._known = True
        lacking = [f"{check.name}: {check.message}" for check in self._ready() if not check.well]
        self._is_ready = not lacking
        if self._disks is not None:
            lacking += self._disks.full_disk_messages()
        self._known = self._registry.processes.record_heartbeat(
            self._kind, self._name, "; ".join(lacking) or None
        )


def start_stamp(pid: int) -> str | None:
    """Return the start time of a process in clock ticks since boot; None if it has ended.

    Pids are reused, so a pid alone does not identify a process. A zombie stays in `/proc` until its
    parent waits for it. Units see only processes in `/proc` (ProcSubset=pid).
    """
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in {"Z", "X"} else fields[_START_TICK]
