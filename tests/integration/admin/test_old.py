"""What daily commands and processes read does not grow with what is gone."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from registry import Registry, RequestState, upgrade
from registry.admin import Periods, revisions
from registry.admin.revisions import first_revision, head_revision, known_revisions
from registry.db.engine import make_engine
from registry.db.online_indexes import build_missing_indexes
from tests.raw_sql import RawSql, raw_sql
from tests.register import ACTOR, a_cluster, add_request, place, run_vm, take_lease
from tests.servers.postgres import PostgresServer
from tests.work import work

FEW, MANY = 30, 1_200
PER_REQUEST = 30

Daily = Callable[[Registry], Any]
#: What is done daily, or each second.
DAILY: dict[str, Daily] = {
    "doctor": lambda register: register.check(history=False),
    "the read of a round": lambda register: register.rounds.read_cluster(take_lease(register)),
    "metrics": lambda register: register.fleet(),
    "sweep": lambda register: register.assignments.send_due_tasks(),
    "expiry": lambda register: register.requests.expire(),
    "VMs": lambda register: register.vms.list(),
    "VMs of a tenant": lambda register: register.vms.list(tenant="a"),
    "VMs on a host": lambda register: register.vms.list(host="h1"),
    "requests that wait": lambda register: register.requests.list(state=RequestState.PENDING),
    "events of a kind": lambda register: register.events.list(kind="host_admin"),
    "events of a kind, none": lambda register: register.events.list(kind="no_such_thing"),
    "a purge": lambda register: register.retention.purge_batch(
        Periods(), lease=take_lease(register)
    ),
    "what a purge would take": lambda register: register.retention.count_due(Periods()),
}


def let_go(register: Registry, vms: int) -> None:
    """Have so many VMs come and go."""
    for n in range(vms // PER_REQUEST):
        request = add_request(register, PER_REQUEST, name=f"gone-{n}")
        register.requests.delete(request.id, actor=ACTOR)


def units(register: Registry, raw: RawSql) -> dict[str, int]:
    """Return the work of all that is done daily."""
    raw.run("ANALYZE")
    if raw.dialect == "postgresql":
        raw.run("VACUUM")
    found = {}
    for name, action in DAILY.items():
        action(register)  # the first of a process looks at what does not change
        with work() as done:
            action(register)
        found[name] = done.units
    return found


@pytest.mark.long
def test_what_is_done_daily_reads_no_more_where_much_is_gone(
    register: Registry, raw: RawSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("registry.admin.doctor.EVENTS", 20)  # of which both have more
    (host,) = a_cluster(register)
    for key in place(register, add_request(register, 4, name="runs"), host, 4).assignment_ids:
        run_vm(register, key)
    add_request(register, 3, name="waits")
    let_go(register, FEW)
    young = units(register, raw)
    let_go(register, MANY)

    old = units(register, raw)

    # A table of a few rows is read as a whole: that much more is no growth.
    most = {name: 2 * young[name] + MANY // 4 for name in DAILY}
    grown = {name: (young[name], old[name]) for name in DAILY if old[name] > most[name]}
    assert grown == {}
    assert register.check() == []


@pytest.mark.long
def test_the_vms_of_a_host_are_found_without_those_of_others(
    register: Registry, raw: RawSql
) -> None:
    lease = take_lease(register)
    for host in a_cluster(register, 60):
        place(register, add_request(register, 10), host, 10, lease=lease)
    raw.run("ANALYZE")
    register.vms.list(host="h1")

    with work() as done:
        found = register.vms.list(host="h1").items

    assert len(found) == 10
    most = 10_000 if raw.dialect == "sqlite" else 1_000
    assert done.units < most


def test_a_purge_of_nothing_does_not_touch_the_lease(register: Registry) -> None:
    a_cluster(register)
    lease = take_lease(register)

    with work() as done:
        assert not register.retention.purge_batch(Periods(), lease=lease)

    assert not [each for each in done.statements if "leases" in each]


def test_doctor_looks_in_transactions_of_their_own(register: Registry) -> None:
    with work() as done:
        register.check()

    assert done.transactions > 10


def test_an_upgrade_builds_indexes_of_large_tables_beside_processes_that_write(
    register_url: str,
) -> None:
    if not register_url.startswith("postgresql"):
        pytest.skip("SQLite has one writer: nothing is built beside it")
    with raw_sql(register_url) as raw:
        raw.run("DROP INDEX ix_events_kind_id")
        raw.run(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'ix_vms_id_live'::regclass"
        )
    built: list[str] = []
    engine = make_engine(register_url, patient=True)
    event.listen(Engine, "before_cursor_execute", lambda *given: built.append(given[2]))

    build_missing_indexes(engine)

    engine.dispose()
    assert [each for each in built if "CONCURRENTLY" in each] == [
        "DROP INDEX CONCURRENTLY ix_vms_id_live",
        "CREATE INDEX CONCURRENTLY ix_vms_id_live ON vms (id) WHERE deleted_at IS NULL",
        "CREATE INDEX CONCURRENTLY ix_events_kind_id ON events (kind, id)",
    ]
    assert upgrade(register_url) == head_revision()


@pytest.mark.postgresql  # SQLite has one writer: nothing is built beside it
def test_an_upgrade_keeps_nobody_waiting_while_it_reads_a_large_table(
    postgres: PostgresServer, next_revision: Callable[[str], str]
) -> None:
    run: list[str] = []

    def note(*given: Any) -> None:
        run.append(given[2])

    with postgres.database() as url:
        upgrade(url)
        with raw_sql(url) as raw:
            raw.run("DROP INDEX ix_vms_deleted_at")
        revision = next_revision(
            'op.create_index("ix_vms_deleted_at", "vms", ["deleted_at"], if_not_exists=True)'
        )
        event.listen(Engine, "before_cursor_execute", note)
        try:
            assert upgrade(url) == revision
        finally:
            event.remove(Engine, "before_cursor_execute", note)
        Registry.connect(url).close()

    about = [each for each in run if "INDEX" in each and "ix_vms_deleted_at" in each]
    assert [each.split(" ix_vms")[0] for each in about] == [
        "CREATE INDEX CONCURRENTLY",
        "CREATE INDEX IF NOT EXISTS",
    ]


@pytest.fixture
def next_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], str]]:
    """Return a function that gives the code one more revision, which does what it says."""
    caches = (head_revision, known_revisions, first_revision)

    def add(does: str) -> str:
        scripts = tmp_path / "migrations"
        shutil.copytree(Path(str(files("migrations"))), scripts)
        (scripts / "versions" / "9000_of_a_test.py").write_text(
            "from alembic import op\n"
            f'revision, down_revision = "9000", "{head_revision()}"\n'
            f"def upgrade():\n    {does}\n"
        )
        monkeypatch.setattr(revisions, "files", lambda _: scripts)
        for each in caches:
            each.cache_clear()
        return "9000"

    yield add
    monkeypatch.undo()
    for each in caches:
        each.cache_clear()
