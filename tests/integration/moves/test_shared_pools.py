"""Pools that hosts share: moves copy nothing, and a VM starts elsewhere with its disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from controller.queries.vm_explanation import explain_vm
from hypervisor import DomainState
from registry import AssignmentState, ConflictError, InvalidError, Registry, VmDesiredEvent
from registry.hosts import Host
from registry.requests import Vm
from registry.rounds import Placement
from tests.fakes.movers import Breaks
from tests.integration.moves.world import NAMES, MovingWorld
from tests.readers import an_operator
from tests.register import ACTOR, a_commit, add_request, place, take_lease
from workers import builds
from workers.context import TaskOutcome

SHARED = "shared_pool=nfs"


@pytest.fixture
def world(register: Registry) -> MovingWorld:
    """h1 and h2 see one pool, h3 has its own; h1's VMs are to start elsewhere when it fails."""
    world = MovingWorld(register)
    world.hosts["h2"].volumes = world.hosts["h1"].volumes
    label(world, "h1", SHARED, "on_failure=replace")
    label(world, "h2", SHARED)
    return world


def label(world: MovingWorld, name: str, *labels: str) -> Host:
    target = f"bmc-{name}"
    return world.registry.hosts.update(name, labels=labels, fence_target=target, actor=ACTOR)


def disks(world: MovingWorld, host: str = "h1") -> set[str]:
    return {name for name in world.hosts[host].volumes if name.endswith(".qcow2")} - {"base.qcow2"}


def disk_of(vm: Vm) -> str:
    return f"fuga-{vm.assignment_id}.qcow2"


def fail(world: MovingWorld, name: str = "h1") -> tuple[str, ...]:
    """A host goes off, and what is asked to be fenced for it is."""
    world.hosts[name].unreachable = True
    host = world.registry.hosts.get(name)
    world.registry.hosts.record_miss(host.id, "timeout", unreachable_after=1, down_after=1)
    requested = world.registry.fencing.request_for_failed_hosts(take_lease(world.registry))
    for each in requested:
        order = world.registry.fencing.claim(world.registry.hosts.get(each).id, "w1", 60)
        assert order is not None
        world.registry.fencing.record_success(order)
    return requested


def come_back(world: MovingWorld, name: str = "h1") -> None:
    world.hosts[name].unreachable = False
    world.hosts[name].power_cycle()
    for _ in range(2):
        world.report(name)
        world.sweep()
    world.report(name)


def told(world: MovingWorld, vm: Vm) -> str:
    return explain_vm(world.registry, vm.id, an_operator(world.registry)).message


def start(world: MovingWorld, host: str = "h2", *, pool: str | None = "nfs") -> Sequence[UUID]:
    """Commit a round that places all that waits for a pool on a host, and build it."""
    lease = take_lease(world.registry)
    there = world.registry.hosts.get(host)
    parts = tuple(
        Placement(request_id=each.id, host_id=there.id, count=each.count, shared_pool=pool)
        for each in world.registry.rounds.read_cluster(lease).requests
        if each.shared_pool == pool
    )
    commit = a_commit(lease, parts, {there.id: there.version})
    keys = world.registry.rounds.commit_round(commit).assignment_ids
    for key in keys:
        builds.build_vm(key, world.worker())
    return keys


# ---- moves ----------------------------------------------------------------------------


def test_a_move_copies_nothing_and_the_disk_goes_with_the_last_that_uses_it(
    world: MovingWorld,
) -> None:
    vm = world.running()
    disk = disk_of(vm)

    for host in ("h2", "h1", "h2"):
        assert world.move(world.ask(world.vm(vm), host)) == TaskOutcome.DONE
        world.sweep()
        assert world.runs(vm) == [host]
        assert disks(world) == {disk}
        for seen in NAMES:
            world.report(seen)
        assert world.registry.differences.list() == ()

    assert [spec.copy_disk for spec in world.movers.specs] == [False] * 6
    assert world.registry.check() == []
    world.registry.vms.delete(vm.id, actor=ACTOR)
    world.sweep()
    assert world.vm(vm).assignment_state is None
    assert {*world.hosts["h1"].volumes} == {"base.qcow2"}


def test_one_that_is_off_moves_without_a_copy(world: MovingWorld) -> None:
    vm = world.stopped()

    assert world.move(world.ask(vm)) == TaskOutcome.DONE
    world.sweep()

    assert world.vm(vm).host == "h2"
    assert disks(world) == {disk_of(vm)}
    assert not world.movers.specs[-1].copy_disk


@pytest.mark.parametrize("breaks", [each for each in Breaks if each is not Breaks.DONE])
def test_wherever_a_move_breaks_its_disk_stays(world: MovingWorld, breaks: Breaks) -> None:
    vm = world.running()
    world.movers.fail(breaks)

    world.move(world.ask(vm))
    world.sweep()

    assert len(world.runs(vm)) == 1
    assert disks(world) == {disk_of(vm)}
    assert world.registry.check() == []


def test_a_move_to_a_host_beside_the_pool_copies_the_disk_and_leaves_none(
    world: MovingWorld,
) -> None:
    vm = world.running()

    assert world.move(world.ask(vm, "h3")) == TaskOutcome.DONE
    world.sweep()

    assert world.runs(vm) == ["h3"]
    assert disks(world) == set()
    assert disks(world, "h3") == {disk_of(world.vm(vm))}


def test_a_label_that_is_wrong_costs_a_move_and_no_disk(world: MovingWorld) -> None:
    label(world, "h3", SHARED)
    vm = world.running()

    move = world.ask(vm, "h3")
    world.move(move)
    world.sweep()

    assert "does not see the shared pool" in (world.get(move).last_error or "")
    assert world.runs(vm) == ["h1"]
    assert disks(world) == {disk_of(vm)}


# ---- failover -------------------------------------------------------------------------


def test_a_vm_of_a_fenced_host_starts_elsewhere_with_its_disk(world: MovingWorld) -> None:
    vm = world.running()
    disk = disk_of(vm)
    seed = world.hosts["h1"].contents[f"fuga-{vm.assignment_id}-seed.img"]

    assert fail(world) == ("h1",)

    assert "it starts elsewhere with its disk" in told(world, vm)
    [waits] = world.registry.rounds.read_cluster(take_lease(world.registry)).requests
    assert (waits.count, waits.shared_pool, waits.requires) == (1, "nfs", (SHARED,))
    for seen in ("h2", "h3"):
        world.report(seen)
    assert world.registry.differences.list("h2") == ()
    [key] = start(world)
    assert world.runs(vm) == ["h1", "h2"]  # h1 is off: its fake knows nothing of fences
    assert world.hosts["h2"].volume_of(str(vm.id)) == disk
    # cloud-init takes it for the instance that it was.
    assert world.hosts["h2"].contents[f"fuga-{key}-seed.img"] == seed
    [event] = [
        each
        for each in world.registry.events.list(kind="assignment_state", limit=500)
        if each.event == "fenced"
    ]
    assert "start elsewhere with their disks" in (event.reason or "")

    come_back(world)

    assert world.registry.hosts.get("h1").health == "up"
    assert world.runs(vm) == ["h2"]
    assert disks(world) == {disk}
    assert world.registry.check() == []
    # It goes on from there, also back.
    assert world.move(world.ask(world.vm(vm), "h1")) == TaskOutcome.DONE
    world.sweep()
    assert world.runs(vm) == ["h1"]
    assert disks(world) == {disk}


def test_a_second_host_that_fails_passes_the_disk_on(world: MovingWorld) -> None:
    vm = world.running()
    disk = disk_of(vm)
    fail(world)
    start(world)
    come_back(world)
    label(world, "h2", SHARED, "on_failure=rebuild")

    assert fail(world, "h2") == ("h2",)
    start(world, "h1")
    come_back(world, "h2")

    assert world.runs(vm) == ["h1"]
    assert disks(world) == {disk}


def test_a_host_that_does_not_see_the_disk_builds_nothing_in_its_place(world: MovingWorld) -> None:
    label(world, "h3", SHARED)
    vm = world.running()
    fail(world)

    start(world, "h3")

    assert world.runs(vm) == ["h1"]  # which is off
    assert disks(world, "h3") == set()
    assert disks(world) == {disk_of(vm)}
    assert world.vm(vm).host is None
    start(world, "h2")
    assert world.vm(vm).host == "h2"


def test_what_waits_with_a_disk_and_what_never_had_one_are_placed_apart(world: MovingWorld) -> None:
    request = add_request(world.registry, count=3)
    [key] = place(world.registry, request, world.registry.hosts.get("h1")).assignment_ids
    builds.build_vm(key, world.worker())
    fail(world)

    views = world.registry.rounds.read_cluster(take_lease(world.registry)).requests

    assert [(each.count, each.shared_pool) for each in views] == [(1, "nfs"), (2, None)]
    elsewhere = start(world, "h3", pool=None)
    [again] = start(world, "h2")
    assert len(elsewhere) == 2
    assert len(disks(world, "h3")) == 2
    assert disks(world) == {f"fuga-{key}.qcow2"}
    assert world.registry.assignments.state(again) == AssignmentState.ACTIVE


def test_a_vm_that_is_deleted_while_it_waits_leaves_its_disk_to_one_host(
    world: MovingWorld,
) -> None:
    label(world, "h3", SHARED)
    world.hosts["h3"].volumes = world.hosts["h1"].volumes
    vm = world.running()
    fail(world)

    world.registry.vms.delete(vm.id, actor=ACTOR)
    world.report("h2")
    world.report("h3")

    seen_at = [each.host for each in world.registry.differences.list() if each.host != "h1"]
    assert seen_at == ["h2", "h2"]  # the disk and the seed, once
    world.sweep()
    assert disks(world) == set()


def test_a_vm_that_was_off_keeps_its_disk_until_it_is_started(world: MovingWorld) -> None:
    vm = world.stopped()
    world.registry.vms.change_power(vm.id, VmDesiredEvent.STOP, actor=ACTOR)
    fail(world)
    world.report("h2")
    world.sweep()
    assert start(world) == ()
    assert disks(world) == {disk_of(vm)}

    world.registry.vms.change_power(vm.id, VmDesiredEvent.START, actor=ACTOR)
    start(world)

    assert world.hosts["h2"].domains[str(vm.id)].state is DomainState.RUNNING
    assert disks(world) == {disk_of(vm)}


def test_a_fence_in_the_middle_of_a_move_leaves_one_guest_and_one_disk(world: MovingWorld) -> None:
    vm = world.running()
    world.movers.during = lambda: fail(world) and None
    world.movers.hang(Breaks.ARRIVED)

    world.move(world.ask(vm))
    come_back(world)
    world.sweep()
    start(world)
    come_back(world)

    assert world.runs(vm) == ["h2"]
    assert disks(world) == {disk_of(vm)}
    assert world.registry.check() == []


# ---- hosts with pools of their own ----------------------------------------------------


def test_replace_loses_no_disk_of_a_host_with_a_pool_of_its_own_and_says_so(
    world: MovingWorld,
) -> None:
    host = label(world, "h3", "on_failure=replace")
    vm = world.running()
    assert world.move(world.ask(vm, "h3")) == TaskOutcome.DONE
    world.sweep()

    assert "on_failure=replace moves nothing" in host.warnings[-1]
    assert fail(world, "h3") == ()
    assert fail(world, "h3") == ()

    assert world.vm(vm).host == "h3"
    assert "only that host has its disk" in told(world, vm)
    [event] = world.registry.events.list(kind="host_vms_wait")
    assert "loses no disk" in (event.reason or "")
    come_back(world, "h3")
    assert fail(world, "h3") == ()
    assert len(world.registry.events.list(kind="host_vms_wait")) == 2


def test_rebuild_says_by_name_that_a_disk_may_go(world: MovingWorld) -> None:
    label(world, "h3", "on_failure=rebuild")
    vm = world.running("h3")

    assert fail(world, "h3") == ("h3",)
    start(world, "h1", pool=None)

    assert world.hosts["h1"].volume_of(str(vm.id)) == disk_of(world.vm(vm))


# ---- labels and amounts ---------------------------------------------------------------


def test_each_host_offers_an_even_part_of_a_shared_pool(world: MovingWorld) -> None:
    def offered() -> dict[str, int | None]:
        for name in NAMES:
            world.report(name)
        found = {}
        for name in NAMES:
            inventories = world.registry.hosts.get(name).inventories
            [found[name]] = [each.detected for each in inventories if each.resource == "disk_gib"]
        return found

    whole = world.hosts["h1"].disk_gib

    assert offered() == {"h1": whole // 2, "h2": whole // 2, "h3": whole}
    label(world, "h3", SHARED)
    assert offered() == dict.fromkeys(NAMES, whole // 3)


def test_a_host_has_one_pool(world: MovingWorld) -> None:
    with pytest.raises(InvalidError, match="a host has one pool"):
        label(world, "h1", "shared_pool=a", "shared_pool=b")


@pytest.mark.parametrize("labelled", [True, False])
def test_a_copy_of_a_domain_is_removed_and_the_disk_that_it_names_stays(
    world: MovingWorld, *, labelled: bool
) -> None:
    """Somebody defines a VM's domain on a second host of its pool; an operator has it removed."""
    vm = world.running()
    here, there = world.hosts["h1"], world.hosts["h2"]
    seen = here.domains[str(vm.id)]
    there.domains[str(vm.id)] = replace(seen, state=DomainState.STOPPED, run=None)
    if not labelled:
        label(world, "h2")
    world.report("h1")
    world.report("h2")

    listed = world.registry.differences.list("h2")
    [found] = [each for each in listed if each.on_confirmation is not None]
    world.registry.differences.repair("h2", found.difference, found.subject, actor=ACTOR)
    world.sweep()

    assert found.difference == "wrong_host"
    assert str(vm.id) not in there.domains
    assert len(here.volumes) == 3  # the base, the disk and the seed


def test_a_label_that_is_taken_off_lets_no_word_remove_a_disk(world: MovingWorld) -> None:
    """The folder stays mounted: each host goes on to see the volumes of the other."""
    vm = world.running()
    for name in ("h1", "h2"):
        label(world, name)
        world.report(name)

    listed = world.registry.differences.list("h2")
    assert {each.difference for each in listed} == {"disk_elsewhere"}
    for each in listed:
        with pytest.raises(ConflictError, match="left alone"):
            world.registry.differences.repair("h2", each.difference, each.subject, actor=ACTOR)
    world.registry.vms.delete(vm.id, actor=ACTOR)
    world.sweep()
    world.report("h2")

    assert world.registry.differences.list("h2") == ()
    assert len(world.hosts["h1"].volumes) == 1  # the base


def test_a_guest_that_its_host_holds_up_tells_its_tenant_so(world: MovingWorld) -> None:
    vm = world.running()
    assert world.move(world.ask(vm)) == TaskOutcome.DONE
    domains = world.hosts["h2"].domains
    domains[str(vm.id)] = replace(domains[str(vm.id)], state=DomainState.PAUSED)

    world.report("h2")

    assert "its host has had its guest paused since" in told(world, vm)
    assert world.registry.check() == []


@pytest.mark.parametrize(
    ("off_reason", "difference", "why"),
    [
        ("crash", "vm_crashes", "it crashed within ten minutes of its start: it stays stopped"),
        ("guest", "vm_stopped", "its guest powered off, or it was stopped by hand on its host"),
    ],
)
def test_a_vm_that_stays_off_says_why_at_each_later_poll(
    world: MovingWorld, off_reason: str, difference: str, why: str
) -> None:
    vm = world.running()
    domains = world.hosts["h1"].domains
    off = replace(domains[str(vm.id)], state=DomainState.STOPPED, run=None, off_reason=off_reason)
    domains[str(vm.id)] = off

    for _ in range(2):
        world.report("h1")
        assert {each.difference for each in world.registry.differences.list("h1")} == {difference}
        assert why in told(world, vm)
