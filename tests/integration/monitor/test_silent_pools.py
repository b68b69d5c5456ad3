"""A host whose storage hangs: its guests are well, and nothing that needs storage is begun."""

from __future__ import annotations

import pytest

from registry import AssignmentState, HostHealth, Registry, VmDesiredEvent
from registry.hosts import Host
from tests.integration.workers.world import World, eventually
from tests.register import take_lease
from workers import builds, power, removals
from workers.context import TaskOutcome

LONG_S = 30.0


@pytest.fixture
def world(register: Registry) -> World:
    return World(register)


def host(world: World) -> Host:
    return world.registry.hosts.get("h1")


def events(world: World, kind: str) -> list[dict[str, object]]:
    return [dict(each.data) for each in world.registry.events.list(kind=kind)]


def fall_silent(world: World) -> None:
    world.host.pool_silent_s = LONG_S
    world.report()


def test_a_host_whose_pool_hangs_is_up_says_so_and_gets_no_vms_until_it_answers(
    world: World,
) -> None:
    world.report()
    before = host(world)

    fall_silent(world)

    hung = host(world)
    assert hung.health == HostHealth.UP
    assert hung.pool_silent_since is not None
    assert "storage pool 'default' does not answer since" in (hung.last_error or "")
    assert hung.inventories == before.inventories
    assert hung.version > before.version
    lease = take_lease(world.registry)
    assert [each.accepts for each in world.registry.rounds.read_cluster(lease).hosts] == [False]
    assert [each["pool"] for each in events(world, "pool_silent")] == ["default"]
    report = world.registry.hosts.latest_report("h1")
    assert report.pool_silent_since is not None

    world.report()
    assert host(world).pool_silent_since == hung.pool_silent_since
    assert len(events(world, "pool_silent")) == 1

    world.host.pool_silent_s = None
    world.report()
    assert host(world).pool_silent_since is None
    assert host(world).last_error is None
    assert [each.accepts for each in world.registry.rounds.read_cluster(lease).hosts] == [True]
    assert len(events(world, "pool_answers")) == 1


def test_a_pool_that_takes_a_moment_is_not_silent(world: World) -> None:
    world.report()
    world.host.pool_silent_s = 2.0

    world.report()

    assert host(world).pool_silent_since is None
    assert events(world, "pool_silent") == []


def test_what_nobody_began_to_build_there_is_decided_again_and_nothing_is_begun(
    world: World,
) -> None:
    world.report()
    reserved, begun = world.request(), world.request()
    world.registry.assignments.claim_build(begun, "w0", 0.0)

    fall_silent(world)

    assert world.state(reserved) == AssignmentState.RELEASED
    assert world.state(begun) == AssignmentState.CREATING
    assert builds.build_vm(begun, world.worker()) == TaskOutcome.NOT_OURS
    assert begun not in {due.id for due in world.registry.assignments.send_due_tasks(limit=9)}

    world.host.pool_silent_s = None
    world.report()
    assert world.build(begun) == TaskOutcome.DONE


def test_power_works_and_a_deletion_ends_the_guest_while_the_pool_hangs(world: World) -> None:
    world.report()
    kept, deleted = world.request(), world.request()
    world.build(kept)
    world.build(deleted)
    world.report()
    fall_silent(world)
    vm_id = world.vm_of(kept).id

    world.registry.vms.change_power(vm_id, VmDesiredEvent.STOP, timeout_s=60, actor="cli")
    eventually(
        lambda: power.switch_power(vm_id, world.worker()) and world.vm_of(kept).power is None
    )
    gone = str(world.vm_of(deleted).id)
    world.delete_vm_of(deleted)
    outcome = removals.remove_assignment(deleted, world.worker())

    assert outcome == TaskOutcome.HANDED_BACK
    assert world.state(deleted) == AssignmentState.RELEASING
    assert world.host.domains[gone].run is None
    assert ("remove", gone) not in world.host.log

    world.host.pool_silent_s = None
    world.report()
    assert world.remove(deleted) == TaskOutcome.DONE
    assert gone not in world.host.domains
