"""The ledger defends itself: raw SQL around the code is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from registry import AssignmentState, CapacityExceededError, HostAdminEvent, Registry
from tests.raw_sql import REFUSED, RawSql, Row
from tests.register import (
    ACTOR,
    a_cluster,
    a_report,
    add_request,
    add_vm_type,
    place,
    remove_vm,
    run_vm,
)


@pytest.fixture
def placed(register: Registry, raw: RawSql) -> Row:
    """Two VMs reserved on h1 of two hosts; the row of the first assignment."""
    host, _ = a_cluster(register, hosts=2)
    place(register, add_request(register, 2), host, 2)
    return raw.rows("SELECT * FROM assignments ORDER BY id")[0]


def committed(raw: RawSql, host_id: object, resource: str = "vcpus") -> int:
    query = "SELECT committed FROM inventories WHERE host_id = ? AND resource = ?"
    found: int = raw.value(query, host_id, resource)
    return found


def insert_assignment(raw: RawSql, like: Row, **changes: Any) -> Any:
    row = like | {"id": raw.new_key(), "generation": 99} | changes
    raw.insert("assignments", row)
    return row["id"]


def insert_vm(raw: RawSql) -> Any:
    key = raw.new_key()
    raw.insert("vms", raw.rows("SELECT * FROM vms")[0] | {"id": key, "name": f"vm-{key}"})
    return key


INSERT_AMOUNT = (
    "INSERT INTO assignment_resources (assignment_id, resource, host_id, amount)"
    " VALUES (?, ?, ?, ?)"
)


def test_committed_is_the_sum_of_what_assignments_hold(raw: RawSql, placed: Row) -> None:
    host = placed["host_id"]

    assert committed(raw, host, "vcpus") == 2
    assert committed(raw, host, "memory_mib") == 2 * 3072
    assert committed(raw, host, "disk_gib") == 2 * 15


def test_an_insert_above_capacity_is_refused_and_leaves_nothing(raw: RawSql, placed: Row) -> None:
    host = placed["host_id"]
    key = insert_assignment(raw, placed, vm_id=insert_vm(raw))

    with pytest.raises(REFUSED, match="over capacity"):
        raw.run(INSERT_AMOUNT, key, "vcpus", host, 15)
    raw.run(INSERT_AMOUNT, key, "vcpus", host, 14)

    assert committed(raw, host) == 16


def test_an_amount_of_a_resource_that_the_host_lacks_is_refused(raw: RawSql, placed: Row) -> None:
    with pytest.raises(REFUSED, match=r"over capacity|not present"):
        raw.run(INSERT_AMOUNT, placed["id"], "gpu", placed["host_id"], 1)


def test_an_amount_of_nothing_or_less_is_refused(raw: RawSql, placed: Row) -> None:
    key = insert_assignment(raw, placed, vm_id=insert_vm(raw))

    for amount in (0, -1):
        with pytest.raises(REFUSED, match="amount_positive"):
            raw.run(INSERT_AMOUNT, key, "vcpus", placed["host_id"], amount)


def test_amounts_belong_to_the_host_of_their_assignment(raw: RawSql, placed: Row) -> None:
    other = raw.value("SELECT id FROM hosts WHERE name = 'h2'")
    key = insert_assignment(raw, placed, vm_id=insert_vm(raw))

    with pytest.raises(REFUSED, match=r"unreleased assignment|not present"):
        raw.run(INSERT_AMOUNT, key, "vcpus", other, 1)


def test_amounts_of_an_assignment_or_a_host_that_is_not_there_are_refused(
    raw: RawSql, placed: Row
) -> None:
    key = insert_assignment(raw, placed, vm_id=insert_vm(raw))

    for assignment, host in ((raw.new_key(), placed["host_id"]), (key, raw.new_key())):
        with pytest.raises(REFUSED, match="amounts belong to an unreleased assignment"):
            raw.run(INSERT_AMOUNT, assignment, "vcpus", host, 1)


def test_what_amounts_refer_to_stays_also_after_the_release(raw: RawSql, placed: Row) -> None:
    raw.run("UPDATE assignments SET state = 'released'")
    tables = ("assignment_resources", "assignments", "inventories")
    before = [raw.rows(f"SELECT * FROM {table} ORDER BY 1, 2") for table in tables]

    for edit, said in {
        "DELETE FROM assignments": "an assignment stays as long as its amounts",
        "DELETE FROM inventories WHERE resource = 'vcpus'": "stays as long as amounts of it",
        "UPDATE assignments SET id = {fresh_key}": "an assignment keeps",
        "UPDATE assignments SET host_id = (SELECT id FROM hosts WHERE name = 'h2')": "keeps",
        "UPDATE inventories SET resource = 'gpu' WHERE resource = 'vcpus'": "an inventory keeps",
        "UPDATE inventories SET host_id = {fresh_key}": "an inventory keeps",
        "UPDATE assignment_resources SET assignment_id = {fresh_key}": "immutable",
        "UPDATE assignment_resources SET host_id = {fresh_key}": "immutable",
    }.items():
        with pytest.raises(REFUSED, match=said):
            raw.run(edit.format(fresh_key=raw.fresh_key))

    assert [raw.rows(f"SELECT * FROM {table} ORDER BY 1, 2") for table in tables] == before


def test_an_inventory_that_nothing_refers_to_may_be_deleted(raw: RawSql, placed: Row) -> None:
    other = raw.value("SELECT id FROM hosts WHERE name = 'h2'")

    raw.run("DELETE FROM inventories WHERE host_id = ?", other)

    assert raw.value("SELECT count(*) FROM inventories WHERE host_id = ?", placed["host_id"]) == 3
    assert raw.value("SELECT count(*) FROM inventories WHERE host_id = ?", other) == 0


def test_a_second_unreleased_assignment_of_a_vm_is_refused(raw: RawSql, placed: Row) -> None:
    with pytest.raises(REFUSED, match=r"unreleased|vm_id_place"):
        insert_assignment(raw, placed)

    if raw.dialect == "sqlite":  # by the index as well
        raw.run("DROP TRIGGER ledger_one_assignment_per_vm")
        with pytest.raises(REFUSED, match="UNIQUE"):
            insert_assignment(raw, placed)


EVERYWHERE = {
    "raise committed": "UPDATE inventories SET committed = committed + 1",
    "lower committed": "UPDATE inventories SET committed = 0 WHERE committed > 0",
    "delete the inventory": "DELETE FROM inventories WHERE committed > 0",
    "move the inventory": "UPDATE inventories SET resource = 'gpu' WHERE resource = 'vcpus'",
    "change an amount": "UPDATE assignment_resources SET amount = 1 WHERE resource = 'disk_gib'",
    "delete an amount": "DELETE FROM assignment_resources",
    "move an assignment": (
        "UPDATE assignments SET host_id = (SELECT id FROM hosts WHERE name = 'h2')"
    ),
    "give an assignment to another VM": (
        "UPDATE assignments SET vm_id = (SELECT id FROM vms ORDER BY id DESC LIMIT 1)"
        " WHERE vm_id <> (SELECT id FROM vms ORDER BY id DESC LIMIT 1)"
    ),
    "change a generation": "UPDATE assignments SET generation = generation + 1",
    "change an id": "UPDATE assignments SET id = {fresh_key}",
    "delete an assignment": "DELETE FROM assignments",
    "lower a version": "UPDATE hosts SET version = version - 1",
    "change a VM type": "UPDATE vm_type_resources SET amount = 1",
    "an unknown state": "UPDATE assignments SET state = 'lost'",
    "a negative capacity": "UPDATE inventories SET override = -1",
}
EDITS: dict[str, dict[str, str]] = {
    "sqlite": EVERYWHERE
    | {
        "replace committed": "UPDATE OR REPLACE inventories SET committed = 0 WHERE committed > 0",
        "ignore committed": "UPDATE OR IGNORE inventories SET committed = 0 WHERE committed > 0",
        "replace the inventory": (
            "INSERT OR REPLACE INTO inventories (host_id, resource, detected, committed)"
            " SELECT host_id, resource, 1000, 0 FROM inventories WHERE committed > 0"
        ),
        "replace an amount": (
            "INSERT OR REPLACE INTO assignment_resources (assignment_id, resource, host_id, amount)"
            " SELECT assignment_id, resource, host_id, 1 FROM assignment_resources"
        ),
        "replace an assignment": (
            "INSERT OR REPLACE INTO assignments"
            " (id, vm_id, host_id, tenant_id, round, generation, state, created_at)"
            " SELECT id, vm_id, host_id, tenant_id, round, generation, 'released', created_at"
            " FROM assignments"
        ),
        "replace by a newer one": (
            "INSERT OR REPLACE INTO assignments"
            " (id, vm_id, host_id, tenant_id, round, generation, state, created_at)"
            " SELECT {fresh_key}, vm_id, host_id, tenant_id, round, generation + 1,"
            " 'reserved', created_at FROM assignments"
        ),
    },
    "postgresql": EVERYWHERE
    | {
        "take over the inventory": (
            "INSERT INTO inventories (host_id, resource, detected, committed)"
            " SELECT host_id, resource, 1000, 0 FROM inventories WHERE committed > 0"
            " ON CONFLICT (host_id, resource) DO UPDATE SET committed = 0"
        ),
        "take over the amounts": (
            "INSERT INTO assignment_resources (assignment_id, resource, host_id, amount)"
            " SELECT assignment_id, resource, host_id, 1 FROM assignment_resources"
            " ON CONFLICT (assignment_id, resource) DO UPDATE SET amount = excluded.amount"
        ),
        "merge into the inventory": (
            "MERGE INTO inventories AS i USING (SELECT id FROM hosts) AS h ON h.id = i.host_id"
            " WHEN MATCHED AND i.committed > 0 THEN UPDATE SET committed = 1"
        ),
        "empty the inventories": "TRUNCATE inventories CASCADE",
        "empty the assignments": "TRUNCATE assignments CASCADE",
        "empty the amounts": "TRUNCATE assignment_resources",
        "a first commitment": (
            "INSERT INTO inventories (host_id, resource, detected, committed)"
            " SELECT id, 'gpu', 8, 1 FROM hosts"
        ),
        "delete with its amounts": (
            "WITH gone AS (DELETE FROM assignment_resources RETURNING assignment_id)"
            " DELETE FROM assignments WHERE id IN (SELECT assignment_id FROM gone)"
        ),
    },
}
_NAMES = sorted({name for edits in EDITS.values() for name in edits})


@pytest.mark.parametrize("edit", _NAMES)
@pytest.mark.usefixtures("placed")
def test_edits_around_the_code_are_refused(raw: RawSql, edit: str) -> None:
    if edit not in EDITS[raw.dialect]:
        return  # the other database's words
    tables = ("inventories", "assignments", "assignment_resources", "hosts", "vm_type_resources")
    before = [raw.rows(f"SELECT * FROM {table} ORDER BY 1, 2") for table in tables]

    with pytest.raises(REFUSED):
        raw.run(EDITS[raw.dialect][edit].format(fresh_key=raw.fresh_key))

    assert [raw.rows(f"SELECT * FROM {table} ORDER BY 1, 2") for table in tables] == before


def test_a_release_lowers_committed_and_is_final(raw: RawSql, placed: Row) -> None:
    raw.run("UPDATE assignments SET state = 'released' WHERE id = ?", placed["id"])
    assert committed(raw, placed["host_id"]) == 1
    assert committed(raw, placed["host_id"], "disk_gib") == 15

    for state in AssignmentState:
        if state == AssignmentState.RELEASED:
            continue
        with pytest.raises(REFUSED, match="released is final"):
            raw.run("UPDATE assignments SET state = ? WHERE id = ?", state.value, placed["id"])
    raw.run("UPDATE assignments SET state = 'released' WHERE id = ?", placed["id"])
    assert committed(raw, placed["host_id"]) == 1


def test_a_released_assignment_takes_no_amounts(raw: RawSql, placed: Row) -> None:
    key = insert_assignment(raw, placed, state="released")

    with pytest.raises(REFUSED, match="unreleased assignment"):
        raw.run(INSERT_AMOUNT, key, "vcpus", placed["host_id"], 1)


def test_one_statement_over_many_rows_is_counted_row_by_row(raw: RawSql, placed: Row) -> None:
    host = placed["host_id"]
    keys = [insert_assignment(raw, placed, vm_id=insert_vm(raw)) for _ in range(3)]
    marks = ", ".join(["(?, 'vcpus', ?, 5)"] * 3)
    values = [value for key in keys for value in (key, host)]
    insert = "INSERT INTO assignment_resources (assignment_id, resource, host_id, amount) VALUES "

    with pytest.raises(REFUSED, match="over capacity"):
        raw.run(insert + marks, *values)
    assert committed(raw, host) == 2

    raw.run(insert + ", ".join(["(?, 'vcpus', ?, 5)"] * 2), *values[:4])
    assert committed(raw, host) == 12

    raw.run("UPDATE assignments SET state = 'released'")
    assert committed(raw, host) == 0


def test_released_assignments_may_be_purged(raw: RawSql, placed: Row) -> None:
    raw.run("UPDATE assignments SET state = 'released'")

    raw.run("DELETE FROM assignment_resources")
    raw.run("DELETE FROM assignments")

    assert committed(raw, placed["host_id"]) == 0


def test_capacity_may_fall_below_committed_but_takes_nothing_more(
    register: Registry, raw: RawSql, placed: Row
) -> None:
    host = register.hosts.get("h1")
    register.hosts.record_report(host.id, a_report(vcpus=1))
    assert register.hosts.get("h1").inventories[0].capacity == 1
    assert committed(raw, placed["host_id"]) == 2

    with pytest.raises(CapacityExceededError):
        place(register, add_request(register), host)

    shrunk = register.events.list(kind="capacity_below_committed")
    assert [event.data["resource"] for event in shrunk] == ["vcpus"]
    assert shrunk[0].data["capacity"] == 1
    assert register.check() == []


def test_a_commit_that_the_ledger_refuses_leaves_nothing(register: Registry) -> None:
    (host,) = a_cluster(register)
    request = add_request(register, 20)
    events = register.events.list(limit=500)

    with pytest.raises(CapacityExceededError):
        place(register, request, host, 17)

    assert register.rounds.last() is None
    assert register.requests.get(request.id) == request
    assert register.hosts.get("h1") == host
    assert register.events.list(limit=500) == events
    assert register.check() == []


def _version(register: Registry) -> int:
    return register.hosts.get("h1").version


RAISES: dict[str, Callable[[Registry], object]] = {
    "a new assignment": lambda r: place(r, add_request(r), r.hosts.get("h1")),
    "less capacity": lambda r: r.hosts.update("h1", overrides={"vcpus": 15}, actor=ACTOR),
    "more reserved": lambda r: r.hosts.update("h1", reserved={"vcpus": 1}, actor=ACTOR),
    "a lower ratio": lambda r: r.hosts.update("h1", ratios={"vcpus": 500}, actor=ACTOR),
    "less detected": lambda r: r.hosts.record_report(r.hosts.get("h1").id, a_report(vcpus=15)),
    "labels": lambda r: r.hosts.update("h1", labels=["ssd"], actor=ACTOR),
    "drained": lambda r: r.hosts.change_admin("h1", HostAdminEvent.DRAIN, actor=ACTOR),
    "unreachable": lambda r: r.hosts.record_miss(
        r.hosts.get("h1").id, "no answer", unreachable_after=1, down_after=9
    ),
}
KEEPS: dict[str, Callable[[Registry], object]] = {
    "a report": lambda r: r.hosts.record_report(r.hosts.get("h1").id, a_report()),
    "more capacity": lambda r: r.hosts.update("h1", overrides={"vcpus": 17}, actor=ACTOR),
    "a higher ratio": lambda r: r.hosts.update("h1", ratios={"vcpus": 2000}, actor=ACTOR),
    "the same labels": lambda r: r.hosts.update("h1", labels=[], actor=ACTOR),
    "max builds": lambda r: r.hosts.update("h1", max_builds=9, actor=ACTOR),
    "activated again": lambda r: r.hosts.change_admin("h1", HostAdminEvent.ACTIVATE, actor=ACTOR),
    "one missed poll": lambda r: r.hosts.record_miss(
        r.hosts.get("h1").id, "no answer", unreachable_after=2, down_after=9
    ),
}


@pytest.mark.parametrize("what", RAISES)
def test_what_can_invalidate_a_placement_raises_the_version(register: Registry, what: str) -> None:
    a_cluster(register)
    before = _version(register)

    RAISES[what](register)

    assert _version(register) > before


@pytest.mark.parametrize("what", KEEPS)
def test_what_cannot_invalidate_a_placement_keeps_the_version(
    register: Registry, what: str
) -> None:
    a_cluster(register)
    before = _version(register)

    KEEPS[what](register)

    assert _version(register) == before


def test_a_release_and_a_return_to_health_keep_the_version(register: Registry) -> None:
    (host,) = a_cluster(register)
    request = add_request(register)
    (assignment,) = place(register, request, host).assignment_ids
    run_vm(register, assignment)
    register.hosts.record_miss(host.id, "no answer", unreachable_after=1, down_after=9)
    before = _version(register)

    register.hosts.record_report(host.id, a_report())
    register.requests.delete(request.id, actor=ACTOR)
    remove_vm(register, assignment)

    assert _version(register) == before


def test_what_a_type_does_not_name_is_not_held(register: Registry) -> None:
    (host,) = a_cluster(register)
    add_vm_type(register, "diskless", vcpus=2, memory_mib=100, disk_gib=0)

    place(register, add_request(register, vm_type="diskless"), host)

    held = {each.resource: each.committed for each in register.hosts.get("h1").inventories}
    assert held == {"vcpus": 2, "memory_mib": 100, "disk_gib": 0}
    assert register.check() == []


def test_over_commit_is_in_integer_thousandths(register: Registry) -> None:
    a_cluster(register)

    host = register.hosts.update(
        "h1", overrides={"vcpus": 7}, reserved={"vcpus": 2}, ratios={"vcpus": 1333}, actor=ACTOR
    )

    assert host.inventories[0].capacity == 5 * 1333 // 1000


def test_capacity_is_never_below_zero(register: Registry) -> None:
    a_cluster(register)

    host = register.hosts.update("h1", reserved={"vcpus": 99}, actor=ACTOR)

    assert host.inventories[0].capacity == 0
