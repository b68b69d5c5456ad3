"""Names, sizes, labels and ends of requests, on both databases."""

from __future__ import annotations

import threading
from datetime import timedelta
from uuid import UUID

import pytest

from registry import ConflictError, DuplicateError, InvalidError, Registry, VmState
from registry.requests import Request
from tests.raw_sql import RawSql
from tests.register import a_cluster, add_request, place, remove_vm, run_vm, take_lease


def names(registry: Registry, request: Request, **filters: object) -> list[str]:
    return [vm.name for vm in registry.vms.list(request_id=request.id, **filters).items]  # type: ignore[arg-type]


def resize(registry: Registry, request: Request, count: int, *remove: UUID) -> Request:
    return registry.requests.change(request.id, count=count, remove=remove, actor="tenant:a")


@pytest.fixture
def cluster(register: Registry) -> Registry:
    a_cluster(register)
    return register


# --- names -----------------------------------------------------------------------------


def test_a_request_is_not_called_as_a_vm_of_the_same_tenant(cluster: Registry) -> None:
    add_request(cluster, 2, name="web")

    with pytest.raises(DuplicateError, match="VM with name 'web-1'"):
        add_request(cluster, name="web-1")
    add_request(cluster, name="web-3")
    add_request(cluster, name="web-1", tenant="b")


def test_vms_are_not_called_as_a_request_of_the_same_tenant(cluster: Registry) -> None:
    add_request(cluster, name="web-2")

    with pytest.raises(DuplicateError, match="request with name 'web-2'"):
        add_request(cluster, 2, name="web")


def test_a_request_grows_past_names_that_are_taken(cluster: Registry) -> None:
    add_request(cluster, name="web-2")
    add_request(cluster, name="web-4")
    web = add_request(cluster, 1, name="web", hostname="web")

    resize(cluster, web, 4)
    assert names(cluster, web) == ["web-1", "web-3", "web-5", "web-6"]
    hostnames = [vm.hostname for vm in cluster.vms.list(request_id=web.id).items]
    assert hostnames == ["web", "web-3", "web-5", "web-6"]
    resize(cluster, web, 1)
    resize(cluster, web, 2)  # numbers of VMs that are gone are not given again
    assert names(cluster, web) == ["web-1", "web-7"]


def test_a_name_is_free_again_when_its_vm_is_deleted(cluster: Registry) -> None:
    request = add_request(cluster, 2, name="web")
    [first, _] = cluster.vms.list(request_id=request.id).items

    cluster.vms.delete(first.id, actor="cli")

    add_request(cluster, name="web-1")


def test_the_database_itself_refuses_two_vms_of_one_name(cluster: Registry, raw: RawSql) -> None:
    request = add_request(cluster, name="web")
    [vm] = cluster.vms.list(request_id=request.id).items

    with pytest.raises(Exception, match=r"(?i)unique"):
        raw.run(
            "INSERT INTO vms (id, name, request_id, tenant_id, desired, observed, created_at)"
            f" SELECT {raw.fresh_key}, name, request_id, tenant_id, desired, observed, created_at"
            " FROM vms"
        )
    assert [each.id for each in cluster.vms.list().items] == [vm.id]


# --- sizes -----------------------------------------------------------------------------


def test_a_request_grows_by_vms_that_wait(cluster: Registry) -> None:
    request = add_request(cluster, 2, name="web")
    place(cluster, request, cluster.hosts.get("h1"), 2)

    grown = resize(cluster, request, 4)

    assert (grown.count, grown.state, grown.vms_placed) == (4, "partly_placed", 2)
    assert names(cluster, request) == ["web-1", "web-2", "web-3", "web-4"]
    view = cluster.rounds.read_cluster(take_lease(cluster))
    assert [(each.name, each.count, each.min_count) for each in view.requests] == [("web", 2, 1)]
    assert cluster.check() == []


def test_numbers_go_on_after_deletions(cluster: Registry) -> None:
    request = add_request(cluster, 3, name="web")
    [*_, last] = cluster.vms.list(request_id=request.id).items
    cluster.vms.delete(last.id, actor="cli")

    resize(cluster, request, 4)

    assert names(cluster, request) == ["web-1", "web-2", "web-4", "web-5"]


def test_fewer_are_those_without_a_place_and_then_the_newest(cluster: Registry) -> None:
    request = add_request(cluster, 4, name="web")
    place(cluster, request, cluster.hosts.get("h1"), 3)

    assert resize(cluster, request, 3).state == "placed"
    assert names(cluster, request) == ["web-1", "web-2", "web-3"]
    assert resize(cluster, request, 1).count == 1
    assert names(cluster, request) == ["web-1"]
    assert cluster.check() == []


def test_the_tenant_may_say_which_go_first(cluster: Registry) -> None:
    request = add_request(cluster, 3, name="web")
    [first, *_] = cluster.vms.list(request_id=request.id).items
    [other] = cluster.vms.list(request_id=add_request(cluster).id).items

    with pytest.raises(InvalidError, match="of VMs of this request"):
        resize(cluster, request, 2, other.id)
    with pytest.raises(InvalidError, match="at most the 1"):
        resize(cluster, request, 2, first.id, other.id)
    resize(cluster, request, 2, first.id)

    assert names(cluster, request) == ["web-2", "web-3"]


def test_a_gang_that_grows_is_begun_by_no_more_than_it_asked_for(cluster: Registry) -> None:
    request = add_request(cluster, 3, name="gang", min_count=3)

    resize(cluster, request, 5)
    [view] = cluster.rounds.read_cluster(take_lease(cluster)).requests
    resize(cluster, request, 2)
    [smaller] = cluster.rounds.read_cluster(take_lease(cluster, "cc-1")).requests

    assert (view.count, view.min_count) == (5, 3)
    assert (smaller.count, smaller.min_count) == (2, 2)


def test_what_is_over_does_not_change_its_size(cluster: Registry) -> None:
    request = add_request(cluster, 2)
    cluster.requests.delete(request.id, actor="cli")

    with pytest.raises(ConflictError, match="cancelled"):
        resize(cluster, request, 3)
    with pytest.raises(ConflictError, match="over"):
        cluster.requests.change(request.id, ttl_s=60, actor="cli")


def test_sizes_that_cross_leave_as_many_vms_as_the_last_one_said(cluster: Registry) -> None:
    request = add_request(cluster, 3, name="web")
    failed: list[BaseException] = []

    def change(count: int) -> None:
        try:
            resize(cluster, request, count)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=change, args=(count,)) for count in (1, 6, 2, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failed == []
    after = cluster.requests.get(request.id)
    assert after.count == len(names(cluster, request))
    assert after.count in {1, 6, 2, 5}
    assert cluster.check() == []


# --- labels ----------------------------------------------------------------------------


def test_vms_get_the_labels_of_their_request_and_then_keep_their_own(cluster: Registry) -> None:
    request = add_request(cluster, 2, name="web", labels={"env": "test", "team": "x"})
    [first, second] = cluster.vms.list(request_id=request.id).items

    cluster.vms.change_labels(first.id, {"env": "prod", "team": None})
    changed = cluster.requests.change(request.id, labels={"tier": "1"}, actor="cli")
    resize(cluster, request, 3)

    labels = [vm.labels for vm in cluster.vms.list(request_id=request.id).items]
    assert first.labels == second.labels == {"env": "test", "team": "x"}
    assert changed.labels == {"env": "test", "team": "x", "tier": "1"}
    assert labels == [{"env": "prod"}, {"env": "test", "team": "x"}, changed.labels]


def test_lists_are_filtered_by_labels_and_states_page_by_page(cluster: Registry) -> None:
    for number in range(6):
        labels = {"env": "test" if number % 2 else "prod", "a.b/c": str(number)}
        add_request(cluster, name=f"r{number}", labels=labels)
    [placed] = cluster.requests.list(labels=["a.b/c=3"]).items
    [assignment_id] = place(cluster, placed, cluster.hosts.get("h1")).assignment_ids
    run_vm(cluster, assignment_id)

    found: list[str] = []
    cursor = None
    while True:
        page = cluster.requests.list(labels=["env=test"], limit=2, cursor=cursor)
        found += [request.name for request in page.items]
        cursor = page.next
        if cursor is None:
            break

    assert found == ["r1", "r3", "r5"]
    assert cluster.requests.list(labels=["env=test", "a.b/c=2"]).items == ()
    running = cluster.vms.list(
        labels=["env=test"], state=VmState(cluster.vms.list().items[3].observed)
    )
    assert [vm.name for vm in running.items] == ["r3-1"]


@pytest.mark.parametrize("labels", [{"": "x"}, {"a": ""}, {"a b": "x"}, {"a": "x'y"}, {"ä": "x"}])
def test_labels_are_plain_words(cluster: Registry, labels: dict[str, str]) -> None:
    with pytest.raises(InvalidError):
        add_request(cluster, labels=labels)


@pytest.mark.parametrize("wanted", ["env", "=x", "env=", "a'=x", 'a"b=x'])
def test_a_filter_is_a_key_and_a_value(cluster: Registry, wanted: str) -> None:
    with pytest.raises(InvalidError):
        cluster.vms.list(labels=[wanted])


# --- ends ------------------------------------------------------------------------------


def over(registry: Registry, raw: RawSql, request: Request) -> None:
    """Let a request's time be over, by the database's clock."""
    registry.requests.change(request.id, ttl_s=1, actor="cli")
    raw.run(f"UPDATE requests SET expires_at = created_at WHERE name = '{request.name}'")


def test_a_request_ends_when_its_time_is_over(cluster: Registry, raw: RawSql) -> None:
    request = add_request(cluster, 3, name="web", ttl_s=3600)
    other = add_request(cluster, name="other", ttl_s=3600)
    placed = place(cluster, request, cluster.hosts.get("h1"), 2).assignment_ids
    run_vm(cluster, placed[0])
    assert cluster.requests.expire() == ()
    over(cluster, raw, request)
    assert cluster.requests.expire(by=cluster.now() - timedelta(hours=1)) == ()

    assert cluster.requests.expire() == (request.id,)
    assert cluster.requests.expire() == ()

    ended = cluster.requests.get(request.id)
    assert (ended.state, ended.vms_placed) == ("expired", 0)
    assert ended.vms_leaving == 1  # until it is proven absent
    assert cluster.requests.get(other.id).state == "pending"
    remove_vm(cluster, placed[0])
    assert cluster.requests.get(request.id).vms_leaving == 0
    assert cluster.requests.get(request.id).state == "expired"
    assert cluster.vms.list(request_id=request.id).items == ()
    add_request(cluster, name="web")
    [event] = [e for e in cluster.events.list(kind="request_state") if e.event == "expired"]
    assert (event.from_state, event.to_state, event.actor) == (
        "partly_placed",
        "expired",
        "control",
    )
    assert cluster.check() == []


def test_a_request_that_waits_ends_too(cluster: Registry, raw: RawSql) -> None:
    request = add_request(cluster, 2, name="web")
    over(cluster, raw, request)

    cluster.requests.expire()

    assert cluster.requests.get(request.id).state == "expired"
    assert cluster.rounds.read_cluster(take_lease(cluster)).requests == ()


def test_many_vms_end_in_pieces(cluster: Registry, raw: RawSql) -> None:
    small, large = (add_request(cluster, count, name=f"r{count}") for count in (1, 4))
    for request in (small, large):
        over(cluster, raw, request)

    ended, left = [], []
    for _ in range(4):
        ended.append(cluster.requests.expire(at_once=2))
        left.append(len(cluster.vms.list().items))

    assert ended == [(small.id,), (), (large.id,), ()]
    assert left == [3, 1, 0, 0]
    assert {cluster.requests.get(each.id).state for each in (small, large)} == {"expired"}
    assert cluster.check() == []


def test_a_request_whose_end_has_begun_is_not_extended(cluster: Registry, raw: RawSql) -> None:
    request = add_request(cluster, 5, name="large")
    over(cluster, raw, request)
    assert cluster.requests.expire(at_once=2) == ()

    for more in ({"ttl_s": 3600}, {"never_expires": True}):
        with pytest.raises(ConflictError, match=r"large cannot be extended: .* being deleted"):
            cluster.requests.change(request.id, actor="cli", **more)  # type: ignore[arg-type]

    while not cluster.requests.expire(at_once=2):
        pass
    assert cluster.requests.get(request.id).state == "expired"
    assert cluster.vms.list().items == ()


def test_an_end_is_put_off_or_taken_away(cluster: Registry, raw: RawSql) -> None:
    first, second = (add_request(cluster, name=name, ttl_s=60) for name in ("one", "two"))
    for request in (first, second):
        over(cluster, raw, request)

    later = cluster.requests.change(first.id, ttl_s=3600, actor="cli")
    never = cluster.requests.change(second.id, never_expires=True, actor="cli")

    assert later.expires_at is not None
    assert (later.expires_at - cluster.now()).total_seconds() > 3000
    assert never.expires_at is None
    assert cluster.requests.expire() == ()
