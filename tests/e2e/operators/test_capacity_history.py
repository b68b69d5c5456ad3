"""Capacity over time, by REST and on the command line."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime, timedelta

import pytest

from registry import Registry
from tests.capacity_days import record_days
from tests.docs.markdown import ROOT, split
from tests.e2e.conftest import Api, Fuga
from tests.raw_sql import RawSql
from tests.register import add_host, take_lease

SINCE = {"since": "2024-01-01T00:00:00Z"}
GUIDE = ROOT / "docs" / "operators" / "capacity.md"


def test_operators_read_hours_and_days_in_pages(api: Api, raw: RawSql) -> None:
    now = api.registry.now()
    record_days(raw, now, days=5, without=frozenset())
    since = (now - timedelta(days=3)).strftime("%Y-%m-%dT00:00:00Z")
    query = {"since": since, "resource": "vcpus", "limit": 50}

    first = api.operator.get("/v1/capacity/history", params=query).json()
    rest = api.operator.get("/v1/capacity/history", params={**query, "cursor": first["next"]})
    days = api.operator.get("/v1/capacity/history", params={**query, "step": "day"}).json()

    hours = [*first["items"], *rest.json()["items"]]
    assert len(first["items"]) == 50
    assert rest.json()["next"] is None
    assert [each["at"] for each in hours] == sorted({each["at"] for each in hours})
    assert len(hours) == 3 * 24
    assert len(days["items"]) == 3
    assert days["items"][2] == {
        "at": f"{(now - timedelta(days=1)):%Y-%m-%d}T00:00:00Z",
        "resource": "vcpus",
        "samples": 1440,
        "capacity_mean": 1600,
        "capacity_max": 1600,
        "in_service_mean": 1600,
        "in_service_max": 1600,
        "committed_mean": 1010,
        "committed_max": 1018,
        "used_mean": 252,
        "used_max": 252,
        "waiting_mean": 0,
        "waiting_max": 16,
    }


@pytest.mark.parametrize(
    ("whom", "path", "params", "status"),
    [
        ("tenant_a", "history", SINCE, 403),
        ("tenant_a", "trends", {}, 403),
        ("operator", "history", {}, 422),
        ("operator", "history", {"since": "2026-02-30T00:00:00Z"}, 422),
        ("operator", "history", {**SINCE, "until": "2027-01-01T00:00:00Z"}, 422),
        ("operator", "history", {**SINCE, "host_class": "gpu=no"}, 422),
        ("operator", "history", {**SINCE, "resource": "gold"}, 422),
        ("operator", "history", {**SINCE, "step": "week"}, 422),
        ("operator", "trends", {"days": "732"}, 422),
        ("operator", "trends", {"host_class": "a b"}, 422),
    ],
)
def test_what_is_not_known_or_not_for_tenants_is_refused(
    api: Api, whom: str, path: str, params: dict[str, str], status: int
) -> None:
    answer = getattr(api, whom).get(f"/v1/capacity/{path}", params=params)

    assert answer.status_code == status, answer.text


def test_the_command_prints_the_example_of_the_guide(
    register: Registry, raw: RawSql, fuga: Fuga
) -> None:
    record_days(raw, register.now())
    guide, _ = split(GUIDE.read_text("utf-8"))
    (shown,) = (block.text for block in guide if block.text.startswith("$ fuga capacity --trend\n"))
    command, *expected = shown.strip().splitlines()

    printed = fuga(*command.removeprefix("$ fuga ").split())

    assert [line.rstrip() for line in printed.strip().splitlines()] == expected


def test_a_resource_is_a_table_with_gaps_of_80_columns(
    register: Registry, raw: RawSql, fuga: Fuga
) -> None:
    now = register.now()
    record_days(raw, now)

    lines = fuga("capacity", "--trend", "--resource", "vcpus").splitlines()

    assert max(map(len, lines[:33])) <= 80
    gap = next(line for line in lines if line.startswith(f"{(now - timedelta(days=20)):%Y-%m-%d}"))
    assert set(gap.split()[1:]) == {"-"}
    yesterday = lines[31].split()
    assert yesterday[1:4] == ["1,600", "1,010", "1,018"]
    assert yesterday[5:] == ["63%", "252", "0"]


def test_records_are_csv_and_json(register: Registry, raw: RawSql, fuga: Fuga) -> None:
    record_days(raw, register.now(), days=3, without=frozenset())
    words = ("capacity", "--trend", "--days", "7", "--resource", "vcpus")

    rows = list(csv.DictReader(fuga(*words, "-o", "csv").splitlines()))
    document = json.loads(fuga(*words, "-o", "json"))

    assert [row["committed_mean"] for row in rows] == ["970", "989", "1010"]
    assert len(document["items"]) == 3
    assert document["trends"][0]["outlook"] == "too_short"


def test_hours_of_a_class_are_shown_as_they_are_sampled(register: Registry, fuga: Fuga) -> None:
    add_host(register, "h1", labels=("zone=x",))
    lease = take_lease(register)
    assert "no history yet" in fuga("capacity", "--trend")
    register.capacity_history.sample(lease)

    words = ("capacity", "--trend", "--days", "1", "--resource", "vcpus", "--class", "zone=x")
    table = fuga(*words)

    assert f"{datetime.now(UTC):%Y-%m-%d}" in table
    assert "16" in table.split()
    assert "too short" in table
    assert "zone=x" in fuga("capacity", "--trend")
    assert "zone=x" in fuga(*words[:-1], "zone=y", status=2)


def test_one_question_at_a_time(fuga: Fuga) -> None:
    assert "--trend" in fuga("capacity", status=2)
    assert "--trend" in fuga("capacity", "small", "--trend", status=2)
