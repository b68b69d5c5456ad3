"""Statements over many rows, and inserts that may find their row there.

On PostgreSQL many rows travel as one array for each column: a single statement, for
which triggers of statements run once, and which neither SQLAlchemy nor the server
has to read value by value. SQLite, which is in our process, is told row by row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar
from uuid import UUID

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    String,
    Table,
    any_,
    bindparam,
    insert,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

T = TypeVar("T")
#: A statement with all that it is given.
Ready = Callable[[], None]
#: well below SQLite's 32,766 and PostgreSQL's 65,535
PARAMETERS: Final = 2_000


def chunks(values: Sequence[T], size: int = PARAMETERS) -> Iterator[Sequence[T]]:
    """Yield the values in runs of at most ``size``."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def among(
    connection: Connection, column: Column[Any], values: Collection[Any]
) -> ColumnElement[bool]:
    """Return the condition that a column is one of these values, at most `PARAMETERS`.

    On PostgreSQL they are one parameter: the statement is the same for any number of
    them, so neither SQLAlchemy nor the server puts it together anew.
    """
    if connection.dialect.name == "sqlite":
        return column.in_(values)
    array = bindparam(None, list(values), postgresql.ARRAY(column.type))
    return column == any_(array)


def insert_if_absent(connection: Connection, table: Table, **values: Any) -> bool:
    """Insert a row unless its key is there, also of a transaction just over; tell whether.

    An insert that fails would end the transaction on PostgreSQL.
    """
    counted = insert_absent(connection, table).execution_options(preserve_rowcount=True)
    return bool(connection.execute(counted, values).rowcount)


def insert_absent(connection: Connection, table: Table, *unique: str) -> Any:
    """Return a statement that inserts rows unless a key, or that of some columns, is there."""
    make = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    return make(table).on_conflict_do_nothing(index_elements=unique or None)


def each(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return rows as a statement is best given them: a single one, as is usual, alone."""
    return rows[0] if len(rows) == 1 else list(rows)


def insert_rows(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows, all of which name the same columns."""
    inserting(connection, table, rows)()


def inserting(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> Ready:
    """Return `insert_rows`, ready to be run: what is left to do is the database's."""
    if not rows:
        return _nothing
    if connection.dialect.name == "sqlite" or len(rows) == 1:
        return lambda: _run(connection, insert(table), each(rows))
    columns = list(rows[0])
    source, parameters = _unnested(connection, table, rows, columns)
    names = ", ".join(columns)
    statement = f"INSERT INTO {table.name} ({names}) SELECT {names} FROM {source}"  # noqa: S608
    return lambda: _run_driver_sql(connection, statement, parameters)


def update_rows(
    connection: Connection,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    *,
    keys: Sequence[str] = ("id",),
    raised: Sequence[str] = (),
) -> None:
    """Set columns of the rows that have these keys; all of ``rows`` name the same columns.

    One is added to the columns that are ``raised``. Who locks in an order has done so.
    """
    updating(connection, table, rows, keys=keys, raised=raised)()


def updating(
    connection: Connection,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    *,
    keys: Sequence[str] = ("id",),
    raised: Sequence[str] = (),
) -> Ready:
    """Return `update_rows`, ready to be run: what is left to do is the database's."""
    if not rows:
        return _nothing
    columns = [name for name in rows[0] if name not in keys]
    if connection.dialect.name == "sqlite" or len(rows) == 1:
        # SQLAlchemy keeps the names of columns for itself.
        statement = update(table).where(*(table.c[key] == bindparam(f"of_{key}") for key in keys))
        changes: dict[str, Any] = {name: bindparam(f"new_{name}") for name in columns}
        changes |= {name: table.c[name] + 1 for name in raised}
        given = [
            {f"of_{key}": row[key] for key in keys} | {f"new_{name}": row[name] for name in columns}
            for row in rows
        ]
        return lambda: _run(connection, statement.values(changes), given)
    source, parameters = _unnested(connection, table, rows, [*keys, *columns])
    changed = [f"{name} = given.{name}" for name in columns]
    changed += [f"{name} = {table.name}.{name} + 1" for name in raised]
    same = " AND ".join(f"{table.name}.{key} = given.{key}" for key in keys)
    text = f"UPDATE {table.name} SET {', '.join(changed)} FROM {source} WHERE {same}"  # noqa: S608
    return lambda: _run_driver_sql(connection, text, parameters)


def _nothing() -> None:
    """Do nothing, as there are no rows."""


def _run(connection: Connection, statement: Any, parameters: Any) -> None:
    connection.execute(statement, parameters)


def _run_driver_sql(connection: Connection, statement: str, parameters: dict[str, str]) -> None:
    connection.exec_driver_sql(statement, parameters)


def _unnested(
    connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]
) -> tuple[str, dict[str, str]]:
    """Return the rows as a source of that order for PostgreSQL, called given, and parameters."""
    arrays, parameters = [], {}
    for name in columns:
        values: list[Any] = [row[name] for row in rows]
        kind = table.c[name].type
        process = kind.dialect_impl(connection.dialect).bind_processor(connection.dialect)
        if process is not None:
            values = [process(value) for value in values]
        # An array of text with a collation of its own has no name.
        element = "text" if isinstance(kind, String) else kind.compile(connection.dialect)
        arrays.append(f"%({name})s::{element}[]")
        parameters[name] = array_text(values)
    return f"unnest({', '.join(arrays)}) AS given ({', '.join(columns)})", parameters


def array_text(values: Sequence[Any]) -> str:
    """Return values as PostgreSQL reads an array.

    It is a fifth of the work that psycopg has with a list, which it looks at value by value.
    """
    return "{" + ",".join([_WRITTEN.get(type(value), _other)(value) for value in values]) + "}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _other(value: Any) -> str:
    if isinstance(value, str):  # a member of an enumeration
        return _quoted(str(value))
    # What psycopg is told that a value is JSON by; to import it here would cost every command.
    return _quoted(json.dumps(value.obj))


_WRITTEN: Final[Mapping[type, Callable[[Any], str]]] = {
    type(None): lambda _: "NULL",
    UUID: lambda value: value.hex,
    bool: lambda value: "t" if value else "f",
    int: str,
    float: repr,
    str: _quoted,
    datetime: datetime.isoformat,
}
