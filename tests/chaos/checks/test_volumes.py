"""The checker finds what is wrong with volumes, and nothing in what is whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from registry import Registry
from tests.chaos.checks.volumes import check_volumes
from tests.chaos.findings import AttachedDisks, HostSeen
from tests.chaos.guests import serial_of, volume_file
from tests.integration.ledger.test_volumes import a_volume, attach
from tests.raw_sql import RawSql, raw_sql
from tests.register import a_cluster, running
from tests.servers.postgres import TEMPLATE, PostgresServer

pytestmark = pytest.mark.postgresql


@dataclass
class World:
    """A VM with one volume, on which its guest counted to 2."""

    raw: RawSql
    volume: str
    domain: str
    host: HostSeen
    record: list[dict[str, Any]]

    def rules(self) -> set[str]:
        return {each.rule for each in check_volumes(self.raw.rows, [self.host], self.record)}

    def attached(self, **places: frozenset[str]) -> None:
        whole = self.host.attached[self.domain]
        self.host = replace(self.host, attached={self.domain: replace(whole, **places)})


@pytest.fixture(scope="module")
def _shared_world(postgres: PostgresServer) -> Iterator[World]:
    with postgres.database(template=TEMPLATE) as url, raw_sql(url) as raw:
        registry = Registry.connect(url)
        (host,) = a_cluster(registry)
        build = running(registry, host)
        volume = a_volume(registry)
        attach(registry, volume, build)
        serials, domain = frozenset({serial_of(volume.id)}), f"fuga-{build.vm_id}"
        seen = HostSeen(
            name=host.name,
            domains={domain: "running"},
            volumes=frozenset({volume_file(volume.id)}),
            disks={volume_file(volume.id): [0, 1, 2]},
            attached={domain: AttachedDisks(live=serials, persistent=serials, opened=serials)},
        )
        record = [
            {"what": "volume", "id": str(volume.id), "name": "data"},
            {"what": "volume counted", "serial": serial_of(volume.id), "numbers": [0, 1, 2]},
        ]
        yield World(raw, str(volume.id), domain, seen, record)
        registry.close()


@pytest.fixture
def world(_shared_world: World) -> Iterator[World]:
    """One that is whole again afterwards."""
    _shared_world.raw.run("BEGIN")
    yield replace(_shared_world, record=list(_shared_world.record))
    _shared_world.raw.run("ROLLBACK")


def _count(numbers: list[int]) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.host = replace(world.host, disks={volume_file(world.volume): numbers})

    return change


def _note(what: str, **values: Any) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.record.append({"what": what, "id": world.volume, **values})

    return change


def _lack(place: str) -> Callable[[World], None]:
    return lambda world: world.attached(**{place: frozenset()})


def _set(values: str) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.raw.run(f"UPDATE volumes SET {values}")

    return change


_FREE = "vm_id = NULL, assignment_id = NULL"


@pytest.mark.parametrize(
    ("damage", "rules"),
    [
        (lambda world: None, set()),
        (_count([0, 1, 2, 3]), set()),  # the last one was not said yet
        (_count([0, 1]), {"lost writes on a volume"}),
        (_count([]), {"lost writes on a volume"}),
        (_count([0, -1, 2]), {"gap on a volume"}),
        (_count([1, 2, 3]), {"gap on a volume"}),
        (_lack("live"), {"torn attachment"}),
        (_lack("persistent"), {"torn attachment"}),
        (_lack("opened"), {"torn attachment"}),
        (_set(f"state = 'available', {_FREE}"), {"torn attachment"}),
        (_set("state = 'detaching'"), {"torn attachment", "unfinished volume"}),
        (_set("bound_vm_id = vm_id"), {"bound volume"}),
        (_note("volume removed"), {"lost volume"}),
        (
            lambda world: world.record.append({"what": "volume", "id": "0", "name": "other"}),
            {"lost volume"},
        ),
        (lambda world: world.record.pop(0), {"unknown volume"}),
        (
            _note("volume fault", fault="dirty volume", serial="0", said="VM x found it so"),
            {"dirty volume"},
        ),
    ],
)
def test_what_is_wrong_with_volumes(
    world: World, damage: Callable[[World], None], rules: set[str]
) -> None:
    damage(world)

    assert world.rules() == rules


def test_a_domain_that_is_off_has_one_definition_and_no_emulator(world: World) -> None:
    world.host = replace(world.host, domains={world.domain: "shut off"})
    world.attached(live=frozenset(), opened=frozenset())

    assert world.rules() == set()


def test_a_domain_that_is_gone_with_its_volume(world: World) -> None:
    world.host = replace(world.host, domains={}, attached={})

    assert world.rules() == {"torn attachment"}
