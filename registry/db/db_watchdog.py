"""Distinguishes a PostgreSQL server that hangs from a statement that takes long.

A server that is stopped, or whose machine is cut off, leaves its clients waiting for good: its
own time-outs stop with it, and where it is stopped its kernel goes on acknowledging what is
sent, so that neither keepalives nor ``tcp_user_timeout`` end anything. So after a few
seconds of waiting, another thread opens a new connection. If that hangs as well, all waiting calls
fail, and so do new ones, until a connection succeeds again. If the check itself cannot run, for
want of threads, files or memory, no call fails, and the next long wait starts a check again.

A statement that the server works on is not cut short: the server's own time-outs apply to it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import structlog

from registry.errors import RegistryUnavailableError

#: Seconds before a wait is suspect, and before a connection attempt counts as failed.
PATIENCE_S: Final = 5
_PAUSE_S: Final = 1.0

log: Final = structlog.get_logger(__name__)


class ServerHangsError(RegistryUnavailableError):
    """The database accepts connections and does not answer."""

    def __init__(self) -> None:
        super().__init__("the database hangs: it does not answer, and calls to it fail at once")


class DbWatchdog:
    """Tracks whether a database server answers; shared by the threads of a process.

    Parameters
    ----------
    answers : callable
        Opens a connection and returns whether that succeeded within `PATIENCE_S`.
    now : callable
        A monotonic clock.
    """

    def __init__(
        self, answers: Callable[[], bool], *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._answers = answers
        self._now = now
        self._lock = threading.Lock()
        self._hangs = False
        self._probing = False
        self._answered_at = float("-inf")
        self._not_before = float("-inf")  #: earliest time of a probe after one that could not run
        self._closed = threading.Event()

    def check(self) -> None:
        """Raise `ServerHangsError` if the database server is known to hang."""
        if self._hangs:
            raise ServerHangsError

    def check_wait(self, since: float) -> None:
        """Probe the database server if a wait is long; raise `ServerHangsError` if it hangs."""
        self.check()
        suspicious = max(since, self._answered_at) + PATIENCE_S
        if self._now() >= suspicious:
            self._start_probe()

    def record_timeout(self) -> None:
        """Record that an attempt to connect to the database server timed out."""
        with self._lock:
            if not self._hangs:
                log.warning("database_hangs")
            self._hangs = True
        self._start_probe()

    def close(self) -> None:
        """Stop probing the database server."""
        self._closed.set()

    def _start_probe(self) -> None:
        """Start a thread that probes whether the database server answers, unless one runs."""
        with self._lock:
            if self._probing or self._closed.is_set() or self._now() < self._not_before:
                return
            self._probing = True
        looker = threading.Thread(target=self._probe_until_answer, name="pulse", daemon=True)
        try:
            looker.start()
        except RuntimeError:  # the machine lets us have no more of them
            self._end_probe(answered=False)
            log.warning("database_not_looked_at", error="no thread could be started")

    def _probe_until_answer(self) -> None:
        """Connect to the database server again and again until it answers."""
        answered = False
        try:
            while not self._answers():
                with self._lock:
                    if not self._hangs:
                        log.warning("database_hangs")
                    self._hangs = True
                if self._closed.wait(_PAUSE_S):
                    return
            answered = True
        except Exception:  # no file left, no memory: that says nothing of the server
            log.exception("database_not_looked_at")
        finally:
            self._end_probe(answered=answered)

    def _end_probe(self, *, answered: bool) -> None:
        """Record a probe's result: the server answered, or the probe could not run."""
        with self._lock:
            hung, self._hangs, self._probing = self._hangs, False, False
            if answered:
                self._answered_at = self._now()
            else:
                self._not_before = self._now() + _PAUSE_S
        if hung and answered:
            log.info("database_answers_again")
