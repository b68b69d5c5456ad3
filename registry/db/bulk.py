"""Bulk statements, and inserts that skip existing rows.

On PostgreSQL many rows travel as one array for each column: a single statement, for
which triggers of statements run once, and which neither SQLAlchemy nor the server
has to read value by value. SQLite, which is in our process, gets them row by row.

A large commit costs this process as much work (rows, arrays, JSON) as the server. So statements
can be compiled first and executed by `background_statements.background_executor`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import cache, lru_cache
from typing import Any, Final, TypeVar
from uuid import UUID

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Row,
    String,
    Table,
    any_,
    bindparam,
    insert,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from registry.db.background_statements import PreparedStatement

T = TypeVar("T")
#: well below SQLite's 32,766 and PostgreSQL's 65,535
PARAMETERS: Final = 2_000


def chunks(values: Sequence[T], size: int = PARAMETERS) -> Iterator[Sequence[T]]:
    """Split values into sequences of at most ``size``, which a statement takes as parameters."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def is_any_of(
    connection: Connection, column: Column[Any], values: Collection[Any]
) -> ColumnElement[bool]:
    """Return the condition that a column has one of these values, at most `PARAMETERS`.

    On PostgreSQL the values are one array parameter: the statement is the same for any number of
    values, so it is compiled and planned once.
    """
    if connection.dialect.name == "sqlite":
        return column.in_(values)
    array = bindparam(None, list(values), postgresql.ARRAY(column.type))
    return column == any_(array)


def insert_if_absent(connection: Connection, table: Table, **values: Any) -> bool:
    """Insert a row unless its key exists; return whether it was inserted.

    The key may also come from a transaction that has just committed.

    An insert that fails would end the transaction on PostgreSQL.
    """
    counted = insert_or_skip(connection, table).execution_options(preserve_rowcount=True)
    return bool(connection.execute(counted, values).rowcount)


def insert_or_skip(connection: Connection, table: Table, *unique: str) -> Any:
    """Return a statement that inserts rows and skips those whose key exists.

    With columns, their unique values count instead of the key.
    """
    return insert_or_skip_for(connection.dialect.name, table, *unique)


@cache
def insert_or_skip_for(dialect: str, table: Table, *unique: str) -> Any:
    """Return the statement of `insert_or_skip` for a dialect's name; it is cached."""
    make = sqlite.insert if dialect == "sqlite" else postgresql.insert
    return make(table).on_conflict_do_nothing(index_elements=unique or None)


def execute_parameters(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return rows as the parameters of a statement: one row itself, or a list of several."""
    return rows[0] if len(rows) == 1 else list(rows)


def insert_rows(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows into a table; all of them name the same columns."""
    prepare_insert(connection, table, rows)()


def prepare_insert(
    connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]
) -> PreparedStatement:
    """Compile the INSERT of `insert_rows`; the caller only executes it."""
    if not rows:
        return _execute_nothing
    if connection.dialect.name == "sqlite" or len(rows) == 1:
        return lambda: _run_statement(connection, insert(table), execute_parameters(rows))
    columns = list(rows[0])
    source, parameters = _unnest_source(connection, table, rows, columns)
    names = ", ".join(columns)
    statement = f"INSERT INTO {table.name} ({names}) SELECT {names} FROM {source}"  # noqa: S608
    return lambda: _run_driver_sql(connection, statement, parameters)


def insert_returning(
    connection: Connection,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    returning: Sequence[str],
    *,
    unless_there: bool = False,
    unique: Sequence[str] = (),
) -> Sequence[Row[Any]]:
    """Insert rows and return some columns of them, in no order.

    With ``unless_there``, rows are skipped whose key, or whose values of the
    ``unique`` columns, exist already.
    """
    if not rows:
        return ()
    if connection.dialect.name == "sqlite":
        statement = insert_or_skip_for("sqlite", table, *unique) if unless_there else insert(table)
        columns = [table.c[name] for name in returning]
        return connection.execute(statement.returning(*columns), execute_parameters(rows)).all()
    columns_given = list(rows[0])
    source, parameters = _unnest_source(connection, table, rows, columns_given)
    names = ", ".join(columns_given)
    conflict = f" ({', '.join(unique)})" if unique else ""
    there = f" ON CONFLICT{conflict} DO NOTHING" if unless_there else ""
    return connection.exec_driver_sql(
        f"INSERT INTO {table.name} ({names}) SELECT {names} FROM {source}{there}"  # noqa: S608
        f" RETURNING {', '.join(returning)}",
        parameters,
    ).all()


def update_rows(
    connection: Connection,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    *,
    keys: Sequence[str] = ("id",),
) -> None:
    """Set columns of the rows that have these keys; all of ``rows`` name the same columns.

    The caller has locked the rows in the required order.
    """
    prepare_update(connection, table, rows, keys=keys)()


def prepare_update(
    connection: Connection,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    *,
    keys: Sequence[str] = ("id",),
) -> PreparedStatement:
    """Compile the UPDATE of `update_rows`; the caller only executes it."""
    if not rows:
        return _execute_nothing
    columns = [name for name in rows[0] if name not in keys]
    if connection.dialect.name == "sqlite" or len(rows) == 1:
        # SQLAlchemy keeps the names of columns for itself.
        statement = update(table).where(*(table.c[key] == bindparam(f"of_{key}") for key in keys))
        changes: dict[str, Any] = {name: bindparam(f"new_{name}") for name in columns}
        given = [
            {f"of_{key}": row[key] for key in keys} | {f"new_{name}": row[name] for name in columns}
            for row in rows
        ]
        return lambda: _run_statement(connection, statement.values(changes), given)
    source, parameters = _unnest_source(connection, table, rows, [*keys, *columns])
    changed = [f"{name} = given.{name}" for name in columns]
    same = " AND ".join(f"{table.name}.{key} = given.{key}" for key in keys)
    text = f"UPDATE {table.name} SET {', '.join(changed)} FROM {source} WHERE {same}"  # noqa: S608
    return lambda: _run_driver_sql(connection, text, parameters)


def update_each(
    connection: Connection, table: Table, changes: Mapping[UUID, Mapping[str, Any]]
) -> None:
    """Update each row of a table by its id with its own values.

    Rows that get equal values share a statement.
    """
    alike: defaultdict[tuple[tuple[str, Any], ...], list[UUID]] = defaultdict(list)
    for key, values in changes.items():
        if values:
            alike[tuple(values.items())].append(key)
    for values_of_all, keys in alike.items():
        for some in chunks(keys):
            which = is_any_of(connection, table.c.id, some)
            connection.execute(update(table).where(which).values(dict(values_of_all)))


def _execute_nothing() -> None:
    """Do nothing: a prepared statement for no rows."""


def _run_statement(connection: Connection, statement: Any, parameters: Any) -> None:
    """Execute a statement of SQLAlchemy with its parameters."""
    connection.execute(statement, parameters)


def _run_driver_sql(connection: Connection, statement: str, parameters: dict[str, str]) -> None:
    """Execute SQL text with parameters, without compiling it again."""
    connection.exec_driver_sql(statement, parameters)


def _unnest_source(
    connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]
) -> tuple[str, dict[str, str]]:
    """Return a FROM item named ``given`` with the rows in order, for PostgreSQL, and parameters."""
    source, processors = _array_source(connection.dialect, table, tuple(columns))
    parameters = {
        name: array_text(
            [row[name] for row in rows] if process is None else [process(row[name]) for row in rows]
        )
        for name, process in processors
    }
    return source, parameters


@lru_cache(maxsize=256)
def _array_source(
    dialect: Dialect, table: Table, columns: tuple[str, ...]
) -> tuple[str, Sequence[tuple[str, Callable[[Any], Any] | None]]]:
    """Return a FROM item of arrays, and each column's name with the conversion of its values."""
    arrays, processors = [], []
    for name in columns:
        kind = table.c[name].type
        # An array of text with a collation of its own has no name.
        element = "text" if isinstance(kind, String) else kind.compile(dialect)
        arrays.append(f"%({name})s::{element}[]")
        processors.append((name, kind.dialect_impl(dialect).bind_processor(dialect)))
    return f"unnest({', '.join(arrays)}) AS given ({', '.join(columns)})", processors


def array_text(values: Sequence[Any]) -> str:
    """Return the text of a PostgreSQL array with these values.

    This takes a fifth of the time that psycopg takes for a list, whose values it inspects.
    """
    return "{" + ",".join([_WRITTEN.get(type(value), _item_text)(value) for value in values]) + "}"


def _quote_item(text: str) -> str:
    """Return a text as a quoted item of a PostgreSQL array."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _item_text(value: Any) -> str:
    """Return a value as an item of a PostgreSQL array: text, bytes, or JSON."""
    if isinstance(value, str):  # a member of an enumeration
        return _quote_item(str(value))
    # The types by which psycopg knows JSON and bytes; to import it here would cost
    # every command.
    if isinstance(value.obj, bytes):
        return _quote_item(f"\\x{value.obj.hex()}")
    return _quote_item(json.dumps(value.obj))


_WRITTEN: Final[Mapping[type, Callable[[Any], str]]] = {
    type(None): lambda _: "NULL",
    UUID: lambda value: value.hex,
    bool: lambda value: "t" if value else "f",
    int: str,
    float: repr,
    str: _quote_item,
    datetime: datetime.isoformat,
    date: date.isoformat,
    Decimal: str,
}
