"""The register center as a trace: what was asked for and there, over a time."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path

import pytest

from registry import HostAdminEvent, Registry
from registry.admin import HostTransition, PastPeriod, PastVm
from registry.db import engine
from registry.requests import MembershipRule, Rules
from registry.tenancy import MoveTo
from simulation import DecidedRounds, RunSpec, TraceSpec, record_period, simulate
from tests.register import (
    ACTOR,
    a_cluster,
    add_group,
    add_host,
    add_request,
    add_tenant,
    add_vm_type,
    place,
    remove_vm,
    run_vm,
)

DECIDED = DecidedRounds(source="a test", policy="fuga", slot_length_s=5, budget_units=None)


def moment(register: Registry) -> datetime:
    """Return a time after all that happened, and before all that will."""
    before = register.now()
    while (found := register.now()) <= before:
        pass
    while register.now() <= found:
        pass
    return found


def placed_and_run(register: Registry, name: str, host: str, count: int = 1, **fields):
    request = add_request(register, count=count, name=name, **fields)
    committed = place(register, request, register.hosts.get(host), count)
    for key in committed.assignment_ids:
        run_vm(register, key)
    return request, committed.assignment_ids


def delete(register: Registry, request, assignment_ids) -> None:
    register.requests.delete(request.id, actor=ACTOR)
    for key in assignment_ids:
        remove_vm(register, key)


def read(register: Registry, since: datetime, until: datetime) -> tuple[PastPeriod, list]:
    with register.history.read_period(since, until) as past:
        return past, list(past.requests)


@pytest.fixture
def lived(register):
    """A week, so to speak: what was before it, what came in it, and what came after."""
    h1, h2 = a_cluster(register, hosts=2)
    gone = placed_and_run(register, "gone-before", "h1")
    delete(register, *gone)
    standing = placed_and_run(register, "standing", "h1", count=2)
    placed_and_run(register, "endless", "h2", tenant="b")
    add_request(register, count=3, name="waits", tenant="b", min_count=2)
    since = moment(register)
    delete(register, *standing)
    ended = moment(register)
    rules = Rules(forbids=("hdd",), anti_affinity=MembershipRule(group="apart", soft=True))
    requested, keys = placed_and_run(register, "asked", "h2", count=2, rules=rules)
    register.hosts.change_admin("h1", HostAdminEvent.DRAIN, actor=ACTOR)
    add_host(register, "h3")
    until = moment(register)
    delete(register, requested, keys)
    add_request(register, name="after", tenant="b")
    register.hosts.change_admin("h1", HostAdminEvent.ACTIVATE, actor=ACTOR)
    return register, since, ended, until, (h1, h2)


def test_vms_are_told_with_their_places_and_ends(lived):
    register, since, ended, until, (h1, h2) = lived

    past, found = read(register, since, until)

    assert [(each.tenant, len(each.vms)) for each in found] == [
        ("a", 2),
        ("b", 1),
        ("b", 3),
        ("a", 2),
    ]
    standing, endless, waits, requested = found
    assert {vm.host_id for vm in standing.vms} == {h1.id}
    assert all(since < vm.ended_at < ended for vm in standing.vms)
    assert [(vm.host_id, vm.ended_at) for vm in endless.vms] == [(h2.id, None)]
    assert set(waits.vms) == {PastVm(host_id=None, placed_at=None, ended_at=None)}
    assert waits.min_count == 2
    # Gone after the end of the time: who reads it later is told the same.
    assert all(vm.ended_at is None and ended < vm.placed_at < until for vm in requested.vms)
    assert requested.rules.forbids == ("hdd",)
    assert requested.rules.anti_affinity == MembershipRule(group="apart", soft=True)
    assert requested.demand == {"vcpus": 1, "memory_mib": 3072, "disk_gib": 15}
    assert [(each.name, each.standings[0].weight) for each in past.tenants] == [
        ("a", 1.0),
        ("b", 1.0),
    ]


def test_hosts_are_told_with_what_became_of_them(lived):
    register, since, _, until, _ = lived

    past, _ = read(register, since, until)

    h1, h2, h3 = past.hosts
    assert h1.was_open
    assert [change for _, change in h1.changes] == [HostTransition.CLOSED]
    assert (h2.was_open, h2.changes) == (True, ())
    assert h3.created_at > since
    assert not h3.was_open  # enrolling, until the monitor reached it
    assert [change for _, change in h3.changes] == [HostTransition.OPENED]
    assert h2.capacity == {"vcpus": 16, "memory_mib": 32_768, "disk_gib": 300}


def test_retired_hosts_leave_and_do_not_come_back(register):
    a_cluster(register, hosts=2)
    since = moment(register)
    register.hosts.change_admin("h1", HostAdminEvent.RETIRE, actor=ACTOR)
    between = moment(register)

    whole, _ = read(register, since, moment(register))
    later, _ = read(register, between, moment(register))

    assert [change for _, change in whole.hosts[0].changes] == [HostTransition.RETIRED]
    assert [host.name for host in later.hosts] == ["h2"]


def test_tenants_groups_and_quotas_are_told_as_they_were(register):
    add_vm_type(register)
    for name in ("old", "new"):
        add_group(register, name)
    add_tenant(register, "a", weight=2.0, parent="old")
    add_tenant(register, "gone", parent="old")
    register.quotas.set("gone", {"vms": 3}, actor=ACTOR)
    register.quotas.set("a", {"vcpus": 8, "vms": 5}, actor=ACTOR)
    register.requests.delete(add_request(register, tenant="gone").id, actor=ACTOR)
    add_tenant(register, "before")
    register.tenants.remove("before", actor=ACTOR)
    since = moment(register)
    register.tenants.update("a", weight=3.0, move=MoveTo(parent="new"), actor=ACTOR)
    register.quotas.set("a", {"vcpus": 9, "vms": None, "disk_gib": 70}, actor=ACTOR)
    register.tenants.remove("gone", actor=ACTOR)
    register.tenants.remove("old", actor=ACTOR)
    add_tenant(register, "later", parent="new")
    until = moment(register)
    register.tenants.update("a", weight=4.0, move=MoveTo(parent=None), actor=ACTOR)
    register.quotas.set("a", {"vcpus": None}, actor=ACTOR)
    add_tenant(register, "after")

    past, _ = read(register, since, until)

    shown = {
        each.name: [(standing.parent, standing.weight) for standing in each.standings]
        for each in past.tenants
    }
    assert shown == {
        "new": [(None, 1.0)],
        "a": [("old", 2.0), ("old", 3.0), ("new", 3.0)],
        "gone": [("old", 1.0)],  # its row is kept for what it asked for
        "later": [("new", 1.0)],
        "old": [(None, 1.0)],  # it has no row any more
    }
    of_groups = {each.name: each.is_group for each in past.tenants}
    assert of_groups == {"new": True, "a": False, "gone": False, "later": False, "old": True}
    firsts = {each.name: each.standings[0].since for each in past.tenants}
    assert all(at == since for name, at in firsts.items() if name != "later")
    assert since < firsts["later"] < until
    quotas = {
        (each.owner, each.resource): [limit for _, limit in each.limits] for each in past.quotas
    }
    assert quotas == {
        ("a", "disk_gib"): [None, 70],
        ("a", "vcpus"): [8, 9],
        ("a", "vms"): [5, None],
        ("gone", "vms"): [3],
    }


def test_a_recording_is_simulated_with_what_ran_already(lived, tmp_path: Path):
    register, since, _, until, _ = lived

    with register.history.read_period(since, until) as past:
        recording = record_period(past, tmp_path / "registry", DECIDED)
    summary = simulate(
        RunSpec(
            name="first_fit",
            policy="first_fit",
            trace=TraceSpec(path=recording.trace),
            hosts=recording.hosts,
            tree=recording.tree,
            until_s=recording.length_s,
            slot_length_s=recording.length_s / 4,
        ),
        tmp_path / "run",
    )

    assert (recording.vms_running, recording.vms_waiting, recording.vms_requested) == (3, 3, 2)
    assert summary["finished"]
    assert summary["bad_rows"]["count"] == 0
    assert summary["vms"]["at_the_beginning"] == 3
    assert summary["vms"]["asked"] == 5
    assert summary["vms"]["placed"] == 5
    assert summary["vms"]["completed"] == 0  # of what was asked for: what stood does not count
    assert summary["vms"]["running"] == 6


def test_recorded_twice_it_is_the_same(lived, tmp_path: Path):
    register, since, _, until, _ = lived
    for name in ("one", "two"):
        with register.history.read_period(since, until) as past:
            record_period(past, tmp_path / name, DECIDED)
        add_tenant(register, name)  # has asked for nothing: is not in it

    files = [sorted((tmp_path / name).iterdir()) for name in ("one", "two")]
    for one, two in zip(*files, strict=True):
        assert one.read_bytes() == two.read_bytes()


def test_many_vms_are_read_in_order(register):
    a_cluster(register)
    for number in range(30):
        add_request(register, count=100, name=f"r{number}")
    until = moment(register)

    _, found = read(register, until.replace(year=until.year - 1), until)

    assert sum(len(each.vms) for each in found) == 3000
    requested = [each.requested_at for each in found]
    assert requested == sorted(requested)


def test_a_reader_may_work_through_what_it_read_for_a_while(
    register_url: str, register: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine half a minute passes between two readings of a large site."""
    add_vm_type(register)
    add_tenant(register)
    add_request(register, 1)
    monkeypatch.setattr(engine, "IDLE_TIMEOUT_S", 1)
    reader = Registry.connect(register_url)
    try:
        now = reader.now()
        with reader.history.read_period(now, now) as past:
            time.sleep(1.5)
            assert [len(request.vms) for request in past.requests] == [1]
    finally:
        reader.close()
