"""Raw SQL around the code, for tests: on SQLite as on PostgreSQL, each statement committed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from sqlalchemy import make_url

#: what a database raises when a constraint or trigger refuses
REFUSED = (sqlite3.IntegrityError, psycopg.IntegrityError)

Row = dict[str, Any]


class RawSql:
    """A connection that knows nothing of our code; on SQLite not even foreign keys are on.

    Parameters are marked by ``?``.
    """

    def __init__(self, url: str) -> None:
        parsed = make_url(url)
        self.dialect = parsed.get_backend_name()
        self._connection: Any
        if self.dialect == "sqlite":
            self._connection = sqlite3.connect(str(parsed.database), isolation_level=None)
            self._connection.row_factory = sqlite3.Row
        else:
            words: dict[str, Any] = parsed.translate_connect_args(
                username="user", database="dbname"
            )
            words |= parsed.query
            self._connection = psycopg.connect(**words, autocommit=True, row_factory=dict_row)

    def close(self) -> None:
        self._connection.close()

    def run(self, sql: str, *parameters: Any) -> None:
        self._execute(sql, parameters)

    def script(self, sql: str) -> None:
        """Run several statements."""
        if self.dialect == "sqlite":
            self._connection.executescript(sql)
        else:
            self._connection.execute(sql)

    def rows(self, sql: str, *parameters: Any) -> list[Row]:
        return [dict(row) for row in self._execute(sql, parameters).fetchall()]

    def value(self, sql: str, *parameters: Any) -> Any:
        """Return the first column of the first row."""
        return next(iter(self.rows(sql, *parameters)[0].values()))

    def insert(self, table: str, row: Row) -> None:
        marks = ", ".join("?" * len(row))
        self.run(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", *row.values())

    def _execute(self, sql: str, parameters: tuple[Any, ...]) -> Any:
        if self.dialect == "sqlite":
            return self._connection.execute(sql, parameters)
        # What JSON columns gave as values goes back as JSON.
        given = [Jsonb(each) if isinstance(each, dict | list) else each for each in parameters]
        return self._connection.execute(sql.replace("?", "%s"), given or None)

    # ---- what the two say differently ----------------------------------------

    def key(self, key: UUID) -> Any:
        """Return an id as the database holds it."""
        return key.hex if self.dialect == "sqlite" else key

    def new_key(self) -> Any:
        return self.key(uuid4())

    @property
    def fresh_key(self) -> str:
        """An expression: a new id."""
        return "lower(hex(randomblob(16)))" if self.dialect == "sqlite" else "gen_random_uuid()"

    def before(self, time: str, length: str) -> str:
        """Return an expression: so long before a time, which is a column or ``now``."""
        if self.dialect == "sqlite":
            time = "'now'" if time == "now" else time
            return f"strftime('%Y-%m-%d %H:%M:%f000', {time}, '-{length}')"
        time = "clock_timestamp()" if time == "now" else time
        return f"{time} - interval '{length}'"

    def drop_trigger(self, name: str, table: str) -> None:
        on = "" if self.dialect == "sqlite" else f" ON {table}"
        self.run(f"DROP TRIGGER {name}{on}")

    def unguarded(self) -> None:
        """From now on nothing refuses: no triggers, no foreign keys, no second index."""
        if self.dialect == "sqlite":
            for row in self.rows("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
                self.run(f"DROP TRIGGER {row['name']}")
        else:
            self.run("SET session_replication_role = replica")
        self.run("DROP INDEX uq_assignments_vm_id_place")


@contextmanager
def raw_sql(url: str) -> Iterator[RawSql]:
    """Open raw SQL on a register center, for a block."""
    connection = RawSql(url)
    try:
        yield connection
    finally:
        connection.close()
