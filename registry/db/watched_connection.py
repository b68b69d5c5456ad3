"""PostgreSQL connections whose waits a watchdog checks; imported only for PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import PQGen
from sqlalchemy import URL, Engine, event

from registry.db.db_watchdog import PATIENCE_S, DbWatchdog, ServerHangsError

RV = TypeVar("RV")

_INTERVAL_S: Final = 0.1  #: psycopg's own


class WatchedConnection(psycopg.Connection[Any]):
    """A connection that is closed when its server hangs or exceeds its own timeout.

    psycopg interrupts its wait ten times a second, and the watchdog is checked then.
    """

    pulse: DbWatchdog | None = None
    max_wait_s: float = float("inf")

    def wait(
        self, gen: PQGen[RV], interval: float = _INTERVAL_S, timeout: float | None = None
    ) -> RV:
        """Wait as psycopg does, but raise `psycopg.OperationalError` if the server hangs."""
        return super().wait(self._watch_wait(gen), interval, timeout)

    def _watch_wait(self, gen: PQGen[RV]) -> Generator[Any, Any, RV]:
        """Let psycopg wait for the server, and check at each interval whether it hangs."""
        since = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready:
                    self._close_if_hanging(since)
                wanted = gen.send(ready)
        except StopIteration as end:
            found: RV = end.value
            return found

    def _close_if_hanging(self, since: float) -> None:
        """Close the connection if its server hangs; a commit may have taken effect or not."""
        try:
            if self.pulse is not None:
                self.pulse.check_wait(since)
        except ServerHangsError as error:
            self.pgconn.finish()
            raise psycopg.OperationalError(str(error)) from None
        if time.monotonic() - since > self.max_wait_s:
            self.pgconn.finish()
            raise psycopg.OperationalError(
                f"the database did not answer within {self.max_wait_s:g} s"
            )


def watchdog_of(url: URL) -> DbWatchdog:
    """Return a new watchdog of the PostgreSQL server at a URL."""
    given, named = url.get_dialect()().create_connect_args(url)

    def server_answers() -> bool:
        try:
            psycopg.connect(*given, **{**named, "connect_timeout": PATIENCE_S}).close()
        except psycopg.errors.ConnectionTimeout:
            return False
        except psycopg.Error:  # refused or unreachable: the caller gets that error when it connects
            return True
        return True

    return DbWatchdog(server_answers)


def watch(engine: Engine, pulse: DbWatchdog | None, *, max_wait_s: float) -> None:
    """Make an engine open connections whose waits the watchdog checks."""

    @event.listens_for(engine, "do_connect")
    def _connect(_dialect: Any, _record: Any, given: Any, named: Any) -> psycopg.Connection[Any]:
        try:
            if pulse is not None:
                pulse.check()
            connection = WatchedConnection.connect(*given, **named)
        except ServerHangsError as error:
            raise psycopg.OperationalError(str(error)) from None
        except psycopg.errors.ConnectionTimeout:
            if pulse is not None:
                pulse.record_timeout()
            raise
        connection.pulse, connection.max_wait_s = pulse, max_wait_s
        return connection
