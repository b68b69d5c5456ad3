"""The disk of the database is full: calls are refused with that word, and go on afterwards."""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from controller.rest import create_app
from controller.rest.health import FULL
from registry import DatabaseFullError, Registry
from tests.register import (
    ACTOR,
    a_report,
    add_host,
    add_request,
    add_tenant,
    add_vm_type,
    take_lease,
)
from tests.servers.http_client import a_client
from tests.servers.postgres import SERVER_USER, TEMPLATE, PostgresServer
from tests.servers.small_disks import SmallDisk, memory_disk

_MIB = 64


@dataclass(frozen=True)
class Site:
    disk: SmallDisk
    registry: Registry
    operator: httpx.Client


@pytest.fixture(
    params=[
        pytest.param("sqlite", marks=pytest.mark.sqlite),
        pytest.param("postgresql", marks=pytest.mark.postgresql),
    ]
)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A register center on a small disk of its own, and the API."""
    folder = tmp_path / "disk"
    if request.param == "sqlite":
        with memory_disk(folder, mib=_MIB) as disk:
            upgraded: Path = request.getfixturevalue("upgraded_database")
            shutil.copy(upgraded, folder / "fuga.db")
            yield from _site(disk, f"sqlite:///{folder / 'fuga.db'}")
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    folder = server.folder / "small"
    with memory_disk(folder, mib=_MIB) as disk:
        if os.geteuid() == 0:
            shutil.chown(folder, pwd.getpwnam(SERVER_USER).pw_uid)
        server.run(f"CREATE TABLESPACE small LOCATION '{folder}'")
        server.run(
            f"CREATE DATABASE full_one TEMPLATE {TEMPLATE} TABLESPACE small STRATEGY file_copy"
        )
        try:
            yield from _site(disk, server.url("full_one"))
        finally:
            server.drop("full_one")
            server.run("DROP TABLESPACE small")
    folder.rmdir()


def _site(disk: SmallDisk, url: str) -> Iterator[Site]:
    registry = Registry.connect(url)
    try:
        _, secret = registry.tokens.create("operator", None, "ops", actor=ACTOR)
        yield Site(disk, registry, a_client(create_app(registry), token=secret))
    finally:
        registry.close()


def test_calls_are_refused_with_a_clear_body_and_go_on_afterwards(site: Site) -> None:
    made = site.operator.post("/v1/tenants", json={"name": "before"})
    assert made.status_code == 201
    site.disk.fill()

    answers = []
    for number in range(5000):
        answers.append(site.operator.post("/v1/tenants", json={"name": f"t-{number}"}))
        if answers[-1].status_code != 201:
            break
    refused = answers[-1]

    assert refused.status_code == 503, refused.text
    assert refused.json()["code"] == "database_full"
    assert "disk of the database is full" in refused.json()["detail"]
    assert refused.headers["retry-after"]
    assert site.operator.get("/readyz").json()["disks"] == [FULL]
    status = site.operator.get("/v1/status").json()
    assert (status["healthy"], status["disks"]) == (False, [FULL])
    assert site.operator.get("/v1/tenants/before").status_code == 200
    site.disk.free()
    name = f"t-{len(answers) - 1}"
    assert site.operator.get(f"/v1/tenants/{name}").status_code == 404
    assert site.operator.post("/v1/tenants", json={"name": name}).status_code == 201
    assert site.registry.check() == []


def test_what_processes_write_is_refused_and_they_go_on_afterwards(site: Site) -> None:
    registry = site.registry
    add_tenant(registry, "a")
    add_vm_type(registry, "small")
    host = add_host(registry, up=False)
    lease = take_lease(registry)
    site.disk.fill()

    for number in range(5000):
        try:
            add_request(registry, 10)
            registry.hosts.record_miss(host.id, f"{number}", unreachable_after=1, down_after=9)
        except DatabaseFullError:
            break
    else:
        pytest.fail("the disk never was full")
    site.disk.free()

    assert registry.leases.renew(lease, 60).epoch == lease.epoch
    registry.hosts.record_report(host.id, a_report(started_at=registry.now()))
    assert registry.hosts.get("h1").health == "up"
    assert registry.check() == []
