"""Many rows in one statement hold what they hold one by one, and statements keep their order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, func, select
from sqlalchemy.exc import DBAPIError

from registry.audit.events import event_row
from registry.db.background_statements import background_executor
from registry.db.bulk import insert_rows, prepare_insert, update_rows
from registry.db.engine import Database
from registry.db.ids import uuid7
from registry.db.schema import events, tenants
from tests.register import now

AWKWARD = [
    "plain",
    "",
    " ",
    "NULL",
    "null",
    'a "quoted" word',
    "a \\ stroke, and \\\\ two",
    "{braces}, commas",
    "line\nbreak\ttab",
    'it\'s {"a": [1]}',
    "%s %(name)s %%",
    "Ünïcödé ✓ 語",
]


@pytest.fixture
def connection(register_url: str) -> Iterator[Connection]:
    database = Database(register_url)
    with database.write_and_roll_back() as connection:
        yield connection
    database.close()


def an_event(text: str | None, number: int) -> dict[str, Any]:
    data = {"text": text, "nested": {"list": [text, number, 1.5, None, True]}}
    row = event_row(now(), "test", "kind", "host", number, reason=text, data=data)
    return row | {"tenant": None if number % 2 else "a"}


def told(connection: Connection, after: int) -> list[Any]:
    columns = [column for column in events.c if column.name != "id"]
    query = select(*columns).where(events.c.id > after).order_by(events.c.id)
    return [tuple(row) for row in connection.execute(query)]


def last_event(connection: Connection) -> int:
    return connection.scalar(select(func.coalesce(func.max(events.c.id), 0))) or 0


def test_rows_inserted_together_hold_what_they_hold_one_by_one(connection: Connection) -> None:
    rows = [an_event(text, n) for n, text in enumerate([*AWKWARD, None])]
    start = last_event(connection)
    for row in rows:
        insert_rows(connection, events, [row])
    between = last_event(connection)

    insert_rows(connection, events, rows)

    one_by_one = told(connection, start)[: len(rows)]
    assert told(connection, between) == one_by_one
    assert [row[events.c.keys().index("reason") - 1] for row in one_by_one] == [*AWKWARD, None]


def test_rows_updated_together_hold_what_they_are_told(connection: Connection) -> None:
    created_at = now()
    rows = [
        {
            "id": uuid7(),
            "name": f"t{n}",
            "weight": 1.0,
            "created_at": created_at,
            "is_group": bool(n % 2),
        }
        for n in range(4)
    ]
    insert_rows(connection, tenants, rows)
    weights = (0.1, 1e-300, 123456.789, 2.0)

    update_rows(
        connection,
        tenants,
        [
            {"id": row["id"], "weight": weight, "is_group": not row["is_group"]}
            for row, weight in zip(rows, weights, strict=True)
        ],
    )

    query = select(tenants.c.id, tenants.c.weight, tenants.c.is_group, tenants.c.created_at)
    found = {row.id: tuple(row)[1:] for row in connection.execute(query)}
    expected = {
        row["id"]: (weight, not row["is_group"], created_at)
        for row, weight in zip(rows, weights, strict=True)
    }
    assert {key: found[key] for key in expected} == expected


def test_statements_are_done_in_their_order(connection: Connection) -> None:
    start = last_event(connection)

    with background_executor(connection) as later:
        for n in range(20):
            later(prepare_insert(connection, events, [an_event(text, n) for text in ("x", "y")]))

    numbers = [row[events.c.keys().index("subject_id") - 1] for row in told(connection, start)]
    assert numbers == [str(n) for n in range(20) for _ in "xy"]


def test_after_one_that_fails_none_is_run(connection: Connection) -> None:
    run: list[int] = []

    def fail() -> None:
        connection.exec_driver_sql("SELECT nothing FROM nowhere")

    def hand_over() -> None:
        with background_executor(connection) as later:
            later(lambda: run.append(1))
            later(fail)
            later(lambda: run.append(2))

    with pytest.raises(DBAPIError, match="nowhere"):
        hand_over()

    assert run == [1]
