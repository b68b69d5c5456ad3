"""Registering hosts, and what an operator may do with them."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import event, select

from registry import (
    ConflictError,
    DuplicateError,
    HostAdmin,
    HostAdminEvent,
    HostHealth,
    IllegalTransitionError,
    InvalidError,
    NotFoundError,
    Registry,
    UriRefusedError,
)
from registry.db.engine import Database
from registry.db.pages import MAX_LIMIT
from registry.db.schema import hosts
from registry.hosts import NewHost
from registry.hosts.host_records import to_hosts
from tests.register import (
    ACTOR,
    TEST_URIS,
    a_cluster,
    add_host,
    add_request,
    place,
    remove_vm,
    run_vm,
)


def test_a_new_host_is_enrolling_with_an_inventory_of_every_resource(register: Registry) -> None:
    register.resources.add("gpu", "GPU", actor=ACTOR)

    host = register.hosts.add(
        NewHost(
            name="h1",
            uri="qemu+tls://h1.example/system",
            labels=("ssd", "az=1"),
            overrides={"vcpus": 4},
            reserved={"memory_mib": 512},
            ratios={"vcpus": 2000},
            base_volume="base.qcow2",
            memory_backing_mib=128,
        ),
        actor="operator:ops",
    )

    assert (host.admin, host.health) == (HostAdmin.ACTIVE, HostHealth.ENROLLING)
    assert host.labels == ("az=1", "ssd")
    assert [(each.resource, each.capacity) for each in host.inventories] == [
        ("vcpus", 8),
        ("memory_mib", 0),
        ("disk_gib", 0),
        ("gpu", 0),
    ]
    assert host.inventories[1].reserved == 512
    assert (host.domain_type, host.max_builds, host.version) == ("kvm", 2, 1)
    (event,) = register.events.list(kind="host_added")
    assert event.actor == "operator:ops"
    assert register.check() == []


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"name": "Not-A-Name"}, "name"),
        ({"overrides": {"gpu": 1}}, "overrides.gpu"),
        ({"overrides": {"vcpus": -1}}, "overrides.vcpus"),
        ({"reserved": {"vcpus": 2**63}}, "reserved.vcpus"),
        ({"ratios": {"vcpus": 0}}, "ratios.vcpus"),
        ({"ratios": {"vcpus": 10**7}}, "ratios.vcpus"),
        ({"labels": ("no good",)}, "labels"),
        ({"max_builds": 0}, "max_builds"),
        ({"domain_type": "xen"}, "domain_type"),
        ({"pool": ""}, "pool"),
        ({"network": "a\nb"}, "network"),
        ({"base_volume": ""}, "base_volume"),
        ({"memory_backing_mib": 0}, "memory_backing_mib"),
    ],
)
def test_bad_fields_are_refused_by_name(
    register: Registry, fields: dict[str, Any], what: str
) -> None:
    with pytest.raises(InvalidError) as caught:
        add_host(register, **({"name": "h1"} | fields))

    assert caught.value.field == what
    assert register.hosts.all() == ()


def test_a_uri_that_the_policy_does_not_allow_is_refused(register: Registry) -> None:
    with pytest.raises(UriRefusedError, match="scheme"):
        register.hosts.add(NewHost(name="h1", uri="test:///default"), actor=ACTOR)
    with pytest.raises(UriRefusedError, match="command"):
        register.hosts.add(
            NewHost(name="h1", uri="qemu+tcp://h/system?command=sh"),
            actor=ACTOR,
            uri_policy=TEST_URIS,
        )


def test_a_host_that_asks_nobody_who_they_are_has_no_credential(register: Registry) -> None:
    new = NewHost(name="h1", uri="qemu+tcp://h1.example/system", credential="site")

    with pytest.raises(InvalidError, match="only TLS and SSH have one"):
        register.hosts.add(new, actor=ACTOR, uri_policy=TEST_URIS)


def test_name_and_uri_are_unique_among_hosts_that_are_not_retired(register: Registry) -> None:
    add_host(register, "h1")
    with pytest.raises(DuplicateError) as by_name:
        add_host(register, "h1", uri="test+unix:///other")
    with pytest.raises(DuplicateError) as by_uri:
        add_host(register, "h2", uri="test+unix:///h1")
    assert (by_name.value.field, by_uri.value.field) == ("name", "uri")

    register.hosts.change_admin("h1", HostAdminEvent.RETIRE, actor=ACTOR)
    again = add_host(register, "h1")

    assert register.hosts.get("h1") == again
    assert register.hosts.all() == (again,)
    assert len(register.hosts.list(include_retired=True).items) == 2


def test_an_operator_drains_maintains_activates_and_retires(register: Registry) -> None:
    add_host(register)

    def apply(event: HostAdminEvent) -> HostAdmin:
        return register.hosts.change_admin("h1", event, actor=ACTOR, reason="new disks").admin

    assert apply(HostAdminEvent.DRAIN) == HostAdmin.DRAINING
    assert apply(HostAdminEvent.DRAIN) == HostAdmin.DRAINING
    assert apply(HostAdminEvent.MAINTAIN) == HostAdmin.MAINTENANCE
    assert apply(HostAdminEvent.ACTIVATE) == HostAdmin.ACTIVE
    assert apply(HostAdminEvent.RETIRE) == HostAdmin.RETIRED
    with pytest.raises(IllegalTransitionError):
        apply(HostAdminEvent.ACTIVATE)

    changes = register.events.list(kind="host_admin")
    assert [event.to_state for event in changes] == ["draining", "maintenance", "active", "retired"]
    assert {event.reason for event in changes} == {"new disks"}


def test_a_host_that_holds_vms_cannot_be_retired(register: Registry) -> None:
    (host,) = a_cluster(register)
    request = add_request(register)
    (key,) = place(register, request, host).assignment_ids
    run_vm(register, key)

    with pytest.raises(ConflictError, match="VMs that hold capacity there: 1"):
        register.hosts.change_admin("h1", HostAdminEvent.RETIRE, actor=ACTOR)
    register.requests.delete(request.id, actor=ACTOR)
    remove_vm(register, key)

    assert register.hosts.change_admin("h1", HostAdminEvent.RETIRE, actor=ACTOR).admin == "retired"


def test_an_update_changes_what_is_given_and_says_so(register: Registry) -> None:
    before = add_host(register, labels=("a",))

    after = register.hosts.update("h1", labels=["b", "a"], max_builds=5, actor=ACTOR)
    again = register.hosts.update("h1", labels=["a", "b"], max_builds=5, actor=ACTOR)

    assert (after.labels, after.max_builds) == (("a", "b"), 5)
    assert after.inventories == before.inventories
    assert again == after
    (event,) = register.events.list(kind="host_updated")
    assert event.data["labels"] == ["a", "b"]


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"overrides": {"gpu": 1}}, "overrides.gpu"),
        ({"overrides": {"gpu": None}}, "overrides.gpu"),
        ({"reserved": {"vcpus": -1}}, "reserved.vcpus"),
        ({"ratios": {"vcpus": 0}}, "ratios.vcpus"),
        ({"labels": [""]}, "labels"),
        ({"max_builds": 65}, "max_builds"),
    ],
)
def test_a_bad_update_changes_nothing(
    register: Registry, fields: dict[str, Any], what: str
) -> None:
    before = add_host(register)

    with pytest.raises(InvalidError) as caught:
        register.hosts.update("h1", **({"labels": ["x"]} | fields), actor=ACTOR)

    assert caught.value.field == what
    assert register.hosts.get("h1") == before


def test_a_retired_host_is_not_updated(register: Registry) -> None:
    add_host(register)
    register.hosts.change_admin("h1", HostAdminEvent.RETIRE, actor=ACTOR)

    with pytest.raises(ConflictError, match="retired"):
        register.hosts.update("h1", labels=["x"], actor=ACTOR)


def test_an_unknown_host_is_not_found(register: Registry) -> None:
    for call in (
        lambda: register.hosts.get("h1"),
        lambda: register.hosts.update("h1", labels=[], actor=ACTOR),
        lambda: register.hosts.change_admin("h1", HostAdminEvent.DRAIN, actor=ACTOR),
    ):
        with pytest.raises(NotFoundError, match="host"):
            call()


def test_hosts_are_listed_by_name_in_pages(register: Registry) -> None:
    for name in ("c", "a", "e", "b", "d"):
        add_host(register, name)

    first = register.hosts.list(limit=2)
    second = register.hosts.list(limit=2, cursor=first.next)
    third = register.hosts.list(limit=2, cursor=second.next)

    names = [[host.name for host in page.items] for page in (first, second, third)]
    assert names == [["a", "b"], ["c", "d"], ["e"]]
    assert third.next is None
    assert [host.name for host in register.hosts.all()] == ["a", "b", "c", "d", "e"]


def test_pages_go_on_between_hosts_that_had_one_name(register: Registry) -> None:
    for _ in range(3):
        add_host(register, "h1")
        register.hosts.change_admin("h1", HostAdminEvent.RETIRE, actor=ACTOR)

    seen, cursor = [], None
    while True:
        page = register.hosts.list(limit=1, cursor=cursor, include_retired=True)
        seen += [host.id for host in page.items]
        if (cursor := page.next) is None:
            break

    assert len(seen) == len(set(seen)) == 3


def test_a_host_moves_to_another_uri_with_all_that_is_on_it(register: Registry) -> None:
    host, other, *_ = a_cluster(register, hosts=2)
    request = add_request(register, 1)
    place(register, request, host)
    uri = "qemu+tls://elsewhere.example/system"

    moved = register.hosts.update("h1", uri=uri, actor=ACTOR)

    assert (moved.id, moved.uri, moved.inventories) == (
        host.id, uri, register.hosts.get("h1").inventories,
    )  # fmt: skip
    assert register.vms.list(limit=10).items[0].host == "h1"
    [events] = register.events.list(kind="host_updated")
    assert (events.data["uri"], events.data["uri_before"]) == (uri, host.uri)
    with pytest.raises(DuplicateError):
        register.hosts.update("h2", uri=uri, actor=ACTOR)
    with pytest.raises(UriRefusedError):
        register.hosts.update("h2", uri=f"{uri}?command=sh", actor=ACTOR)
    assert register.hosts.get("h2") == other


def test_the_longest_page_of_hosts_reads_the_inventories_of_no_others(
    register: Registry, register_url: str
) -> None:
    add_host(register, "h1")
    add_host(register, "h2")
    database = Database(register_url)

    with database.read() as connection:
        row = connection.execute(select(hosts).where(hosts.c.name == "h1")).one()
        read: list[int] = []
        event.listen(
            connection,
            "before_cursor_execute",
            lambda *given: read.append("host_id" in given[2].partition("WHERE")[2]),
        )
        to_hosts(connection, [row] * (MAX_LIMIT + 1))  # one more shows if more follow

    assert read == [True]
