"""A commit costs what it places, however many VMs wait beside."""

from __future__ import annotations

import psycopg
import pytest
from sqlalchemy import make_url

from registry import Registry, RequestState, VmDesiredEvent
from registry.requests import WaitingStatus
from registry.rounds import Placement
from tests.raw_sql import RawSql
from tests.register import ACTOR, a_cluster, a_commit, add_request, place, take_lease
from tests.work import work

FEW, MANY = 10, 1_500


def placing_one_each(register: Registry, raw: RawSql, waiting: int) -> int:
    """Return the work of a commit that places one VM of each of four requests."""
    lease = take_lease(register)
    (host,) = register.hosts.list().items
    name = f"w{waiting}"
    requested = [add_request(register, waiting, name=f"{name}-{n}") for n in range(4)]
    if raw.dialect == "postgresql":
        raw.run("ANALYZE")
    parts = tuple(Placement(request_id=each.id, host_id=host.id, count=1) for each in requested)
    why = {each.id: WaitingStatus(count=waiting - 1, reason="no_room") for each in requested}
    # The first of a process reads what the database says of itself.
    for _ in range(2):
        version = register.hosts.get(host.name).version
        commit = a_commit(lease, parts, {host.id: version}, waiting=why)
        with work() as done:
            placed = register.rounds.commit_round(commit)
        assert len(placed.assignment_ids) == 4
    for each in requested:
        register.requests.delete(each.id, actor=ACTOR)
    return done.units


def test_a_commit_costs_what_it_places_not_what_waits(register: Registry, raw: RawSql) -> None:
    a_cluster(register)
    # Tables of a page are read whole: what was placed before costs more than what it is among.
    for more in (1, 2, 3):
        placing_one_each(register, raw, FEW + more)

    few = placing_one_each(register, raw, FEW)
    many = placing_one_each(register, raw, MANY)

    assert many <= 1.5 * few, f"{few} with {FEW} waiting each, {many} with {MANY}"


def test_a_commit_locks_none_of_the_vms_that_wait_on(register: Registry, register_url: str) -> None:
    if not register_url.startswith("postgresql"):
        pytest.skip("SQLite has one writer: there is nothing to lock")
    (host,) = a_cluster(register)
    request = add_request(register, 5)
    lease = take_lease(register)
    url = make_url(register_url).set(drivername="postgresql")
    with psycopg.connect(url.render_as_string(hide_password=False)) as other:
        other.execute("SELECT id FROM vms ORDER BY id DESC LIMIT 4 FOR UPDATE")

        placed = place(register, request, host, 1, lease)

    assert len(placed.assignment_ids) == 1
    assert register.requests.get(request.id).state == RequestState.PARTLY_PLACED


def test_a_request_is_placed_with_its_last_vm_and_says_how_many(register: Registry) -> None:
    (host,) = a_cluster(register)
    request = add_request(register, 3)
    lease = take_lease(register)

    for count in (2, 1):
        place(register, request, host, count, lease)

    event = register.events.list(subject_id=str(request.id), kind="request_state")
    assert [(each.to_state, each.data) for each in event[-2:]] == [
        ("partly_placed", {"wanted": 3, "placed": 2}),
        ("placed", {"wanted": 3, "placed": 3}),
    ]
    assert register.check() == []


def test_a_vm_that_is_off_and_has_no_place_keeps_its_request_partly_placed(
    register: Registry,
) -> None:
    (host,) = a_cluster(register)
    request = add_request(register, 2)
    lease = take_lease(register)
    last = register.vms.list(request_id=request.id).items[-1]
    register.vms.change_power(last.id, VmDesiredEvent.STOP, actor=ACTOR)
    why = WaitingStatus(count=1, reason="no_room")
    register.rounds.commit_round(a_commit(lease, waiting={request.id: why}))

    place(register, request, host, 1, lease)

    after = register.requests.get(request.id)
    assert (after.state, after.waiting) == (RequestState.PARTLY_PLACED, None)
    assert register.check() == []


def test_of_vms_deleted_since_the_read_no_more_wait_than_are_asked_for(register: Registry) -> None:
    a_cluster(register)
    request = add_request(register, 3)
    lease = take_lease(register)
    register.vms.delete(register.vms.list(request_id=request.id).items[0].id, actor=ACTOR)

    why = WaitingStatus(count=3, reason="no_room")
    register.rounds.commit_round(a_commit(lease, waiting={request.id: why}))

    waiting = register.requests.get(request.id).waiting
    assert waiting is not None
    assert waiting.count == 2
