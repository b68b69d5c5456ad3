"""Rows have ids that rise with time, and the values of records by the names of their fields."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
from sqlalchemy import JSON, Column, Integer, MetaData, String, Table, create_engine, insert, select

from registry.db.ids import uuid7
from registry.db.row_conversion import record_of, row_of
from registry.lifecycle import HostHealth

TABLE = Table(
    "things",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("health", String(20)),
    Column("before", String(20)),
    Column("labels", JSON),
    Column("hosts", JSON(none_as_null=True)),
    Column("count", Integer),
    Column("of_no_field", String(20)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    id: int
    health: HostHealth
    before: HostHealth | None
    labels: tuple[str, ...]
    hosts: tuple[str, ...] | None
    count: int  # a row is a tuple, which has a method of this name
    used: int = 7


THING = Thing(id=1, health=HostHealth.UP, before=None, labels=("a", "b"), hosts=None, count=3)


def read_back(row: dict[str, Any], **others: Any) -> Thing:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        TABLE.metadata.create_all(connection)
        connection.execute(insert(TABLE).values(row))
        return record_of(Thing, connection.execute(select(TABLE)).one(), **others)


def test_a_record_is_what_it_was_after_a_row():
    row = row_of(TABLE, THING, of_no_field="x")

    assert (row["health"], row["labels"], row["of_no_field"]) == ("up", ["a", "b"], "x")
    assert "used" not in row
    assert read_back(row) == THING


def test_what_is_given_besides_goes_before_the_column():
    assert read_back(row_of(TABLE, THING, count=5), health=HostHealth.DOWN, used=1) == Thing(
        id=1, health=HostHealth.DOWN, before=None, labels=("a", "b"), hosts=None, count=5, used=1
    )


def test_a_field_without_a_column_is_missed_at_once():
    @dataclass(frozen=True, kw_only=True)
    class More(Thing):
        unheard_of: int

    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        TABLE.metadata.create_all(connection)
        connection.execute(insert(TABLE).values(row_of(TABLE, THING)))
        row = connection.execute(select(TABLE)).one()

    with pytest.raises(TypeError, match="unheard_of"):
        record_of(More, row)


def test_ids_are_uuids_of_version_7_with_the_time_in_front() -> None:
    before = time.time_ns() // 1_000_000
    key = uuid7()

    assert key.version == 7
    assert key.variant == "specified in RFC 4122"
    assert -1 <= (key.int >> 80) - before < 60_000


def test_ids_of_one_process_rise() -> None:
    keys = [uuid7() for _ in range(20_000)]

    assert keys == sorted(set(keys))


def test_ids_rise_when_the_clock_is_set_back() -> None:
    first = uuid7()
    with mock.patch("registry.db.ids.time.time_ns", return_value=0):
        second = uuid7()

    assert second > first


def test_ids_of_threads_never_meet() -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda _: uuid7(), range(20_000)))

    assert len(set(keys)) == len(keys)
