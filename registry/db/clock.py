"""Time comes from the database alone: several machines write, one clock judges."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, DateTime, Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import FunctionElement
from sqlalchemy.types import TypeDecorator

#: By so little a time that a monitor computes may lie ahead of the database's; SQLite's times
#: are milliseconds.
_MONITOR_AHEAD: Final = timedelta(seconds=1)

# clock_timestamp() moves on while a transaction waits for a lock; now() does not.
_NOW = {
    "sqlite": "SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')",
    "postgresql": "SELECT clock_timestamp()",
}


class UtcDateTime(TypeDecorator[datetime]):
    """Timezone-aware UTC. On SQLite: text of fixed width, so that it sorts."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse naive times; store UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time without a zone: {value.isoformat()}")
        return value.astimezone(UTC)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:
        """SQLite forgets the zone; it was UTC."""
        if value is None:
            return None
        found: datetime = value
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def db_now(connection: Connection) -> datetime:
    """Return the database's time, now."""
    value = connection.exec_driver_sql(_NOW[connection.dialect.name]).scalar_one()
    if isinstance(value, str):
        return datetime.fromisoformat(value).replace(tzinfo=UTC)
    found: datetime = value
    return found.astimezone(UTC)


def earlier(now: datetime, by: datetime | None) -> datetime:
    """Return the earlier of the database's time and another one, if there is one."""
    return now if by is None else min(now, by)


def in_force(written: datetime | None, now: datetime) -> datetime | None:
    """Return a monitor's time if it orders what follows; None if none is written.

    One ahead of ``now`` was written before the clock stepped back: it orders nothing.
    """
    return written if written is not None and written <= now + _MONITOR_AHEAD else None


class UtcNow(FunctionElement[datetime]):
    """The same inside of a statement, where it costs no statement of its own."""

    type = UtcDateTime()
    inherit_cache = True


@compiles(UtcNow, "postgresql")
def _on_postgresql(_element: UtcNow, _compiler: Any, **_: Any) -> str:
    return "clock_timestamp()"


@compiles(UtcNow, "sqlite")
def _on_sqlite(_element: UtcNow, _compiler: Any, **_: Any) -> str:
    # As wide as what `UtcDateTime` writes, so that it sorts among it.
    return "strftime('%Y-%m-%d %H:%M:%f000', 'now')"
