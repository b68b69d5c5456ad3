"""The database's clock, which alone decides, as several machines write."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, DateTime, Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import FunctionElement
from sqlalchemy.types import TypeDecorator

#: How far a time computed by a monitor may lie ahead of the database's, as SQLite's times are
#: in milliseconds.
_MONITOR_AHEAD: Final = timedelta(seconds=1)

# clock_timestamp() moves on while a transaction waits for a lock; now() does not.
_NOW = {
    "sqlite": "SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')",
    "postgresql": "SELECT clock_timestamp()",
}


class UtcDateTime(TypeDecorator[datetime]):
    """Timezone-aware UTC; on SQLite it is stored as text of fixed width, which sorts."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert a time to UTC to store it; refuse times without a zone."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time without a zone: {value.isoformat()}")
        return value.astimezone(UTC)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:
        """Return a stored time as UTC; SQLite stores it without its zone."""
        if value is None:
            return None
        found: datetime = value
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def db_now(connection: Connection) -> datetime:
    """Return the present time of the database's clock."""
    value = connection.exec_driver_sql(_NOW[connection.dialect.name]).scalar_one()
    if isinstance(value, str):
        return datetime.fromisoformat(value).replace(tzinfo=UTC)
    found: datetime = value
    return found.astimezone(UTC)


def earlier_time(now: datetime, by: datetime | None) -> datetime:
    """Return the earlier of ``now`` and ``by``; None counts as later."""
    return now if by is None else min(now, by)


def valid_poll_time(written: datetime | None, now: datetime) -> datetime | None:
    """Return a monitor's stored time, or None if it lies ahead of ``now``.

    Such a time was written before the clock stepped back, and cannot order polls.
    """
    return written if written is not None and written <= now + _MONITOR_AHEAD else None


class UtcNow(FunctionElement[datetime]):
    """The database's time as an SQL expression, which saves a statement."""

    type = UtcDateTime()
    inherit_cache = True


@compiles(UtcNow, "postgresql")
def _compile_for_postgresql(_element: UtcNow, _compiler: Any, **_: Any) -> str:
    """Return PostgreSQL's expression for the time of its clock."""
    return "clock_timestamp()"


@compiles(UtcNow, "sqlite")
def _compile_for_sqlite(_element: UtcNow, _compiler: Any, **_: Any) -> str:
    """Return SQLite's expression for the time, as wide as what `UtcDateTime` writes."""
    # As wide as what `UtcDateTime` writes, so that it sorts among it.
    return "strftime('%Y-%m-%d %H:%M:%f000', 'now')"
