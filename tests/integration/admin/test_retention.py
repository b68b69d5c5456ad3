"""What is older than it has to be goes, in batches and under the lease; all else stays."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from typer.testing import CliRunner

from controller.cli.operating.database import db
from controller.control_center.purge import Purger, purge_all
from registry import InvalidError, Registry, StaleEpochError
from registry.admin import Periods, PurgeCounts
from registry.admin.retention import _month_start
from registry.db.ids import lowest_uuid7
from tests.raw_sql import RawSql
from tests.register import (
    ACTOR,
    a_cluster,
    a_commit,
    add_request,
    place,
    remove_vm,
    run_vm,
    take_lease,
)
from tests.work import work


def age(raw: RawSql, days: int) -> None:
    """Let all that happened so far be so many days older."""
    for table, column in (
        ("rounds", "created_at"),
        ("round_hash_chain", "created_at"),
        ("vms", "deleted_at"),
        ("assignments", "released_at"),
        ("events", "at"),
    ):
        past = raw.before(column, f"{days} days")
        raw.run(f"UPDATE {table} SET {column} = {past} WHERE {column} IS NOT NULL")


def rows(raw: RawSql, table: str) -> int:
    return int(raw.value(f"SELECT count(*) FROM {table}"))


@pytest.fixture
def lived(register: Registry) -> Registry:
    """One VM that is gone and one that runs, each of a round of its own."""
    (host,) = a_cluster(register)
    lease = take_lease(register)
    for name in ("gone", "runs"):
        request = add_request(register, name=name)
        (key,) = place(register, request, host, 1, lease).assignment_ids
        run_vm(register, key)
    (vm, _) = register.vms.list().items
    register.requests.delete(vm.request_id, actor=ACTOR)
    assert vm.assignment_id is not None
    remove_vm(register, vm.assignment_id)
    return register


def test_nothing_goes_before_its_time(lived: Registry, raw: RawSql) -> None:
    age(raw, 6)

    assert lived.retention.count_due(Periods()) == PurgeCounts()
    assert purge_all(lived, Periods()) == PurgeCounts()
    assert all(each.stored for each in (lived.rounds.get(1), lived.rounds.get(2)))


def test_inputs_go_first_and_their_rounds_stay(lived: Registry, raw: RawSql) -> None:
    age(raw, 8)

    assert lived.retention.count_due(Periods()) == PurgeCounts(inputs=2)
    assert purge_all(lived, Periods()) == PurgeCounts(inputs=2)

    assert lived.rounds.get(1).stored is None
    assert lived.rounds.get(1).placed == 1
    assert rows(raw, "assignments") == 2
    (event,) = lived.events.list(kind="history_purged")
    assert event.reason == "2 inputs"
    assert lived.check() == []


def test_what_holds_a_place_is_kept_at_any_age(lived: Registry, raw: RawSql) -> None:
    age(raw, 5000)

    purged = purge_all(lived, Periods())

    assert (purged.inputs, purged.assignments, purged.rounds) == (2, 1, 1)
    assert [each.number for each in lived.rounds.list().items] == [2]
    assert [vm.name for vm in lived.vms.list().items] == ["runs-1"]
    assert rows(raw, "assignment_resources") == 3
    assert lived.check() == []


def test_a_dry_run_counts_what_a_purge_takes_and_takes_nothing(
    lived: Registry, raw: RawSql
) -> None:
    age(raw, 5000)
    before = [rows(raw, table) for table in ("round_inputs", "assignments", "rounds", "events")]

    due = lived.retention.count_due(Periods())

    assert [
        rows(raw, table) for table in ("round_inputs", "assignments", "rounds", "events")
    ] == before
    assert due.events == before[-1]
    assert purge_all(lived, Periods()).events == due.events


def test_events_go_by_whole_months(lived: Registry, raw: RawSql) -> None:
    now = lived.now()
    bound = _month_start(now, -2)
    numbers = [each.id for each in lived.events.list(limit=500)]
    stored = "%Y-%m-%d %H:%M:%S.%f"
    raw.run("UPDATE events SET at = ? WHERE id > ?", bound.strftime(stored), numbers[3])
    raw.run(
        "UPDATE events SET at = ? WHERE id <= ?",
        datetime.fromtimestamp(bound.timestamp() - 0.001, UTC).strftime(stored),
        numbers[3],
    )

    assert purge_all(lived, Periods(events_months=2)) == PurgeCounts(events=4)

    kept = [each.id for each in lived.events.list(after=numbers[0], limit=500)]
    assert kept[: len(numbers) - 4] == numbers[4:]


def ended(raw: RawSql, at: datetime) -> None:
    """Add a move and a plan that were requested and ended at a time."""
    stored = at.strftime("%Y-%m-%d %H:%M:%S.%f")
    key = raw.key(UUID(int=lowest_uuid7(at).int + uuid4().int % 2**80))
    row = {"id": key, "requested_by": "op", "requested_at": stored, "ended_at": stored}
    one, other = (each["id"] for each in raw.rows("SELECT id FROM hosts ORDER BY name"))
    ends = {"from_id": key, "to_id": key, "from_host_id": one, "to_host_id": other}
    vm = raw.value("SELECT min(CAST(id AS text)) FROM vms")
    raw.insert("moves", row | ends | {"vm_id": vm, "state": "moved", "kind": "live", "reason": ""})
    raw.insert(
        "plans", row | {"kind": "pack", "state": "done", "arguments": "{}", "approve": False}
    )


def test_a_purge_takes_old_moves_and_plans_and_reads_no_others(
    register: Registry, raw: RawSql
) -> None:
    host, _ = a_cluster(register, 2)
    place(register, add_request(register), host, 1)
    now = register.now()
    register.retention.purge_batch(Periods())
    with work() as before:
        assert not register.retention.purge_batch(Periods())
    raw.run("BEGIN")
    for _ in range(500):
        ended(raw, now)
    raw.run("COMMIT")
    raw.run("ANALYZE")
    register.retention.purge_batch(Periods())  # a changed schema is read again

    with work() as after:
        assert not register.retention.purge_batch(Periods())

    assert after.units < before.units + 500
    ended(raw, now - timedelta(days=401))
    assert purge_all(register, Periods()) == PurgeCounts(plans=1, moves=1)


def test_more_than_a_batch_goes_batch_by_batch(register: Registry, raw: RawSql) -> None:
    lease = take_lease(register)
    for _ in range(45):
        register.rounds.commit_round(a_commit(lease))
    age(raw, 8)

    batches = []
    while batch := register.retention.purge_batch(Periods(), lease=lease):
        batches.append(batch.inputs)

    assert batches == [20, 20, 5]


def test_who_does_not_lead_purges_nothing(lived: Registry, raw: RawSql) -> None:
    lease = take_lease(lived)
    age(raw, 8)
    lived.leases.release(lease)
    take_lease(lived, "cc-2")

    with pytest.raises(StaleEpochError):
        lived.retention.purge_batch(Periods(), lease=lease)
    purger = Purger(lived, lambda: lease, Periods(), interval_s=1)
    assert purger.purge(threading.Event()) == PurgeCounts()
    idle = Purger(lived, lambda: None, Periods(), interval_s=1)
    assert idle.purge(threading.Event()) == PurgeCounts()
    assert rows(raw, "round_inputs") == 2


def test_the_leader_purges_at_its_interval(lived: Registry, raw: RawSql) -> None:
    lease = take_lease(lived)
    age(raw, 8)
    stop = threading.Event()
    purger = Purger(lived, lambda: lease, Periods(), interval_s=0.01, pause_s=0.01)
    running = threading.Thread(target=purger.run, args=(stop,))

    running.start()
    while not lived.events.list(kind="history_purged"):
        assert running.is_alive()
    stop.set()
    running.join(60)

    assert rows(raw, "round_inputs") == 0
    assert not running.is_alive()


def test_what_is_left_of_the_chain_follows_what_went(lived: Registry, raw: RawSql) -> None:
    lease = take_lease(lived)
    shares = [{"tenant": "a", "weight": 1.0, "before": 0.0, "after": 0.1, "asked": 1}]
    for _ in range(3):
        lived.rounds.commit_round(a_commit(lease, shares=shares))
    whole = [proof.link for proof in lived.round_proofs.list("a").items]
    age(raw, 500)
    lived.rounds.commit_round(a_commit(lease, shares=shares))
    raw.run(
        "UPDATE round_hash_chain SET created_at ="
        " (SELECT created_at FROM round_hash_chain WHERE round = 6) WHERE round = 2"
    )

    purge_all(lived, Periods())

    left = lived.round_proofs.list("a").items
    assert [proof.round for proof in left] == [6, 5, 4, 3, 2]  # a clock that was set leaves no gap
    assert [proof.link for proof in left[1:]] == whole[:4]
    assert left[-1].previous == whole[4]
    assert [proof.header is None for proof in left] == [False, True, True, True, False]

    age(raw, 500)
    purge_all(lived, Periods())

    assert [proof.round for proof in lived.round_proofs.list("a").items] == [6]
    lived.rounds.commit_round(a_commit(lease, shares=shares))
    assert [proof.previous for proof in lived.round_proofs.list("a").items] == [
        left[0].link,
        left[0].previous,
    ]


def test_a_reader_that_tails_goes_on_over_what_was_purged(lived: Registry, raw: RawSql) -> None:
    seen = lived.events.list(limit=2)[-1].id
    age(raw, 5000)
    purge_all(lived, Periods())

    add_request(lived, name="new")

    kinds = [event.kind for event in lived.events.list(after=seen)]
    assert kinds == ["history_purged", "request_created"]


def test_an_operator_purges_by_command(
    lived: Registry, raw: RawSql, register_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    age(raw, 8)
    monkeypatch.setenv("FUGA_DATABASE_URL", register_url)

    shown = CliRunner().invoke(db, ["purge", "--dry-run"]).stdout.splitlines()
    still_there = rows(raw, "round_inputs")
    done = CliRunner().invoke(db, ["purge"]).stdout.splitlines()

    assert shown[0].split()[:3] == ["would", "delete", "2"]
    assert still_there == 2
    assert done[0].split()[:2] == ["deleted", "2"]
    assert rows(raw, "round_inputs") == 0


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"inputs_days": 0}, "inputs_days"),
        ({"inputs_days": 30, "rounds_days": 29}, "rounds_days"),
        ({"events_months": 0}, "events_months"),
    ],
)
def test_periods_that_make_no_sense_are_refused(fields: dict[str, int], place: str) -> None:
    with pytest.raises(InvalidError, match=place):
        Periods(**fields)


@pytest.mark.parametrize(
    ("months", "expected"), [(0, (2026, 3)), (-2, (2026, 1)), (-3, (2025, 12)), (-15, (2024, 12))]
)
def test_months_are_counted_over_the_turn_of_the_year(
    months: int, expected: tuple[int, int]
) -> None:
    begun = _month_start(datetime(2026, 3, 31, 23, 59, tzinfo=UTC), months)

    assert (begun.year, begun.month, begun.day, begun.hour) == (*expected, 1, 0)
