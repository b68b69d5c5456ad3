"""Requests and VMs: made, listed, deleted, and never made twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from pydantic import TypeAdapter

from registry import (
    AnsweredBeforeError,
    DuplicateError,
    HostAdminEvent,
    IdempotencyConflictError,
    IdempotencyInProgressError,
    InvalidError,
    NotFoundError,
    Registry,
    RequestState,
    VmDesired,
    VmObserved,
)
from registry.audit import IdempotencyKey, parse_stored_record
from registry.networks import NetworkSource
from registry.requests import (
    CreateRequestCommand,
    MembershipRule,
    Request,
    RequestSpec,
    Rules,
    check_spec,
)
from tests.builders import a_public_key
from tests.raw_sql import RawSql
from tests.register import ACTOR, a_cluster, add_request, place, remove_vm, run_vm, take_lease

KEY = IdempotencyKey(scope="tenant:a", key="k1", fingerprint="f")


def kept(register: Registry, key: IdempotencyKey) -> Request | None:
    """Return the request that is kept with a key."""
    with pytest.raises(AnsweredBeforeError) as before:
        register.idempotency.check_unused(key)
    assert before.value.status == key.status
    return parse_stored_record(TypeAdapter(Request), before.value.body)


def begun_by_an_earlier_release(raw: RawSql, key: IdempotencyKey) -> None:
    """Claim a key as such a process does: in a transaction of its own."""
    now = raw.before("now", "0 seconds")
    raw.run(
        "INSERT INTO idempotency_keys (scope, key, fingerprint, started_at, first_used_at)"
        f" VALUES ('{key.scope}', '{key.key}', '{key.fingerprint}', {now}, {now})"
    )


def test_a_request_comes_with_its_vms(register: Registry) -> None:
    a_cluster(register)

    request = add_request(register, 3, name="web", requires=["ssd"], hosts=["h1"])

    assert (request.name, request.tenant, request.vm_type) == ("web", "a", "small")
    assert (request.count, request.min_count) == (3, 1)
    assert (request.state, request.waiting) == (RequestState.PENDING, None)
    assert (request.requires, request.hosts) == (("ssd",), ("h1",))
    assert (request.vms_placed, request.vms_running) == (0, 0)
    vms = register.vms.list(request_id=request.id).items
    assert [vm.name for vm in vms] == ["web-1", "web-2", "web-3"]
    assert {(vm.desired, vm.observed) for vm in vms} == {(VmDesired.RUNNING, VmObserved.ABSENT)}
    assert register.requests.get(request.id) == register.requests.find("a", "web") == request


def test_a_request_without_a_name_gets_one(register: Registry) -> None:
    a_cluster(register)

    names = {add_request(register).name for _ in range(20)}

    assert len(names) == 20
    assert all(name.startswith("req-") for name in names)


@pytest.mark.parametrize(
    ("fields", "error", "what"),
    [
        ({"count": 0}, InvalidError, "count"),
        ({"count": -1}, InvalidError, "count"),
        ({"count": 10_001}, InvalidError, "count"),
        ({"count": 3, "min_count": 4}, InvalidError, "min_count"),
        ({"min_count": 0}, InvalidError, "min_count"),
        ({"name": "No Good"}, InvalidError, "name"),
        ({"requires": ["no good"]}, InvalidError, "requires"),
        ({"hosts": []}, InvalidError, "hosts"),
        ({"hosts": ["nowhere"]}, NotFoundError, "nowhere"),
        ({"tenant": "nobody"}, NotFoundError, "nobody"),
        ({"tenant": "\ud800"}, NotFoundError, "tenant"),
        ({"vm_type": "\ud800"}, NotFoundError, "VM type"),
        ({"hosts": ["\ud800"]}, NotFoundError, "host"),
        ({"requires": ["\ud800"]}, InvalidError, "requires"),
        ({"name": "\ud800"}, InvalidError, "name"),
        ({"vm_type": "huge"}, NotFoundError, "huge"),
    ],
)
def test_bad_requests_are_refused_and_leave_nothing(
    register: Registry, fields: dict[str, Any], error: type[Exception], what: str
) -> None:
    a_cluster(register)

    with pytest.raises(error, match=what):
        add_request(register, **fields)

    assert register.requests.list().items == ()
    assert register.vms.list().items == ()


def test_a_retired_host_cannot_be_asked_for(register: Registry) -> None:
    a_cluster(register)
    register.hosts.change_admin("h1", HostAdminEvent.RETIRE, actor=ACTOR)

    with pytest.raises(NotFoundError, match="h1"):
        add_request(register, hosts=["h1"])


def test_a_name_is_taken_while_its_request_lives_and_only_within_its_tenant(
    register: Registry,
) -> None:
    a_cluster(register)
    first = add_request(register, name="web")
    add_request(register, name="web", tenant="b")
    with pytest.raises(DuplicateError, match="web"):
        add_request(register, name="web")

    register.requests.delete(first.id, actor=ACTOR)
    second = add_request(register, name="web")

    assert register.requests.find("a", "web") == second
    register.requests.delete(second.id, actor=ACTOR)
    assert register.requests.find("a", "web").id == second.id


def test_a_request_deleted_before_anything_was_placed_is_cancelled(register: Registry) -> None:
    a_cluster(register)
    request = add_request(register, 3)

    after = register.requests.delete(request.id, actor=ACTOR)

    assert (after.state, after.count) == (RequestState.CANCELLED, 3)
    assert register.vms.list().items == ()
    gone = register.vms.list(include_deleted=True).items
    assert all(vm.deleted_at is not None for vm in gone)
    assert register.requests.delete(request.id, actor=ACTOR) == after
    assert register.check() == []


def test_a_request_is_released_when_its_last_vm_is_gone(register: Registry) -> None:
    (host,) = a_cluster(register)
    request = add_request(register, 3)
    keys = place(register, request, host, 2).assignment_ids
    for key in keys:
        run_vm(register, key)

    going = register.requests.delete(request.id, actor=ACTOR)
    assert going.state == RequestState.PARTLY_PLACED
    assert (going.vms_wanted, going.vms_placed, going.vms_running) == (0, 0, 0)
    assert going.vms_leaving == 2
    remove_vm(register, keys[0])
    assert register.requests.get(request.id).vms_leaving == 1
    assert register.requests.get(request.id).state == RequestState.PARTLY_PLACED
    remove_vm(register, keys[1])

    after = register.requests.get(request.id)
    assert (after.state, after.vms_placed, after.vms_running) == (RequestState.RELEASED, 0, 0)
    changes = register.events.list(kind="request_state", subject_id=str(request.id))
    assert [event.to_state for event in changes] == ["partly_placed", "released"]
    assert register.check() == []


def test_deleting_a_vm_lowers_what_the_request_asks_for_once(register: Registry) -> None:
    (host,) = a_cluster(register)
    request = add_request(register, 3)
    place(register, request, host, 2)
    unplaced = register.vms.list(request_id=request.id).items[-1]

    vm = register.vms.delete(unplaced.id, actor="tenant:a")
    register.vms.delete(unplaced.id, actor="tenant:a")

    assert vm.desired == VmDesired.DELETED
    assert vm.deleted_at is not None
    after = register.requests.get(request.id)
    assert (after.count, after.state) == (2, RequestState.PLACED)
    (event,) = register.events.list(kind="vm_desired")
    assert (event.actor, event.tenant) == ("tenant:a", "a")


def test_deleting_every_vm_one_by_one_ends_the_request(register: Registry) -> None:
    a_cluster(register)
    request = add_request(register, 2)

    for vm in register.vms.list(request_id=request.id).items:
        register.vms.delete(vm.id, actor=ACTOR)

    after = register.requests.get(request.id)
    assert (after.state, after.count) == (RequestState.CANCELLED, 0)
    assert register.check() == []


def test_what_does_not_exist_is_not_found(register: Registry) -> None:
    for call in (
        lambda: register.requests.get(uuid4()),
        lambda: register.requests.delete(uuid4(), actor=ACTOR),
        lambda: register.requests.find("a", "web"),
        lambda: register.vms.get(uuid4()),
        lambda: register.vms.delete(uuid4(), actor=ACTOR),
    ):
        with pytest.raises(NotFoundError):
            call()


def test_requests_are_listed_newest_last_in_pages_and_by_what_is_asked(register: Registry) -> None:
    a_cluster(register)
    made = [add_request(register, name=f"r{n}", tenant="ab"[n % 2]) for n in range(7)]

    seen, cursor = [], None
    while True:
        page = register.requests.list(limit=3, cursor=cursor)
        seen += page.items
        if (cursor := page.next) is None:
            break

    assert seen == made
    assert register.requests.list(tenant="b").items == tuple(made[1::2])
    assert register.requests.list(name="r4").items == (made[4],)
    assert register.requests.list(state=RequestState.PLACED).items == ()
    assert len(register.requests.list(state=RequestState.PENDING).items) == 7


def test_a_row_added_while_paging_neither_skips_nor_repeats_others(register: Registry) -> None:
    a_cluster(register)
    made = [add_request(register) for _ in range(4)]
    first = register.requests.list(limit=2)
    register.requests.delete(made[0].id, actor=ACTOR)
    extra = add_request(register)

    second = register.requests.list(limit=10, cursor=first.next)

    assert [each.id for each in second.items] == [made[2].id, made[3].id, extra.id]


def test_vms_are_listed_by_tenant_request_host_and_name(register: Registry) -> None:
    one, two = a_cluster(register, hosts=2)
    lease = take_lease(register)
    first = add_request(register, 2, name="x")
    second = add_request(register, 2, name="y", tenant="b")
    place(register, first, one, 1, lease)
    place(register, second, two, 2, lease)

    def names(**fields: Any) -> list[str]:
        return [vm.name for vm in register.vms.list(**fields).items]

    assert names() == ["x-1", "x-2", "y-1", "y-2"]
    assert names(tenant="b") == ["y-1", "y-2"]
    assert names(request_id=first.id) == ["x-1", "x-2"]
    assert names(host="h2") == ["y-1", "y-2"]
    assert names(host="h1", tenant="b") == []
    assert names(name="x-2") == ["x-2"]
    page = register.vms.list(limit=3)
    assert [vm.name for vm in register.vms.list(limit=3, cursor=page.next).items] == ["y-2"]


# ---- idempotency ------------------------------------------------------------


def test_a_request_is_kept_with_its_key_which_makes_no_other(register: Registry) -> None:
    a_cluster(register)
    first = add_request(register, 2, name="web", idempotency=KEY)

    with pytest.raises(AnsweredBeforeError):
        add_request(register, 2, name="web", idempotency=KEY)

    assert kept(register, KEY) == first
    assert len(register.requests.list().items) == 1
    with pytest.raises(IdempotencyConflictError):
        add_request(register, 3, idempotency=replace(KEY, fingerprint="g"))


def test_a_key_whose_call_began_in_another_way_is_in_progress(
    register: Registry, raw: RawSql
) -> None:
    """As a process of the release before begins: in a transaction of its own."""
    a_cluster(register)
    begun_by_an_earlier_release(raw, KEY)

    with pytest.raises(IdempotencyInProgressError):
        add_request(register, idempotency=KEY)

    raw.run(f"UPDATE idempotency_keys SET started_at = {raw.before('now', '61 seconds')}")
    made = add_request(register, idempotency=KEY)
    assert kept(register, KEY) == made


def test_an_earlier_release_takes_a_kept_record_for_another_body_and_does_not_show_it(
    register: Registry, raw: RawSql
) -> None:
    a_cluster(register)
    begun_by_an_earlier_release(raw, KEY)
    raw.run(f"UPDATE idempotency_keys SET started_at = {raw.before('now', '61 seconds')}")
    add_request(register, idempotency=KEY)
    add_request(register, idempotency=replace(KEY, key="k2"))
    requested = check_spec(RequestSpec(tenant="a", vm_type="small", count=1))
    register.requests.accept_batch(
        [CreateRequestCommand(spec=requested, actor=ACTOR, idempotency=replace(KEY, key="k3"))]
    )

    # What it compares with the fingerprint of a repeated call, before it shows what is kept.
    found = raw.rows("SELECT fingerprint FROM idempotency_keys")

    assert len(found) == 3
    assert "f" not in {row["fingerprint"] for row in found}


def test_what_an_earlier_release_answered_is_answered_again(
    register: Registry, raw: RawSql
) -> None:
    a_cluster(register)
    begun_by_an_earlier_release(raw, KEY)
    raw.run("UPDATE idempotency_keys SET status = 201, body = '{}'")

    with pytest.raises(AnsweredBeforeError) as before:
        add_request(register, idempotency=KEY)

    assert (before.value.status, before.value.body) == (201, "{}")
    assert parse_stored_record(TypeAdapter(Request), before.value.body) is None


def test_a_key_of_yesterday_makes_another_request(register: Registry, raw: RawSql) -> None:
    a_cluster(register)
    first = add_request(register, idempotency=KEY)
    raw.run(f"UPDATE idempotency_keys SET first_used_at = {raw.before('now', '1441 minutes')}")

    second = add_request(register, idempotency=KEY)

    assert second.id != first.id
    assert kept(register, KEY) == second


def test_keys_of_yesterday_are_deleted_now_and_then(register: Registry, raw: RawSql) -> None:
    a_cluster(register)
    add_request(register, idempotency=replace(KEY, key="old"))
    raw.run(f"UPDATE idempotency_keys SET first_used_at = {raw.before('now', '1441 minutes')}")
    add_request(register, idempotency=replace(KEY, key="new"))

    register.idempotency.delete_expired()

    assert [row["key"] for row in raw.rows("SELECT key FROM idempotency_keys")] == ["new"]


def test_what_is_returned_is_what_a_reader_finds(register: Registry) -> None:
    """A request that was just made is not read again: it has to be the same all the same."""
    a_cluster(register, hosts=2)
    register.networks.add("lan", default=NetworkSource(kind="bridge", name="br0"), actor=ACTOR)

    everything = add_request(
        register,
        2,
        min_count=2,
        name="web",
        requires=["ssd", "fast"],
        hosts=["h2", "h1"],
        labels={"for": "shop"},
        ttl_s=3600,
        network="lan",
        ssh_keys=[a_public_key()],
        user_data=b"#cloud-config",
        hostname="web",
        rules=Rules(
            forbids=("slow",),
            prefers=("near", "cheap"),
            zone="z1",
            anti_affinity=MembershipRule(group="web"),
            affinity=MembershipRule(group="shop", soft=True),
        ),
    )
    least = add_request(register)

    assert register.requests.get(everything.id) == everything
    assert register.requests.get(least.id) == least


def test_a_request_that_was_refused_does_not_use_its_key_up(register: Registry) -> None:
    a_cluster(register)
    with pytest.raises(NotFoundError):
        add_request(register, vm_type="huge", idempotency=KEY)

    assert add_request(register, idempotency=KEY).count == 1


def test_ten_thousand_vms_are_one_request(register: Registry) -> None:
    a_cluster(register)

    request = add_request(register, 10_000)

    assert request.count == 10_000
    view = register.rounds.read_cluster(take_lease(register))
    assert view.requests[0].count == 10_000
