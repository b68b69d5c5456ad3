"""Checks that an SQLite database contains the objects of our migrations and no others.

A file may come from anywhere: a trigger or a view in it would run inside our own
transactions. What belongs there is learned from the migrations themselves, run in memory.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from alembic import command
from sqlalchemy import Connection, create_engine

from registry.admin.revisions import (
    FIRST_BEFORE_MERGE,
    LAST_BEFORE_MERGE,
    alembic_config,
    first_revision,
    known_revisions,
)
from registry.db.schema import metadata
from registry.errors import ForeignSchemaObjectsError
from registry.ledger.triggers import TRIGGERS

_MADE: Final = "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master"
_REVISION: Final = "SELECT version_num FROM alembic_version"
#: Prefix of SQLite's own tables and indexes. A handmade trigger may have such a name.
_INTERNAL: Final = "sqlite_"
_RUNS: Final = frozenset({"trigger", "view"})


@dataclass(frozen=True, slots=True)
class _SchemaObject:
    """A table, index, trigger or view of an SQLite database."""

    kind: str
    name: str
    table: str
    sql: str  #: with single blanks
    columns: tuple[str, ...]  #: the columns of a table, with generated ones marked

    @property
    def name_and_kind(self) -> str:
        """The kind and name of the object as text, with the table of a trigger or index."""
        where = f" on {self.table}" if self.kind in {"trigger", "index"} else ""
        return f"{self.kind} {self.name!r}{where}"


_Schema = Mapping[tuple[str, str], _SchemaObject]


def foreign_objects_in(connection: Connection) -> list[str]:
    """Return a phrase for each object of an SQLite database that our migrations do not make.

    The list is empty for a database without tables, for one of a newer version, and on PostgreSQL,
    where objects have owners.
    """
    if connection.dialect.name != "sqlite":
        return []
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)  # noqa: S101 - for the type checker
    found = _read_sqlite_schema(raw)
    revision = _schema_revision(raw, found)
    if revision is None:
        return [made.name_and_kind for made in found.values()]
    return (
        list(_foreign_objects(found, _expected_schema(revision)))
        if revision in known_revisions()
        else []
    )


def schema_differences(connection: sqlite3.Connection) -> list[str]:
    """Return a phrase for each foreign and each missing object of an SQLite file."""
    connection.execute("PRAGMA trusted_schema = OFF")
    found = _read_sqlite_schema(connection)
    revision = _schema_revision(connection, found)
    if revision is None or revision not in known_revisions():
        problem = f"its revision is {revision!r:.40}, which this version of fuga does not know"
        if revision is not None and FIRST_BEFORE_MERGE <= revision < first_revision():
            problem += f": restore it with commit {LAST_BEFORE_MERGE}, and upgrade it there"
        return [problem]
    expected = _expected_schema(revision)
    lacking = [
        f"no {made.name_and_kind}"
        for key, made in expected.items()
        if key not in found and not made.name.startswith(_INTERNAL)
    ]
    return [*_foreign_objects(found, expected), *lacking]


def refuse_foreign_objects(connection: Connection) -> None:
    """Raise `ForeignSchemaObjectsError` for foreign objects in a database at head.

    Only names are compared, which is fast; `foreign_objects_in` also compares definitions.
    """
    if connection.dialect.name != "sqlite":
        return
    known = metadata.tables.keys() | {"alembic_version"} | TRIGGERS["sqlite"].keys()
    rows = connection.exec_driver_sql("SELECT type, name FROM sqlite_master WHERE type != 'index'")
    strangers = [
        f"{kind} {name!r}, which fuga does not make"
        for kind, name in rows
        if name not in known and not (kind == "table" and name.startswith(_INTERNAL))
    ]
    if strangers:
        raise ForeignSchemaObjectsError(strangers)


def _schema_revision(connection: sqlite3.Connection, found: _Schema) -> str | None:
    """Return the revision of Alembic in an SQLite database, or None."""
    if ("table", "alembic_version") not in found:
        return None
    (revision,) = connection.execute(_REVISION).fetchone() or (None,)
    return None if revision is None else str(revision)


def _foreign_objects(found: _Schema, expected: _Schema) -> Iterator[str]:
    """Yield a phrase for each found object of the schema that our migrations do not make so."""
    for key, made in found.items():
        if made.kind in {"table", "index"} and made.name.startswith(_INTERNAL):
            continue
        if key not in expected:
            yield f"{made.name_and_kind}, which fuga does not make"
        elif not _has_same_definition(made, expected[key]):
            yield f"{made.name_and_kind}, which fuga makes otherwise"


def _has_same_definition(made: _SchemaObject, ours: _SchemaObject) -> bool:
    """Return whether an object of the schema is defined as our migrations define it."""
    if made.sql == ours.sql:
        return True
    if made.kind in _RUNS:
        return False
    # Versions of SQLAlchemy may word a table otherwise, and columns that were added later stand
    # last; its columns are what they are.
    ordinary = made.kind == "index" or made.sql.upper().startswith("CREATE TABLE ")
    return ordinary and (made.table, made.columns) == (ours.table, ours.columns)


def _read_sqlite_schema(connection: sqlite3.Connection) -> _Schema:
    """Return the tables, indexes, triggers and views of an SQLite database."""
    found = {}
    for kind, name, table, sql in connection.execute(_MADE).fetchall():
        columns: tuple[str, ...] = ()
        if kind == "table":
            quoted = str(name).replace('"', '""')
            rows = connection.execute(f'PRAGMA table_xinfo("{quoted}")').fetchall()
            columns = tuple(
                sorted(f"{row[1]}{'' if row[6] == 0 else ' generated'}" for row in rows)
            )
        made = _SchemaObject(str(kind), str(name), str(table), " ".join(str(sql).split()), columns)
        found[made.kind, made.name] = made
    return found


@cache
def _expected_schema(revision: str) -> _Schema:
    """Return the objects that our migrations make up to a revision, in a new database in memory."""
    engine = create_engine("sqlite://")
    try:
        with engine.begin() as connection:
            command.upgrade(alembic_config(connection), revision)
            raw = connection.connection.driver_connection
            assert isinstance(raw, sqlite3.Connection)  # noqa: S101 - for the type checker
            return _read_sqlite_schema(raw)
    finally:
        engine.dispose()
