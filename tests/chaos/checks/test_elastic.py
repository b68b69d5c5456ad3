"""The checker finds what is wrong with elastic requests and closed months, and else nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from registry import Registry
from registry.requests import Request
from tests.chaos.checks.elastic import check_elastic
from tests.chaos.checks.proofs import check_months
from tests.integration.moves.test_room import DecidesHere, run
from tests.raw_sql import RawSql, raw_sql
from tests.register import add_host, add_request, add_tenant, add_vm_type, run_vm
from tests.servers.postgres import TEMPLATE, PostgresServer

pytestmark = pytest.mark.postgresql


@dataclass
class World:
    """Tenant b's request for 2 VMs has filled two hosts with borrowed ones; tenant a waits."""

    raw: RawSql
    registry: Registry
    elastic: Request
    record: list[dict[str, Any]]

    def rules(self) -> set[str]:
        return {each.rule for each in check_elastic(self.raw.rows, self.record)}


@pytest.fixture(scope="module")
def _shared_world(postgres: PostgresServer) -> Iterator[World]:
    with postgres.database(template=TEMPLATE) as url, raw_sql(url) as raw:
        registry = Registry.connect(url)
        for name in ("h1", "h2"):
            add_host(registry, name, vcpus=4, memory_mib=16_384)
        add_vm_type(registry, vcpus=1, memory_mib=1024)
        for tenant in ("a", "b"):
            add_tenant(registry, tenant)
        elastic = add_request(registry, 2, tenant="b", name="sweep", max_count=20)
        for at in (0, 60):
            run(registry, at, decider=DecidesHere())
        for vm in registry.vms.list(request_id=elastic.id).items:
            run_vm(registry, vm.assignment_id)
        add_request(registry, 6, name="web")
        run(registry, 120, decider=DecidesHere(), spot_grace_s=60)
        record = [
            {"what": "asking", "name": "sweep", "count": 2, "max_count": 20},
            {"what": "accepted", "name": "sweep", "id": str(elastic.id)},
        ]
        yield World(raw=raw, registry=registry, elastic=elastic, record=record)
        registry.close()


@pytest.fixture
def world(_shared_world: World) -> Iterator[World]:
    """One that is whole again afterwards."""
    whole, record = _shared_world, list(_shared_world.record)
    whole.raw.run("BEGIN")
    yield whole
    whole.raw.run("ROLLBACK")
    whole.record[:] = record


def test_nothing_is_found_where_borrowed_vms_end_as_they_may(world: World) -> None:
    ending = world.raw.value("SELECT count(*) FROM spot_preemptions")

    assert (ending, world.rules()) == (4, set())


@pytest.mark.parametrize(
    ("damage", "rules"),
    [
        ("UPDATE requests SET count = 3 WHERE name = 'sweep'", {"wrong count", "lost bounds"}),
        (
            "UPDATE requests SET max_count = 7 WHERE name = 'sweep'",
            {"borrows too many", "lost bounds"},
        ),
        (
            "UPDATE vms SET borrowed = true WHERE name = 'web-1'",
            {"borrowed VM without a place", "wrong count", "borrows too many"},
        ),
        (
            "INSERT INTO events (at, actor, kind, subject_type, subject_id, from_state, event,"
            " to_state, data) SELECT now(), 'x', 'spot_ending', 'vm', id::text, 'ending', 'due',"
            " 'gone', '{}' FROM vms WHERE name = 'sweep-1'",
            {"ordinary VM ended"},
        ),
        # The taker has two VMs more than the round thought, and the borrower two fewer.
        (
            "UPDATE vms SET tenant_id = (SELECT id FROM tenants WHERE name = 'a')"
            " WHERE name LIKE 'sweep-%' AND NOT borrowed",
            {"unfair end"},
        ),
    ],
)
def test_what_is_wrong_with_an_elastic_request(world: World, damage: str, rules: set[str]) -> None:
    world.raw.run(damage)

    assert world.rules() == rules


def test_bounds_that_a_tenant_set_and_that_are_lost(world: World) -> None:
    scaled = {"what": "scaled", "id": str(world.elastic.id), "count": 2, "max_count": 19}
    world.record.append(scaled)

    assert world.rules() == {"lost bounds"}


def test_closed_months_are_those_that_operators_were_told(postgres: PostgresServer) -> None:
    months = ("2001-11", "2001-12", "2002-01", "2002-03")
    shown = [
        {"what": "closed", "number": number, "entry": f"month {month}"}
        for number, month in enumerate(months, start=1)
    ]

    def found(raw: RawSql, record: list[dict[str, Any]]) -> list[str]:
        return [each.subject for each in check_months(raw.rows, record)]

    with postgres.database(template=TEMPLATE) as url, raw_sql(url) as raw:
        for number, month in enumerate(months, start=1):
            raw.run(
                "INSERT INTO closed_usage (number, kind, month, author, created_at, salt, previous,"
                f" content, link) VALUES ({number}, 'month', '{month}-01', 'x', now(), '', '', '',"
                " '')"
            )
            if number == 3:
                assert found(raw, shown[:3]) == []
                assert found(raw, shown[:2]) == ["entry 3"]
        assert found(raw, shown) == ["2002-03"]  # a month before it is not closed
