"""Whether the connections that processes keep fit the database server's limit.

A process keeps up to `KEPT` connections, half of them to read and half to write. While many
threads are at work at once it opens more, which close again as they are done.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from sqlalchemy import Connection, func, select

from registry.admin.processes import LATE_S
from registry.db.clock import db_now
from registry.db.engine import POOL_SIZE
from registry.db.schema import processes

#: Connections kept by one process: it has a pool for reads and one for writes.
KEPT: Final = 2 * POOL_SIZE

_GIVEN: Final = """
    SELECT current_setting('max_connections')::int
        - current_setting('superuser_reserved_connections')::int
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseConnections:
    """The connections that a server allows, and those that fuga's processes keep."""

    given: int  #: connections for ordinary users
    processes: int  #: control centres, monitors and workers with a recent heartbeat

    @property
    def kept(self) -> int:
        """Connections that these processes and one API keep to the database."""
        return KEPT * (self.processes + 1)


def database_connections(connection: Connection) -> DatabaseConnections | None:
    """Return the database server's connection limit and fuga's processes; None for SQLite."""
    if connection.dialect.name != "postgresql":
        return None
    heard = processes.c.heartbeat_at >= db_now(connection) - timedelta(seconds=LATE_S)
    return DatabaseConnections(
        given=connection.exec_driver_sql(_GIVEN).scalar_one(),
        processes=connection.execute(select(func.count()).where(heard)).scalar_one(),
    )
