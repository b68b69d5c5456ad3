"""Everything that can cross a build: each worker here is stopped, killed or overtaken somewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any
from uuid import UUID

import pytest

from hypervisor import (
    DomainState,
    HostUnreachableError,
    HostVolume,
    Mark,
    OperationFailedError,
    VmLimits,
    volume_name,
)
from registry import AssignmentState, Registry
from registry.db.ids import uuid7
from registry.hosts import HostAccess
from tests.fakes.hypervisor import FakeHypervisor
from tests.integration.workers.world import SHORT_LEASE_S, KilledError, OneHost, World, eventually
from tests.raw_sql import RawSql
from tests.register import add_host, add_request
from workers import builds, removals
from workers.context import TaskOutcome
from workers.errors import HostBusyError
from workers.host_limits import HostLimits

#: What a build does on its host, in order.
STEPS = ["create_overlay", "put_volume", "define", "start_paused", "resume"]
#: Up to the compare-and-set that makes an assignment active.
STEPS_BEFORE_ACTIVE = STEPS[:4]
CHECKPOINTS = [
    "create.after_volume",
    "create.after_define",
    "create.before_resume",
    "create.after_activate",
]

pytestmark = pytest.mark.sampled(4)


# --- nothing crosses ------------------------------------------------------------------


def test_a_reserved_assignment_becomes_a_running_vm(world: World) -> None:
    assignment_id = world.request()

    outcome = builds.build_vm(assignment_id, world.worker())

    assert outcome == TaskOutcome.DONE
    world.assert_runs_once(assignment_id)
    assert [op for op, _ in world.host.log if op != "report"] == ["find", *STEPS]


def test_a_domain_carries_the_mark_of_its_assignment(world: World) -> None:
    assignment_id = world.request()

    builds.build_vm(assignment_id, world.worker())

    vm = world.vm_of(assignment_id)
    mark = world.host.domains[str(vm.id)].mark
    assert mark is not None
    assert (mark.vm_id, mark.assignment_id) == (str(vm.id), str(assignment_id))
    assert (mark.generation, mark.tenant, mark.round) == (1, "a", 1)


def test_a_deleted_vm_leaves_nothing(world: World) -> None:
    assignment_id = world.built()
    world.delete_vm_of(assignment_id)

    assert removals.remove_assignment(assignment_id, world.worker()) == TaskOutcome.DONE

    world.assert_nothing_is_left(assignment_id)


def test_the_guest_gets_no_more_memory_than_the_host_backs(register: Registry) -> None:
    world = World(register, memory_backing_mib=128)
    assignment_id = world.request()

    builds.build_vm(assignment_id, world.worker())

    [domain] = world.host.domains.values()
    assert domain.memory_mib == 128
    assert world.committed()["memory_mib"] == 3072


def test_a_domain_is_defined_with_the_limits_of_its_type(world: World) -> None:
    resources = {"vcpus": 1, "memory_mib": 512}
    limits = {"disk_iops": 500, "net_mbps": 100}
    world.registry.vm_types.add("slow", resources, limits=limits, actor="cli")
    for vm_type in ("slow", "small"):
        assignment_id = world.place(add_request(world.registry, vm_type=vm_type).id)
        builds.build_vm(assignment_id, world.worker())

    found = {spec.memory_mib: spec.limits for spec in world.host.specs.values()}
    assert found == {512: VmLimits(disk_iops=500, net_mbps=100), 3072: VmLimits()}


# --- messages late and twice ----------------------------------------------------------


def test_a_message_that_comes_twice_does_nothing_the_second_time(world: World) -> None:
    assignment_id = world.built()
    seen = len(world.host.log)

    assert builds.build_vm(assignment_id, world.worker("w2")) == TaskOutcome.NOT_OURS
    assert len(world.host.log) == seen


def test_a_message_that_comes_while_another_worker_builds_does_nothing(world: World) -> None:
    assignment_id = world.request()
    outcomes = []
    world.host.before(
        "define", lambda: outcomes.append(builds.build_vm(assignment_id, world.worker("w2")))
    )

    assert builds.build_vm(assignment_id, world.worker()) == TaskOutcome.DONE

    assert outcomes == [TaskOutcome.NOT_OURS]
    world.assert_runs_once(assignment_id)


def test_a_build_message_after_the_deletion_does_nothing(world: World) -> None:
    assignment_id = world.built()
    world.delete_vm_of(assignment_id)
    assert builds.build_vm(assignment_id, world.worker()) == TaskOutcome.NOT_OURS
    world.remove(assignment_id)

    assert builds.build_vm(assignment_id, world.worker()) == TaskOutcome.NOT_OURS

    world.assert_nothing_is_left(assignment_id)


def test_a_removal_message_of_a_vm_that_nobody_deleted_does_nothing(world: World) -> None:
    assignment_id = world.built()

    assert removals.remove_assignment(assignment_id, world.worker()) == TaskOutcome.NOT_OURS

    world.assert_runs_once(assignment_id)


def test_a_message_about_something_unknown_does_nothing(world: World) -> None:
    assert builds.build_vm(uuid7(), world.worker()) == TaskOutcome.NOT_OURS
    assert removals.remove_assignment(uuid7(), world.worker()) == TaskOutcome.NOT_OURS
    assert removals.remove_leftover(uuid7(), world.worker()) == TaskOutcome.NOT_OURS


# --- a worker stopped past its lease, and continued -----------------------------------


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_overtaken_around_a_step_starts_nothing_twice(
    world: World, step: str, when: str
) -> None:
    assignment_id = world.request()
    getattr(world.host, when)(step, lambda: world.build(assignment_id))

    outcome = builds.build_vm(assignment_id, world.worker(lease_s=SHORT_LEASE_S))

    assert outcome == TaskOutcome.CLAIM_LOST
    world.assert_runs_once(assignment_id)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_vm_deleted_and_removed_around_a_step_leaves_nothing(
    world: World, step: str, when: str
) -> None:
    assignment_id = world.request()

    def delete() -> None:
        world.delete_vm_of(assignment_id)
        assert world.remove(assignment_id) == TaskOutcome.DONE

    getattr(world.host, when)(step, delete)

    outcome = builds.build_vm(assignment_id, world.worker(lease_s=SHORT_LEASE_S))

    assert outcome in {TaskOutcome.CLAIM_LOST, TaskOutcome.HANDED_BACK}
    world.assert_nothing_is_left(assignment_id)


@pytest.mark.parametrize("step", STEPS_BEFORE_ACTIVE)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_vm_deleted_around_a_step_is_removed_by_the_worker_that_builds_it(
    world: World, step: str, when: str
) -> None:
    assignment_id = world.request()
    getattr(world.host, when)(step, lambda: world.delete_vm_of(assignment_id))

    assert builds.build_vm(assignment_id, world.worker()) == TaskOutcome.CLAIM_LOST

    assert world.host.consoles == {}
    world.assert_nothing_is_left(assignment_id)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_vm_deleted_around_its_resume_is_left_to_the_deleter_at_once(
    world: World, when: str
) -> None:
    assignment_id = world.request()
    getattr(world.host, when)("resume", lambda: world.delete_vm_of(assignment_id))

    builds.build_vm(assignment_id, world.worker())

    # The builder gave its lease back: the deleter need not wait a minute for it.
    assert removals.remove_assignment(assignment_id, world.worker("deleter")) == TaskOutcome.DONE
    world.assert_nothing_is_left(assignment_id)


@pytest.mark.parametrize("step", STEPS_BEFORE_ACTIVE)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_that_wakes_after_its_vm_was_built_anew_leaves_that_one_alone(
    world: World, step: str, when: str
) -> None:
    first = world.request()
    request_id = world.vm_of(first).request_id
    second = []

    def fail_and_place_again() -> None:
        world.host.fail_at("find")
        assert world.build(first) == TaskOutcome.FAILED
        assert world.state(first) == AssignmentState.RELEASED
        second.append(world.place(request_id))
        assert world.build(second[0]) == TaskOutcome.DONE

    getattr(world.host, when)(step, fail_and_place_again)

    outcome = builds.build_vm(first, world.worker(lease_s=SHORT_LEASE_S))

    assert outcome == TaskOutcome.CLAIM_LOST
    # The first attempt may have been started, paused, before it was removed.
    world.assert_runs_once(second[0], starts=2 if (step, when) == ("start_paused", "after") else 1)


@pytest.mark.parametrize("step", STEPS_BEFORE_ACTIVE)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_build_that_is_ended_as_too_long_around_a_step_leaves_nothing(
    world: World, raw: RawSql, step: str, when: str
) -> None:
    assignment_id = world.request()

    def end() -> None:
        raw.run(f"UPDATE assignments SET build_began_at = {raw.before('now', '1000 seconds')}")
        assert world.registry.assignments.end_overdue(900) == (assignment_id,)
        assert world.committed()["vcpus"] == 1

    getattr(world.host, when)(step, end)

    assert builds.build_vm(assignment_id, world.worker()) == TaskOutcome.CLAIM_LOST

    world.assert_nothing_is_left(assignment_id)


@pytest.mark.parametrize("step", STEPS_BEFORE_ACTIVE)
def test_what_a_worker_makes_between_the_deleters_look_and_its_release_goes_too(
    world: World, step: str
) -> None:
    """The builder wakes when absence was proven already, but before that is written down."""
    assignment_id = world.request()
    stopped, continued = Event(), Event()
    outcomes: list[TaskOutcome] = []

    def stop() -> None:
        stopped.set()
        assert continued.wait(30)

    def build() -> None:
        outcomes.append(builds.build_vm(assignment_id, world.worker(lease_s=SHORT_LEASE_S)))

    world.host.before(step, stop)
    builder = threading.Thread(target=build)
    builder.start()
    assert stopped.wait(30)
    world.delete_vm_of(assignment_id)

    def let_the_builder_go_on() -> None:
        continued.set()
        builder.join(30)

    world.host.after("remove", let_the_builder_go_on)
    world.remove(assignment_id)

    assert outcomes == [TaskOutcome.CLAIM_LOST]
    world.assert_nothing_is_left(assignment_id)


# --- a worker killed ------------------------------------------------------------------


def kill_at(point: str) -> Any:
    def checkpoint(name: str) -> None:
        if name == point:
            raise KilledError(name)

    return checkpoint


def build_and_die(world: World, assignment_id: UUID, point: str) -> None:
    context = world.worker(lease_s=SHORT_LEASE_S, checkpoint=kill_at(point))
    with pytest.raises(KilledError):
        builds.build_vm(assignment_id, context)


@pytest.mark.parametrize("point", CHECKPOINTS)
def test_a_build_whose_worker_was_killed_is_finished_by_another(world: World, point: str) -> None:
    assignment_id = world.request()

    build_and_die(world, assignment_id, point)
    assert world.build(assignment_id) == TaskOutcome.DONE

    world.assert_runs_once(assignment_id)


@pytest.mark.parametrize("point", CHECKPOINTS)
def test_a_vm_deleted_after_its_worker_was_killed_leaves_nothing(world: World, point: str) -> None:
    assignment_id = world.request()

    build_and_die(world, assignment_id, point)
    world.delete_vm_of(assignment_id)
    assert world.remove(assignment_id) == TaskOutcome.DONE

    world.assert_nothing_is_left(assignment_id)


def test_a_removal_whose_worker_was_killed_is_finished_by_another(world: World) -> None:
    assignment_id = world.built()
    world.delete_vm_of(assignment_id)

    with pytest.raises(KilledError):
        removals.remove_assignment(
            assignment_id,
            world.worker(lease_s=SHORT_LEASE_S, checkpoint=kill_at("delete.after_destroy")),
        )
    assert world.remove(assignment_id) == TaskOutcome.DONE

    world.assert_nothing_is_left(assignment_id)


def test_a_vm_whose_worker_was_killed_before_the_resume_survives_a_power_cycle(
    world: World,
) -> None:
    assignment_id = world.request()
    build_and_die(world, assignment_id, "create.after_activate")
    world.host.power_cycle()

    assert world.build(assignment_id) == TaskOutcome.DONE

    [domain] = world.host.domains.values()
    assert domain.state is DomainState.RUNNING


def test_an_active_vm_whose_domain_went_before_it_ever_ran_can_be_decided_again(
    world: World,
) -> None:
    assignment_id = world.request()
    build_and_die(world, assignment_id, "create.after_activate")
    world.host.domains.clear()

    assert world.build(assignment_id) == TaskOutcome.FAILED

    world.assert_nothing_is_left(assignment_id)


# --- a host that hangs or refuses -----------------------------------------------------


@pytest.mark.parametrize("step", ["find", *STEPS])
@pytest.mark.parametrize("after", [False, True], ids=["before doing it", "after doing it"])
def test_a_build_that_a_hung_host_cut_short_is_taken_up_again(
    world: World, step: str, after: bool
) -> None:
    assignment_id = world.request()
    world.host.hang_at(step, after=after)

    assert builds.build_vm(assignment_id, world.worker()) in {
        TaskOutcome.FAILED,
        TaskOutcome.HANDED_BACK,
    }
    assert world.vm_of(assignment_id).last_error
    assert world.build(assignment_id) == TaskOutcome.DONE

    world.assert_runs_once(assignment_id)


def test_a_timeout_frees_no_capacity(world: World) -> None:
    assignment_id = world.request()
    world.host.unreachable = True

    for _ in range(8):
        builds.build_vm(assignment_id, world.worker())

    assert world.state(assignment_id) == AssignmentState.QUARANTINED
    assert world.committed()["vcpus"] == 1
    assert removals.remove_assignment(assignment_id, world.worker()) == TaskOutcome.HANDED_BACK
    assert world.committed()["vcpus"] == 1

    world.host.unreachable = False
    assert world.remove(assignment_id) == TaskOutcome.DONE
    world.assert_nothing_is_left(assignment_id)


@pytest.mark.parametrize("step", STEPS_BEFORE_ACTIVE)
def test_a_refused_build_is_proven_absent_at_once_and_can_be_decided_again(
    world: World, step: str
) -> None:
    assignment_id = world.request()
    vm = world.vm_of(assignment_id)
    world.host.fail_at(step, OperationFailedError(step, "No space left on device", 38))

    assert builds.build_vm(assignment_id, world.worker()) == TaskOutcome.FAILED

    world.assert_nothing_is_left(assignment_id)
    assert "No space left on device" in (world.registry.vms.get(vm.id).last_error or "")
    again = world.place(vm.request_id)
    assert world.build(again) == TaskOutcome.DONE
    world.assert_runs_once(again)


def test_a_refused_build_on_a_host_that_then_falls_silent_stays_quarantined(world: World) -> None:
    assignment_id = world.request()
    world.host.fail_at("start_paused")
    world.host.fail_at("find", times=0)
    world.host.before("start_paused", lambda: world.host.hang_at("find"))

    assert builds.build_vm(assignment_id, world.worker()) == TaskOutcome.FAILED
    assert world.state(assignment_id) == AssignmentState.QUARANTINED
    assert world.committed()["vcpus"] == 1

    assert world.remove(assignment_id) == TaskOutcome.DONE
    world.assert_nothing_is_left(assignment_id)


@pytest.mark.parametrize("op", ["find", "destroy", "remove"])
@pytest.mark.parametrize("after", [False, True], ids=["before doing it", "after doing it"])
def test_a_removal_that_a_hung_host_cut_short_frees_nothing_until_it_is_proven(
    world: World, op: str, after: bool
) -> None:
    assignment_id = world.built()
    world.delete_vm_of(assignment_id)
    world.host.hang_at(op, after=after)

    assert removals.remove_assignment(assignment_id, world.worker()) == TaskOutcome.HANDED_BACK
    assert world.committed()["vcpus"] == 1
    assert world.remove(assignment_id) == TaskOutcome.DONE

    world.assert_nothing_is_left(assignment_id)


def test_a_host_that_refuses_a_removal_keeps_the_assignment_with_the_reason(world: World) -> None:
    assignment_id = world.built()
    world.delete_vm_of(assignment_id)
    world.host.fail_at("remove", OperationFailedError("remove", "device or resource busy", 38))

    assert removals.remove_assignment(assignment_id, world.worker()) == TaskOutcome.HANDED_BACK

    assert world.state(assignment_id) == AssignmentState.RELEASING
    assert "busy" in (world.vm_of(assignment_id).last_error or "")


# --- what is there already ------------------------------------------------------------


def test_an_older_attempt_that_was_released_is_cleared_away_first(world: World) -> None:
    first = world.request()
    request_id, vm_id = world.vm_of(first).request_id, str(world.vm_of(first).id)
    world.host.fail_at("start_paused")
    kept: dict[str, Any] = {}

    def keep() -> None:
        kept.update(domain=world.host.domains[vm_id], volumes=dict(world.host.volumes))

    world.host.before("start_paused", keep)
    builds.build_vm(first, world.worker())
    second = world.place(request_id)
    # As a libvirtd does that was frozen with a define in its socket.
    world.host.domains[vm_id] = kept["domain"]
    world.host.volumes.update(kept["volumes"])

    assert builds.build_vm(second, world.worker()) == TaskOutcome.DONE

    world.assert_runs_once(second)


def test_a_stranger_with_the_vms_uuid_is_left_alone_and_the_vm_placed_nowhere_else(
    world: World,
) -> None:
    assignment_id = world.request()
    vm_id = str(world.vm_of(assignment_id).id)
    world.host.add_stranger(vm_id)

    assert builds.build_vm(assignment_id, world.worker()) == TaskOutcome.FAILED

    assert world.host.domains[vm_id].name == "stranger"
    assert world.host.domains[vm_id].state is DomainState.RUNNING
    assert world.state(assignment_id) == AssignmentState.QUARANTINED
    assert "without fuga's mark" in (world.vm_of(assignment_id).last_error or "")


# --- ending -----------------------------------------------------------------------------


def test_a_worker_that_is_to_end_takes_nothing_new(world: World) -> None:
    assignment_id = world.request()
    context = world.worker()
    context.stopping.set()

    assert builds.build_vm(assignment_id, context) == TaskOutcome.NOT_OURS
    assert removals.remove_assignment(assignment_id, context) == TaskOutcome.NOT_OURS
    assert removals.remove_leftover(assignment_id, context) == TaskOutcome.NOT_OURS

    assert world.state(assignment_id) == AssignmentState.RESERVED


@pytest.mark.parametrize("step", STEPS_BEFORE_ACTIVE)
def test_a_worker_that_is_to_end_hands_back_what_it_holds_at_once(world: World, step: str) -> None:
    assignment_id = world.request()
    context = world.worker()
    world.host.before(step, context.stopping.set)

    builds.build_vm(assignment_id, context)
    if world.state(assignment_id) != AssignmentState.ACTIVE:
        assert builds.build_vm(assignment_id, world.worker("w2")) == TaskOutcome.DONE

    world.assert_runs_once(assignment_id)


# --- leftovers --------------------------------------------------------------------------


def test_what_a_worker_could_not_clear_away_becomes_a_leftover_and_goes(world: World) -> None:
    """It lost its claim, and its host fell silent before it could remove what it had made."""
    assignment_id = world.request()

    def delete() -> None:
        world.delete_vm_of(assignment_id)
        assert world.remove(assignment_id) == TaskOutcome.DONE
        world.host.before("start_paused", lambda: world.host.hang_at("remove"))

    world.host.before("define", delete)
    builds.build_vm(assignment_id, world.worker(lease_s=SHORT_LEASE_S))
    assert world.state(assignment_id) == AssignmentState.RELEASED

    def all_is_gone() -> bool:
        world.report()
        for due in world.registry.assignments.send_due_tasks(resend_after_s=0):
            assert due.task == "workers.remove_leftover"
            removals.remove_leftover(due.id, world.worker())
        return not world.host.domains and set(world.host.volumes) == {"base.qcow2"}

    eventually(all_is_gone)
    world.assert_nothing_is_left(assignment_id)


class PoolHosts:
    """Lends the hosts that see one pool."""

    def __init__(self, *hosts: FakeHypervisor) -> None:
        self._hosts = {each.uri: each for each in hosts}

    @contextmanager
    def use(self, host: HostAccess) -> Iterator[FakeHypervisor]:
        yield self._hosts[host.uri]


def a_shared_pool(
    register: Registry, neighbours: int = 1, **host_fields: Any
) -> tuple[World, list[FakeHypervisor], HostLimits]:
    """Return host h1 of a shared pool, the other hosts that see it, and the way to all of them."""
    world = World(register, **{"labels": ["shared_pool=nfs"]} | host_fields)
    others = [FakeHypervisor(f"qemu+tcp://h{n}.test/system") for n in range(2, neighbours + 2)]
    for number, each in enumerate(others, 2):
        add_host(register, f"h{number}", uri=each.uri, labels=["shared_pool=nfs"])
    hosts = PoolHosts(world.host, *others)
    return world, others, HostLimits(hosts, max_threads=8, pause_s=0, wait_s=0)


class BusyHost:
    """Lends hosts, but for one that gets no further thread."""

    def __init__(self, hosts: HostLimits, uri: str) -> None:
        self.hosts = hosts
        self._uri = uri

    @contextmanager
    def use(self, host: HostAccess, *, pool: bool = False) -> Iterator[Any]:
        if host.uri == self._uri:
            raise HostBusyError(host.uri, "8 threads are on it")
        with self.hosts.use(host, pool=pool) as found:
            yield found


def a_leftover_disk(world: World, hosts: HostLimits) -> str:
    """Return the name of a volume of a VM that is gone, which the host shows."""
    assignment_id = world.built()
    world.delete_vm_of(assignment_id)
    assert world.remove(assignment_id, hosts=hosts) == TaskOutcome.DONE
    disk = volume_name(str(assignment_id))
    world.host.volumes[disk] = HostVolume(name=disk, capacity_bytes=1 << 30, allocation_bytes=0)
    world.report()
    return disk


def test_a_volume_goes_once_no_domain_of_a_host_that_sees_its_pool_can_use_it(
    register: Registry,
) -> None:
    world, [neighbour], hosts = a_shared_pool(register)
    disk = a_leftover_disk(world, hosts)

    def attempt() -> set[TaskOutcome]:
        due = world.registry.assignments.send_due_tasks(resend_after_s=0)
        context = world.worker(hosts=hosts, lease_s=0.001)
        return {removals.remove_leftover(each.id, context) for each in due}

    neighbour.users[disk] = "an-operators-own"
    assert attempt() == {TaskOutcome.HANDED_BACK}
    assert disk in world.host.volumes
    [stays] = world.registry.differences.list("h1")
    assert (
        f"it stays: remove failed: domain an-operators-own of h2 uses {disk}: find out"
        in stays.what
    )

    neighbour.users.clear()
    neighbour.unreachable = True
    eventually(lambda: attempt() == {TaskOutcome.HANDED_BACK})
    assert disk in world.host.volumes

    neighbour.unreachable = False
    eventually(lambda: attempt() == {TaskOutcome.DONE})
    assert disk not in world.host.volumes


@pytest.mark.parametrize("is_leftover", [False, True])
def test_a_file_of_a_deleted_vm_stays_while_a_domain_of_another_host_declares_it(
    register: Registry, is_leftover: bool
) -> None:
    """That domain may declare it raw: then its chain does not reach the VM's disk."""
    world, [neighbour], hosts = a_shared_pool(register)
    assignment_id = world.built()
    disk = volume_name(str(assignment_id))
    domains, volumes = dict(world.host.domains), dict(world.host.volumes)
    world.delete_vm_of(assignment_id)
    if is_leftover:
        assert world.remove(assignment_id, hosts=hosts) == TaskOutcome.DONE
        world.host.domains.update(domains)
        world.report()
        world.host.volumes.update(volumes)
    world.host.layers[disk] = ["snap1"]
    neighbour.users["snap1"] = "rescue"

    if is_leftover:
        [due] = world.registry.assignments.send_due_tasks(resend_after_s=0)
        removals.remove_leftover(due.id, world.worker(hosts=hosts))
        assert not world.host.domains  # its files are leftovers of their own
    else:
        assert world.remove(assignment_id, hosts=hosts) == TaskOutcome.HANDED_BACK

    assert disk in world.host.volumes
    neighbour.users.clear()
    if not is_leftover:
        assert world.remove(assignment_id, hosts=hosts) == TaskOutcome.DONE
        assert disk not in world.host.volumes


def test_a_deletion_lasts_as_long_as_the_hosts_that_see_its_pool_take_to_answer(
    register: Registry,
) -> None:
    world, neighbours, hosts = a_shared_pool(register, 2)
    for each in neighbours:
        each.before("users_of", lambda: time.sleep(2 * SHORT_LEASE_S))
    assignment_id = world.built()
    world.delete_vm_of(assignment_id)

    outcome = world.remove(assignment_id, hosts=hosts, lease_s=SHORT_LEASE_S)

    assert outcome == TaskOutcome.DONE
    assert world.state(assignment_id) == AssignmentState.RELEASED


def test_a_leftover_lasts_as_long_as_the_hosts_that_see_its_pool_take_to_answer(
    register: Registry,
) -> None:
    world, neighbours, hosts = a_shared_pool(register, 3)
    disk = a_leftover_disk(world, hosts)
    for each in neighbours:
        each.before("users_of", lambda: time.sleep(2 * SHORT_LEASE_S))
    [due] = world.registry.assignments.send_due_tasks(resend_after_s=0)

    outcome = removals.remove_leftover(due.id, world.worker(hosts=hosts, lease_s=SHORT_LEASE_S))

    assert outcome == TaskOutcome.DONE
    assert disk not in world.host.volumes


@pytest.mark.parametrize("owner", ["w2", "another thread of this worker"])
def test_a_leftover_that_another_worker_took_over_is_left_to_it(
    register: Registry, owner: str
) -> None:
    world, neighbours, hosts = a_shared_pool(register, 2)
    disk = a_leftover_disk(world, hosts)
    [due] = world.registry.assignments.send_due_tasks(resend_after_s=0)

    worker = world.worker(hosts=hosts, lease_s=SHORT_LEASE_S)

    def take_over() -> None:
        time.sleep(2 * SHORT_LEASE_S)
        other = owner if owner == "w2" else worker.owner
        assert world.registry.assignments.claim_leftover(due.id, other, 60) is not None

    neighbours[0].before("users_of", take_over)
    outcome = removals.remove_leftover(due.id, worker)

    assert outcome == TaskOutcome.CLAIM_LOST
    assert disk in world.host.volumes


@pytest.mark.parametrize("problem", ["used", "unreachable", "busy"])
def test_a_deleted_vms_disk_goes_once_each_host_that_sees_its_pool_says_it_is_unused(
    register: Registry, problem: str
) -> None:
    world, [neighbour], hosts = a_shared_pool(register)
    assignment_id = world.built()
    world.delete_vm_of(assignment_id)
    disk = volume_name(str(assignment_id))
    if problem == "used":
        neighbour.users[disk] = "an-operators-own"
    elif problem == "unreachable":
        neighbour.unreachable = True
    else:
        hosts = BusyHost(hosts, neighbour.uri)  # type: ignore[assignment]

    assert world.remove(assignment_id, hosts=hosts) == TaskOutcome.HANDED_BACK

    [domain] = world.host.domains.values()
    assert domain.state is DomainState.STOPPED
    assert disk in world.host.volumes
    assert world.state(assignment_id) == AssignmentState.RELEASING
    if problem == "used":
        assert "an-operators-own of h2 uses" in str(world.vm_of(assignment_id).last_error)
    if problem == "busy":
        said = "host h2, which sees the pool, was not queried: 8 threads are on it"
        assert said in str(world.vm_of(assignment_id).last_error)
        hosts = hosts.hosts  # type: ignore[attr-defined]

    neighbour.users.clear()
    neighbour.unreachable = False
    eventually(lambda: world.remove(assignment_id, hosts=hosts) == TaskOutcome.DONE)
    world.assert_nothing_is_left(assignment_id)


def test_no_host_is_asked_of_a_disk_in_a_pool_of_its_host_alone(register: Registry) -> None:
    world, [neighbour], hosts = a_shared_pool(register, labels=[])
    assignment_id = world.built()
    world.delete_vm_of(assignment_id)

    assert world.remove(assignment_id, hosts=hosts) == TaskOutcome.DONE

    assert neighbour.log == []


def test_a_vm_of_another_installation_on_the_host_is_left_alone(world: World) -> None:
    world.host.add_stranger(
        str(uuid7()),
        mark=Mark(
            vm_id=str(uuid7()), assignment_id=str(uuid7()), generation=1, tenant="x", round=9
        ),
    )
    world.report()
    for due in world.registry.assignments.send_due_tasks(resend_after_s=0):
        removals.remove_leftover(due.id, world.worker())

    [domain] = world.host.domains.values()
    assert domain.state is DomainState.RUNNING


def test_what_a_full_host_refused_is_sent_again_as_soon_as_a_build_there_ends(
    register: Registry,
) -> None:
    world = World(register, max_builds=1)
    first, second = world.request(), world.request()
    sent: list[tuple[str, Any]] = []
    context = world.worker(send=lambda due: sent.append((due.task, due.id)))
    assert (
        len(world.registry.assignments.send_due_tasks()) == 1
    )  # the other comes of a message sent before
    refused = []
    world.host.before("define", lambda: refused.append(builds.build_vm(second, world.worker("w2"))))

    builds.build_vm(first, context)

    assert refused == [TaskOutcome.NOT_OURS]
    assert sent == [("workers.create_vm", second)]


def test_a_hung_host_is_not_asked_again_at_once(world: World) -> None:
    first, second = world.request(), world.request()
    context = world.worker(
        hosts=HostLimits(OneHost(world.host), max_threads=2, pause_s=3600, wait_s=0)
    )
    world.host.fail_at("find", HostUnreachableError(world.host.uri, "no answer"))
    builds.build_vm(first, context)
    requested = len(world.host.log)

    assert builds.build_vm(second, context) == TaskOutcome.HANDED_BACK

    assert len(world.host.log) == requested
    assert world.build(second) == TaskOutcome.DONE
