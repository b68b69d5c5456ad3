"""Volumes that requests bring: from the acceptance of the request to the VM that has them."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Barrier, Thread
from uuid import UUID

import pytest

from registry import (
    ConflictError,
    DuplicateError,
    InvalidError,
    NotFoundError,
    QuotaExceededError,
    Registry,
    VolumeEvent,
    VolumeState,
)
from registry.hosts import Host
from registry.requests import NewVolume, Request
from registry.rounds import BroughtVolumes, CommittedRound, Placement, RequestView
from registry.volumes import Volume
from tests.integration.ledger.test_volumes import a_volume, advance, attach, committed, state
from tests.raw_sql import REFUSED, RawSql
from tests.register import (
    ACTOR,
    a_cluster,
    a_commit,
    add_request,
    remove_vm,
    run_vm,
    running,
    take_lease,
)

DATA = (NewVolume(name="data", size_gib=10),)


def waiting(registry: Registry) -> Sequence[RequestView]:
    lease = take_lease(registry)
    return registry.rounds.read_cluster(lease).requests


def place_all(registry: Registry, host: Host) -> CommittedRound:
    """Commit a round that places everything that waits on a host, as it read it."""
    lease = take_lease(registry)
    view = registry.rounds.read_cluster(lease)
    (there,) = [each for each in view.hosts if each.name == host.name]
    parts = tuple(
        Placement(request_id=each.id, host_id=host.id, count=each.count, volumes=each.volumes)
        for each in view.requests
        if not each.shut_out and (each.hosts is None or host.name in each.hosts)
    )
    return registry.rounds.commit_round(a_commit(lease, parts, {host.id: there.version}))


def volume_named(registry: Registry, name: str, tenant: str = "a") -> Volume:
    (found,) = registry.volumes.list(tenant=tenant, name=name).items
    return found


def an_available_volume(registry: Registry, host: Host, name: str = "data") -> Volume:
    """Return a volume with its file on a host."""
    volume, build = a_volume(registry, name), running(registry, host)
    attach(registry, volume, build)
    registry.volumes.detach(volume.id, actor=ACTOR)
    advance(registry, volume, VolumeEvent.DETACHED)
    return volume


def vm_of(registry: Registry, request: Request) -> UUID:
    (found,) = registry.vms.list(request_id=request.id).items
    return found.id


def test_a_volume_with_a_file_binds_its_vm_to_its_host(register: Registry) -> None:
    one, _ = a_cluster(register, 2)
    volume = an_available_volume(register, one)
    before = committed(register, one)
    request = add_request(register, volumes=["data"])
    (view,) = waiting(register)
    assert (view.hosts, view.named) == (("h1",), None)
    assert view.volumes == BroughtVolumes(names=("data",), hosts=("h1",))
    (key,) = place_all(register, one).assignment_ids
    found = register.volumes.get(volume.id)
    assert (found.state, found.vm_id, found.waiting_vm) == (
        "attaching",
        vm_of(register, request),
        f"{request.name}-1",
    )
    run_vm(register, key)
    assert advance(register, volume, VolumeEvent.ATTACHED) is VolumeState.ATTACHED
    assert register.volumes.get(volume.id).waiting_vm is None
    of_vm = dict(zip(view_axis(register), view.demand, strict=True))["disk_gib"]
    assert committed(register, one) == before + of_vm, "the volume holds its size there already"
    assert register.check() == []


def test_new_volumes_are_demand_and_held_once(register: Registry) -> None:
    (host,) = a_cluster(register)
    plain = add_request(register, count=2)
    disk = dict(zip(view_axis(register), waiting(register)[0].demand, strict=True))["disk_gib"]
    register.requests.delete(plain.id, actor=ACTOR)
    before = committed(register, host)
    request = add_request(register, count=2, name="db", new_volumes=DATA)
    assert request.new_volumes == DATA
    assert register.requests.get(request.id).new_volumes == DATA
    (view,) = waiting(register)
    assert (view.count, view.hosts) == (2, None)
    assert view.demand[view_axis(register).index("disk_gib")] == disk + 10
    keys = place_all(register, host).assignment_ids
    assert committed(register, host) == before + 2 * (disk + 10)
    assert {each.name: each.state for each in register.volumes.list(tenant="a").items} == {
        "data-1": "creating",
        "data-2": "creating",
    }
    for key in keys:
        build = run_vm(register, key)
        (its,) = register.volumes.list(vm_id=build.vm_id).items
        assert its.name[-1] == register.vms.get(build.vm_id).name[-1]
        advance(register, its, VolumeEvent.CREATED, VolumeEvent.ATTACHED)
    assert committed(register, host) == before + 2 * (disk + 10)
    assert register.check() == []


def view_axis(registry: Registry) -> tuple[str, ...]:
    return registry.rounds.read_cluster(take_lease(registry)).resources


def test_a_volume_has_one_request_at_a_time(register: Registry, raw: RawSql) -> None:
    (host,) = a_cluster(register)
    volume = a_volume(register)
    first = add_request(register, name="first", volumes=["data"])
    for refused in (
        lambda: add_request(register, volumes=["data"]),
        lambda: register.volumes.remove(volume.id, actor=ACTOR),
        lambda: register.volumes.attach(volume.id, running(register, host).vm_id, actor=ACTOR),
    ):
        with pytest.raises(ConflictError, match="VM first-1 waits for a host with it"):
            refused()
    with pytest.raises(REFUSED, match="bound to one VM at a time"):
        raw.run("UPDATE volumes SET bound_vm_id = ?", raw.key(volume.id))
    register.requests.delete(first.id, actor=ACTOR)
    assert register.volumes.get(volume.id).waiting_vm is None
    add_request(register, name="second", volumes=["data"])


def test_of_two_requests_at_once_one_gets_the_volume(register: Registry) -> None:
    a_cluster(register)
    a_volume(register)
    start, results = Barrier(2), list[str]()

    def ask() -> None:
        start.wait(timeout=30)
        try:
            add_request(register, volumes=["data"])
        except ConflictError:
            results.append("refused")
        else:
            results.append("accepted")

    threads = [Thread(target=ask) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(timeout=60)
    assert sorted(results) == ["accepted", "refused"]


def test_requests_with_volumes_are_checked(register: Registry) -> None:
    one, other = a_cluster(register, 2)
    a_volume(register, tenant="b", name="theirs")
    an_available_volume(register, one, "here")
    an_available_volume(register, other, "there")
    for error, match, fields in (
        (InvalidError, "one VM, not 2", {"count": 2, "volumes": ["here"]}),
        (InvalidError, "each name once", {"volumes": ["here", "here"]}),
        (InvalidError, "at most 16", {"volumes": [f"v{n}" for n in range(17)]}),
        (InvalidError, "with borrowed VMs no volumes", {"max_count": 3, "new_volumes": DATA}),
        (NotFoundError, "theirs", {"volumes": ["theirs"]}),
        (ConflictError, "here and there are in different pools", {"volumes": ["here", "there"]}),
        (DuplicateError, "here", {"new_volumes": [NewVolume(name="here", size_gib=1)]}),
        (InvalidError, "size|1 to", {"new_volumes": [NewVolume(name="n", size_gib=0)]}),
    ):
        with pytest.raises(error, match=match):
            add_request(register, name="refused", **fields)
    assert not register.requests.list(name="refused").items, "nothing of them is left"
    assert not register.volumes.list(name="n").items
    request = add_request(register, new_volumes=DATA)
    with pytest.raises(ConflictError, match="brought volumes, and gets no more VMs"):
        register.requests.change(request.id, count=2, actor=ACTOR)


def test_a_quota_counts_new_volumes_once_or_refuses_all(register: Registry) -> None:
    a_cluster(register)
    add_request(register, count=1, name="plain")
    (view,) = waiting(register)
    disk = view.demand[view_axis(register).index("disk_gib")]
    register.quotas.set("a", {"disk_gib": 2 * disk + 10}, actor=ACTOR)
    with pytest.raises(QuotaExceededError):
        add_request(register, new_volumes=[NewVolume(name="data", size_gib=11)])
    assert not register.volumes.list(tenant="a").items
    add_request(register, new_volumes=DATA)
    with pytest.raises(QuotaExceededError):
        a_volume(register, "more", 1)


@pytest.mark.parametrize("placed", [False, True], ids=["waits", "reserved"])
def test_a_request_that_ends_gives_volumes_back(register: Registry, *, placed: bool) -> None:
    (host,) = a_cluster(register)
    before = committed(register, host)
    kept = a_volume(register, "kept")
    request = add_request(register, volumes=["kept"], new_volumes=DATA)
    new = volume_named(register, "data")
    if placed:
        place_all(register, host)
        assert state(register, new) is VolumeState.CREATING
    register.requests.delete(request.id, actor=ACTOR)
    assert (state(register, kept), state(register, new)) == ("unplaced", "removed")
    assert register.volumes.get(kept.id).waiting_vm is None
    assert committed(register, host) == before
    add_request(register, volumes=["kept"], new_volumes=DATA)


def test_a_failed_build_takes_new_volumes_to_another_host(register: Registry) -> None:
    one, other = a_cluster(register, 2)
    before = committed(register, one)
    add_request(register, new_volumes=DATA)
    (key,) = place_all(register, one).assignment_ids
    build = register.assignments.claim_build(key, "w1", 60)
    assert build is not None
    register.assignments.record_failure(build.claim, "no", transient=False)
    remove_vm(register, key)
    assert volume_named(register, "data").state is VolumeState.UNPLACED
    assert committed(register, one) == before
    (view,) = waiting(register)
    assert (view.hosts, view.avoid) == (None, (one.id,))
    (key,) = place_all(register, other).assignment_ids
    run_vm(register, key)
    data = volume_named(register, "data")
    assert (data.host, data.state) == ("h2", "creating")
    advance(register, data, VolumeEvent.CREATED, VolumeEvent.ATTACHED)


def test_a_vm_that_is_lost_before_its_volume_has_a_file_waits_for_its_end(
    register: Registry,
) -> None:
    (host,) = a_cluster(register)
    add_request(register, new_volumes=DATA)
    (key,) = place_all(register, host).assignment_ids
    run_vm(register, key)
    data = volume_named(register, "data")
    lose(register, host)
    assert state(register, data) is VolumeState.WITHDRAWING
    (view,) = waiting(register)
    assert view.shut_out
    assert view.short is not None
    assert (view.short.reason, view.short.detail) == ("volume_leaves", {"volumes": ["data"]})
    register.volumes.detach(data.id, actor=ACTOR)
    (view,) = waiting(register)
    assert (view.volumes, view.shut_out) == (None, False), "its host is off, so its tenant gave up"


def test_a_vm_that_had_its_volume_starts_elsewhere_without_it(register: Registry) -> None:
    (host, _) = a_cluster(register, 2)
    add_request(register, new_volumes=DATA)
    (key,) = place_all(register, host).assignment_ids
    run_vm(register, key)
    data = volume_named(register, "data")
    advance(register, data, VolumeEvent.CREATED, VolumeEvent.ATTACHED)
    lose(register, host)
    assert state(register, data) is VolumeState.AVAILABLE
    (view,) = waiting(register)
    assert (view.volumes, view.hosts) == (None, None)


def lose(registry: Registry, host: Host) -> None:
    """Have an operator say that a host which does not answer is off."""
    registry.hosts.record_miss(
        host.id, "timeout", unreachable_after=1, down_after=1, started_at=registry.now()
    )
    registry.fencing.confirm(host.name, actor=ACTOR)


def test_a_detached_volume_no_longer_binds_its_vm(register: Registry) -> None:
    one, _ = a_cluster(register, 2)
    volume = an_available_volume(register, one)
    add_request(register, volumes=["data"])
    register.volumes.detach(volume.id, actor=ACTOR)
    (view,) = waiting(register)
    assert (view.volumes, view.hosts) == (None, None)
    assert state(register, volume) is VolumeState.AVAILABLE
