"""Later rounds read only what changed: what they then know is what a first read finds."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

import psycopg
import pytest
from sqlalchemy import make_url
from structlog.testing import capture_logs

from registry import AssignmentState, ConflictError, HostAdminEvent, InvalidError, Registry
from registry.catalogue.resources import resource_names
from registry.db.clock import db_now
from registry.db.engine import Database
from registry.hosts import Host
from registry.rounds import HostView, Lease, TenantView
from registry.rounds.known_hosts import KnownHosts
from tests.integration.moves.world import NAMES, MovingWorld
from tests.raw_sql import RawSql
from tests.register import (
    ACTOR,
    a_cluster,
    a_report,
    add_host,
    add_request,
    add_tenant,
    add_vm_type,
    place,
    remove_vm,
    run_vm,
    running,
    take_lease,
)
from tests.servers.postgres import TEMPLATE, PostgresServer


def test_later_reads_know_what_a_first_read_finds(
    register: Registry, register_url: str, raw: RawSql
) -> None:
    hosts = a_cluster(register, 4)
    lease = take_lease(register)
    assert [host.name for host in register.rounds.read_cluster(lease).hosts] == [
        host.name for host in hosts
    ]

    for change in _changes(register, raw, hosts, lease):
        change()
        hosts_, tenants = _first_read(register_url, lease)
        for _ in range(2):
            later = register.rounds.read_cluster(lease)
            assert (later.hosts, later.tenants) == (hosts_, tenants)


def _changes(
    register: Registry, raw: RawSql, hosts: tuple[Host, ...], lease: Lease
) -> list[Callable[[], object]]:
    request = add_request(register, 2)
    placed: list[UUID] = []

    def build() -> None:
        placed.extend(place(register, request, hosts[0], 2, lease).assignment_ids)
        for key in placed:
            run_vm(register, key)

    def release() -> None:
        register.requests.delete(request.id, actor=ACTOR)
        for key in placed:
            remove_vm(register, key)

    key = raw.key(hosts[3].id)
    later, earlier = raw.before("now", "-3600 seconds"), raw.before("now", "1 seconds")
    held_back = "UPDATE hosts SET backoff_until = {} WHERE id = ?"
    return [
        build,
        release,
        lambda: register.hosts.update("h2", labels=("ssd", "zone=b"), actor=ACTOR),
        lambda: register.hosts.change_admin("h2", HostAdminEvent.DRAIN, actor=ACTOR),
        lambda: register.hosts.record_report(hosts[2].id, a_report(vcpus=3, hostname="h3")),
        lambda: raw.run(held_back.format(later), key),
        lambda: raw.run(held_back.format(earlier), key),
        lambda: add_host(register, "h0"),
        lambda: register.hosts.change_admin("h2", HostAdminEvent.RETIRE, actor=ACTOR),
        lambda: add_host(register, "h2"),
        lambda: register.resources.add("gpu", "pieces", actor=ACTOR),
    ]


def _first_read(url: str, lease: Lease) -> tuple[tuple[HostView, ...], tuple[TenantView, ...]]:
    registry = Registry.connect(url)
    try:
        found = registry.rounds.read_cluster(lease)
        return found.hosts, found.tenants
    finally:
        registry.close()


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_happens_later_reads_know_what_tenants_hold(
    register: Registry, register_url: str, seed: int
) -> None:
    """VMs are placed, deleted, removed and moved, and asked to move, in random order."""
    draw, world = random.Random(seed), MovingWorld(register)
    lease, moving, most = take_lease(register), 0, 0
    add_tenant(register, "b")
    add_vm_type(register, "large", memory_mib=4096)

    for _ in range(20):
        vms = [vm for vm in register.vms.list().items if vm.assignment_state is not None]
        here = [vm for vm in vms if vm.assignment_state is AssignmentState.ACTIVE]
        happens = draw.choice(["run", "run", "delete", "ask", "ask", "move", "sweep", "sweep"])
        if happens == "run" and len(vms) < 9:
            body = {"tenant": draw.choice("ab"), "vm_type": draw.choice(["small", "large"])}
            world.running(draw.choice(NAMES), **body)
        elif happens == "delete" and here:
            register.vms.delete(draw.choice(here).id, actor=ACTOR)
        elif happens in {"ask", "move"} and here:
            with suppress(InvalidError, ConflictError):  # it moves already, or is deleted
                asked_for = world.ask(draw.choice(here), draw.choice(NAMES))
                moving += 1
                if happens == "move":
                    world.move(asked_for)
        elif happens == "sweep":
            world.sweep()
        if draw.random() < 0.7:
            _, tenants = _first_read(register_url, lease)
            assert register.rounds.read_cluster(lease).tenants == tenants
            most = max(most, *(tenant.vms for tenant in tenants))

    assert moving
    assert most > 1


@pytest.mark.postgresql
def test_what_tenants_hold_is_compared_with_all_assignments_now_and_then(
    postgres: PostgresServer,
) -> None:
    with postgres.database(template=TEMPLATE) as url:
        register, database = Registry.connect(url), Database(url)
        known = KnownHosts(keeps_holdings=True, checked_every=3)
        [host] = a_cluster(register)
        running(register, host)
        before = _held(database, known)
        plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(plain) as damage:
            damage.execute("ALTER TABLE assignments DISABLE TRIGGER USER")
            damage.execute("UPDATE assignments SET state = 'released'")
        stale = _held(database, known)
        with capture_logs() as logs:
            mended = [_held(database, known), _held(database, known)]
        database.close()
        register.close()

    assert stale == before == [(1, 1, 3072, 15)]
    assert mended == [[], []]
    assert [entry["event"] for entry in logs] == ["known_holdings_differ"]


@pytest.mark.postgresql
def test_later_reads_read_what_was_written_since(postgres: PostgresServer) -> None:
    with postgres.database(template=TEMPLATE) as url:
        register, database, known = Registry.connect(url), Database(url), KnownHosts()
        a_cluster(register, 5)
        _read(database, known)
        assert known.rows_read == 5 + 5 * 3

        _read(database, known)
        quiet = known.rows_read
        register.hosts.update("h2", labels=("ssd",), actor=ACTOR)
        seen = _read(database, known)
        database.close()
        register.close()

    assert quiet == 0
    assert 1 <= known.rows_read <= 1 + 3
    assert seen["h2"] == ("ssd",)


@pytest.mark.postgresql
def test_what_a_slow_transaction_wrote_before_a_read_is_seen_by_the_next_one(
    postgres: PostgresServer,
) -> None:
    with postgres.database(template=TEMPLATE) as url:
        register, database, known = Registry.connect(url), Database(url), KnownHosts()
        a_cluster(register, 2)
        plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(plain) as slow:
            slow.execute("UPDATE hosts SET labels = '[\"ssd\"]' WHERE name = 'h1'")
            register.hosts.update("h2", labels=("near",), actor=ACTOR)
            during = _read(database, known)
            register.hosts.update("h2", labels=("far",), actor=ACTOR)
            again = _read(database, known)
        after = _read(database, known)
        database.close()
        register.close()

    assert during == {"h1": (), "h2": ("near",)}
    assert again == {"h1": (), "h2": ("far",)}
    assert after == {"h1": ("ssd",), "h2": ("far",)}


def _read(database: Database, known: KnownHosts) -> dict[str, tuple[str, ...]]:
    with database.read() as connection:
        found = known.read(connection, resource_names(connection), db_now(connection))
    return {host.name: host.labels for host in found}


def _held(database: Database, known: KnownHosts) -> list[tuple[int, ...]]:
    with database.read() as connection:
        axis = resource_names(connection)
        known.read(connection, axis, db_now(connection))
        return list(known.read_holdings(connection, axis).values())
