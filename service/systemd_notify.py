"""Notifications to the supervisor that started this process, in systemd's protocol.

They report when the process is ready, and that its main loop still runs (the watchdog of
`WatchdogSec=`). Without the variable NOTIFY_SOCKET nothing is sent.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import structlog

from service.health import Readiness

log: Final = structlog.get_logger(__name__)

#: Interval of readiness checks while the process is not ready.
_NOT_READY_S: Final = 1.0
#: Extension of the supervisor's start timeout with each such report.
_PATIENCE_S: Final = 60.0
#: Notifications per watchdog time, and the divisor of it that bounds the age of the last turn.
_PINGS: Final = 4
_FRESH: Final = 2


class NotifySocket:
    """The notification socket of systemd or a compatible supervisor."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        # A leading @ stands for the zero byte of Linux's abstract names.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        ours = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        given = environ.get("WATCHDOG_USEC", "")
        self.watchdog_s = int(given) / 1e6 if ours and given.isdecimal() and int(given) else None

    @property
    def is_there(self) -> bool:
        """Whether a supervisor expects notifications."""
        return bool(self._address)

    def notify(self, *lines: str) -> None:
        """Send one notification to the supervisor; log one that cannot be sent."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            log.warning("supervisor_not_notified", error=error.strerror or str(error))


@contextmanager
def supervised(
    ready: Readiness,
    turned_at: Callable[[], float],
    *,
    excused: Callable[[], bool] = lambda: False,
    supervisor: NotifySocket | None = None,
) -> Iterator[None]:
    """Notify the supervisor until the block ends.

    ``turned_at`` is when the main loop last began a turn, by `time.monotonic`: the watchdog is
    notified while that is fresh, or while the loop is ``excused``, for instance since it waits for
    a broker that does not answer. The supervisor ends a process whose main loop hangs.
    """
    found = NotifySocket() if supervisor is None else supervisor
    if not found.is_there:
        yield
        return
    over = threading.Event()
    notices = _SupervisorNotifier(found, ready, turned_at, excused)
    threading.Thread(target=notices.run, args=(over,), name="systemd-notify", daemon=True).start()
    try:
        yield
    finally:
        over.set()
        found.notify("STOPPING=1")


class _SupervisorNotifier:
    """Notifies the supervisor that this process is ready, and then that its main loop turns."""

    def __init__(
        self,
        supervisor: NotifySocket,
        ready: Readiness,
        turned_at: Callable[[], float],
        excused: Callable[[], bool],
    ) -> None:
        self._supervisor = supervisor
        self._ready = ready
        self._turned_at = turned_at
        self._excused = excused

    def run(self, over: threading.Event) -> None:
        """Notify readiness once, then the watchdog while the main loop turns, until ``over``."""
        while not over.is_set() and not self._notify_if_ready():
            over.wait(_NOT_READY_S)
        watchdog_s = self._supervisor.watchdog_s
        if watchdog_s is None:
            return
        while not over.is_set():
            age_s = time.monotonic() - self._turned_at()
            if age_s <= watchdog_s / _FRESH or self._is_excused():
                self._supervisor.notify("WATCHDOG=1")
            else:
                log.error("main_loop_hangs", age_s=round(age_s, 1))
            over.wait(watchdog_s / _PINGS)

    def _is_excused(self) -> bool:
        """Return whether the main loop may stand still now, for instance without a broker."""
        try:
            return self._excused()
        except Exception as error:
            log.warning("excuse_failed", error=type(error).__name__)
            return False

    def _notify_if_ready(self) -> bool:
        """Notify the supervisor whether the process is ready, and return it."""
        try:
            lacking = [f"{each.name}: {each.message}" for each in self._ready() if not each.well]
        except Exception as error:
            lacking = [type(error).__name__]
        if lacking:
            # Systemd keeps waiting while it gets this; the process keeps trying.
            self._supervisor.notify(
                f"STATUS=not ready: {'; '.join(lacking)}",
                f"EXTEND_TIMEOUT_USEC={int(_PATIENCE_S * 1e6)}",
            )
            return False
        self._supervisor.notify("READY=1", "STATUS=ready")
        return True
