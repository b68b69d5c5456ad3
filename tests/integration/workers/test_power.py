"""Stop, start and reboot, and what may cross them, on a host in memory and both databases."""

from __future__ import annotations

from uuid import UUID

import pytest

from hypervisor import DomainState, Guard, HostUnreachableError, OperationFailedError
from registry import ConflictError, PowerState, Registry, VmDesiredEvent
from registry.requests import Vm
from tests.integration.workers.world import SHORT_LEASE_S, KilledError, World, eventually
from tests.raw_sql import RawSql
from tests.register import add_request
from workers import builds, power
from workers.context import TaskOutcome

STOP, START, REBOOT = VmDesiredEvent.STOP, VmDesiredEvent.START, VmDesiredEvent.REBOOT


class PowerWorld(World):
    """A world with one VM that runs."""

    def __init__(self, registry: Registry, *, built: bool = True) -> None:
        super().__init__(registry)
        self.assignment_id = self.request()
        if built:
            builds.build_vm(self.assignment_id, self.worker())
        self.vm_id = self.vm_of(self.assignment_id).id

    @property
    def vm(self) -> Vm:
        return self.registry.vms.get(self.vm_id)

    @property
    def domain(self) -> DomainState:
        return self.host.domains[str(self.vm_id)].state

    def deaf(self) -> None:
        self.host.deaf.add(str(self.vm_id))

    def ask(self, event: VmDesiredEvent, timeout_s: int = 60) -> Vm:
        return self.registry.vms.change_power(
            self.vm_id, event, timeout_s=timeout_s, actor="tenant:a"
        )

    def step(self, **changes: object) -> TaskOutcome:
        """Let a worker take one step, as soon as one is due."""
        return self._as_soon_as_possible(power.switch_power, self.vm_id, **changes)

    def settle(self) -> None:
        """Let workers go on until nothing is left to do."""
        eventually(lambda: power.switch_power(self.vm_id, self.worker()) and self.vm.power is None)

    def calls(self, *ops: str) -> list[str]:
        return [op for op, _ in self.host.log if op in ops]

    def states(self) -> tuple[str, str]:
        return self.vm.desired.value, self.vm.observed.value


@pytest.fixture
def world(register: Registry) -> PowerWorld:
    return PowerWorld(register)


def assert_sound(world: PowerWorld) -> None:
    assert world.registry.check() == []


def test_a_stopped_vm_was_told_to_shut_down_and_keeps_its_place_and_share(world: PowerWorld):
    held = world.committed()

    move = world.ask(STOP)
    world.settle()

    assert move.power is not None
    assert move.power.state is PowerState.STOPPING
    assert world.states() == ("stopped", "stopped")
    assert world.domain is DomainState.STOPPED
    assert world.calls("shut_down", "power_off") == ["shut_down"]
    assert world.committed() == held
    assert world.vm.host == "h1"
    assert_sound(world)


def test_a_guest_that_does_not_listen_is_forced_after_its_time(world: PowerWorld):
    world.deaf()

    world.ask(STOP, timeout_s=1)
    world.settle()

    assert world.states() == ("stopped", "stopped")
    assert world.calls("shut_down", "power_off") == ["shut_down", "power_off"]
    assert_sound(world)


def test_with_no_timeout_the_power_is_cut_without_a_word(world: PowerWorld):
    world.ask(STOP, timeout_s=0)

    assert world.step() == TaskOutcome.DONE

    assert world.calls("shut_down", "power_off") == ["power_off"]
    assert world.states() == ("stopped", "stopped")


def test_force_after_a_graceful_stop_does_not_wait_for_it(world: PowerWorld):
    world.deaf()
    world.ask(STOP, timeout_s=3600)
    world.step()

    world.ask(STOP, timeout_s=0)

    assert world.step() == TaskOutcome.DONE
    assert world.states() == ("stopped", "stopped")


def test_a_stopped_vm_starts_again_where_it_was(world: PowerWorld):
    world.ask(STOP)
    world.settle()

    world.ask(START)
    world.settle()

    assert world.states() == ("running", "running")
    world.assert_runs_once(world.assignment_id, starts=2)


def test_what_is_asked_twice_is_done_once(world: PowerWorld):
    for _ in range(2):
        world.ask(STOP)
    world.settle()
    for _ in range(2):
        world.ask(START)
    world.settle()

    world.assert_runs_once(world.assignment_id, starts=2)
    assert world.calls("shut_down") == ["shut_down"]


def test_a_running_vm_that_is_started_stays_as_it_is(world: PowerWorld):
    world.ask(START)
    world.settle()

    world.assert_runs_once(world.assignment_id, starts=1)


def test_a_reboot_shuts_down_and_starts(world: PowerWorld):
    world.ask(REBOOT)
    world.settle()

    assert world.calls("shut_down", "reset") == ["shut_down"]
    world.assert_runs_once(world.assignment_id, starts=2)


def test_a_reboot_resets_a_guest_that_does_not_listen(world: PowerWorld):
    world.deaf()

    world.ask(REBOOT, timeout_s=1)
    world.settle()

    assert world.calls("shut_down", "reset", "power_off") == ["shut_down", "reset"]
    world.assert_runs_once(world.assignment_id, starts=1)


def test_a_start_while_the_guest_goes_down_starts_it_again_afterwards(world: PowerWorld):
    world.deaf()
    world.ask(STOP)
    world.step()
    world.ask(START)
    world.host.deaf.clear()
    world.host.power_off(str(world.vm_id), run=1)  # at last

    world.settle()

    world.assert_runs_once(world.assignment_id, starts=2)


def test_a_stop_during_a_reboot_leaves_it_off(world: PowerWorld):
    world.deaf()
    world.ask(REBOOT)
    world.step()

    world.ask(STOP, timeout_s=0)
    world.settle()

    assert world.states() == ("stopped", "stopped")
    assert_sound(world)


def test_a_stopped_vm_is_not_rebooted(world: PowerWorld):
    world.ask(STOP)

    with pytest.raises(ConflictError, match="start it"):
        world.ask(REBOOT)


def test_a_deleted_vm_is_not_started(world: PowerWorld):
    world.ask(STOP)
    world.settle()
    world.registry.vms.delete(world.vm_id, actor="cli")

    with pytest.raises(ConflictError, match="deleted"):
        world.ask(START)


# --- a guest of its own mind ----------------------------------------------------------


def test_a_guest_that_powers_itself_off_stays_off_and_keeps_its_place(world: PowerWorld):
    held = world.committed()
    world.host.power_off(str(world.vm_id), run=1)

    world.report()

    assert world.states() == ("running", "stopped")
    assert world.registry.assignments.send_due_tasks(resend_after_s=0) == ()
    assert world.committed() == held
    request = world.registry.requests.get(world.vm.request_id)
    assert (request.state, request.vms_placed, request.waiting) == ("placed", 1, None)
    assert_sound(world)


def test_a_guest_that_powered_itself_off_can_be_started(world: PowerWorld):
    world.host.power_off(str(world.vm_id), run=1)
    world.report()

    world.ask(START)
    world.settle()

    world.assert_runs_once(world.assignment_id, starts=2)


def test_a_vm_from_before_filters_is_filtered_from_its_next_start(world: PowerWorld):
    world.host.guards.clear()
    world.ask(STOP)
    world.settle()

    world.ask(START)
    world.settle()

    assert world.host.guards == {str(world.vm_id): Guard(filtered=True, isolated=True)}


def test_a_stopped_vm_that_somebody_starts_on_its_host_is_stopped_again(world: PowerWorld):
    world.ask(STOP)
    world.settle()
    world.host.start_paused(str(world.vm_id))
    world.host.resume(str(world.vm_id))

    world.report()
    requested = world.vm.power
    world.settle()

    assert requested is not None
    assert requested.requested_by == "monitor"
    assert world.states() == ("stopped", "stopped")


def test_a_look_that_began_before_the_stop_does_not_undo_what_is_known(world: PowerWorld):
    started_at = world.registry.now()
    seen = world.host.report("default")
    world.ask(STOP)
    world.settle()

    world.report_of(seen, started_at)

    assert world.states() == ("stopped", "stopped")
    assert world.vm.power is None


# --- builds, hosts and deletions that cross --------------------------------------------


def test_a_stop_during_the_build_waits_for_it_and_says_so(register: Registry):
    world = PowerWorld(register, built=False)

    move = world.ask(STOP)
    nothing_yet = power.switch_power(world.vm_id, world.worker())
    builds.build_vm(world.assignment_id, world.worker())
    world.settle()

    assert move.power is not None
    assert move.power.waits_for == "it is still being built"
    assert nothing_yet == TaskOutcome.NOT_OURS
    assert world.states() == ("stopped", "stopped")
    assert_sound(world)


def test_a_stop_is_off_when_the_build_fails(register: Registry):
    world = PowerWorld(register, built=False)
    world.host.fail_at("define")
    world.ask(STOP)

    builds.build_vm(world.assignment_id, world.worker())

    assert world.vm.power is None
    assert world.states() == ("stopped", "absent")
    world.assert_nothing_is_left(world.assignment_id)


def test_a_vm_that_waits_asks_for_no_place_while_it_is_stopped(register: Registry):
    world = World(register)
    request = add_request(register, count=2)
    [first, _] = register.vms.list(request_id=request.id).items

    register.vms.change_power(first.id, STOP, actor="cli")
    stopped = register.vms.get(first.id)
    assignment_id = world.place(request.id)
    placed = world.vm_of(assignment_id)
    register.vms.change_power(first.id, START, actor="cli")

    assert (stopped.desired, stopped.power) == ("stopped", None)
    assert placed.id != first.id
    assert world.vm_of(world.place(request.id)).id == first.id
    assert register.check() == []


def test_a_vm_that_waits_is_not_rebooted(register: Registry):
    World(register)
    request = add_request(register)
    [vm] = register.vms.list(request_id=request.id).items

    with pytest.raises(ConflictError, match="does not run yet"):
        register.vms.change_power(vm.id, REBOOT, actor="cli")


def test_a_stop_waits_for_its_host_and_says_so(world: PowerWorld):
    world.ask(STOP)
    host = world.registry.hosts.get("h1")
    world.registry.hosts.record_miss(host.id, "no route", unreachable_after=1, down_after=9)

    waits_for = world.vm.power.waits_for if world.vm.power else None
    due = world.registry.assignments.send_due_tasks(resend_after_s=0)
    meanwhile = power.switch_power(world.vm_id, world.worker())
    world.report()
    world.settle()

    assert waits_for == "its host is unreachable"
    assert due == ()
    assert meanwhile == TaskOutcome.NOT_OURS
    assert world.states() == ("stopped", "stopped")


def test_a_host_that_falls_silent_gets_the_step_again(world: PowerWorld):
    world.host.fail_at("shut_down", HostUnreachableError(world.host.uri, "no answer"))
    world.ask(STOP, timeout_s=1)

    assert world.step() == TaskOutcome.HANDED_BACK
    error = world.vm.power.last_error if world.vm.power else None
    world.settle()

    assert "no answer" in str(error)
    assert world.states() == ("stopped", "stopped")


def test_a_deletion_goes_before_a_shutdown_that_takes_its_time(world: PowerWorld):
    world.deaf()
    world.ask(STOP, timeout_s=3600)
    world.step()

    world.registry.vms.delete(world.vm_id, actor="cli")
    world.remove(world.assignment_id)

    assert world.vm.power is None
    assert power.switch_power(world.vm_id, world.worker()) == TaskOutcome.NOT_OURS
    world.assert_nothing_is_left(world.assignment_id)


@pytest.mark.parametrize("op", ["find", "start_paused", "resume"])
def test_a_deletion_in_the_middle_of_a_start_leaves_nothing(world: PowerWorld, op: str):
    world.ask(STOP)
    world.settle()
    world.ask(START)
    world.host.before(op, lambda: world.registry.vms.delete(world.vm_id, actor="cli") and None)

    assert world.step() == TaskOutcome.CLAIM_LOST
    world.remove(world.assignment_id)

    world.assert_nothing_is_left(world.assignment_id)


def test_a_start_that_its_host_refuses_is_given_up_and_told(world: PowerWorld, raw: RawSql):
    world.ask(STOP)
    world.settle()
    world.host.fail_at("start_paused", OperationFailedError("start", "no bootable disk"), times=99)
    world.ask(START)

    assert world.step() == TaskOutcome.HANDED_BACK
    raw.run("UPDATE power_actions SET attempts = 4, due_at = requested_at")
    world.step()

    assert world.vm.power is None
    assert "no bootable disk" in str(world.vm.last_error)
    assert world.states() == ("running", "stopped")
    assert_sound(world)


# --- workers that die or come late ----------------------------------------------------


@pytest.mark.parametrize("point", ["power.after_signalled", "power.after_force"])
def test_a_worker_that_dies_in_the_middle_of_a_stop_is_replaced(world: PowerWorld, point: str):
    def die(name: str) -> None:
        if name == point:
            raise KilledError

    world.deaf()
    world.ask(STOP, timeout_s=0 if point == "power.after_force" else 1)
    with pytest.raises(KilledError):
        power.switch_power(world.vm_id, world.worker(lease_s=SHORT_LEASE_S, checkpoint=die))

    world.settle()

    assert world.states() == ("stopped", "stopped")
    assert_sound(world)


def test_a_worker_that_comes_too_late_does_not_cut_the_power_of_the_next_run(world: PowerWorld):
    def overtake() -> None:
        world.settle()
        world.ask(START)
        world.settle()

    world.ask(STOP, timeout_s=0)
    world.host.before("power_off", overtake)

    assert (
        power.switch_power(world.vm_id, world.worker(lease_s=SHORT_LEASE_S))
        == TaskOutcome.CLAIM_LOST
    )

    world.assert_runs_once(world.assignment_id, starts=2)


def test_two_messages_at_a_time_are_one_step(world: PowerWorld):
    outcomes: list[TaskOutcome] = []
    world.ask(STOP, timeout_s=0)
    world.host.before(
        "power_off", lambda: outcomes.append(power.switch_power(world.vm_id, world.worker("w2")))
    )

    assert power.switch_power(world.vm_id, world.worker()) == TaskOutcome.DONE

    assert outcomes == [TaskOutcome.NOT_OURS]


def test_the_sweep_sends_what_is_asked_until_it_is_done(world: PowerWorld):
    world.ask(STOP)

    first = world.registry.assignments.send_due_tasks(resend_after_s=60)
    again = world.registry.assignments.send_due_tasks(resend_after_s=60)
    world.settle()

    assert [(due.task, due.id) for due in first] == [("workers.switch_power", world.vm_id)]
    assert again == ()
    assert world.registry.assignments.send_due_tasks(resend_after_s=0) == ()


def test_a_whole_request_is_stopped_and_started(register: Registry):
    world = World(register)
    request = add_request(register, count=3)
    placed = [world.place(request.id) for _ in range(2)]
    for assignment_id in placed:
        builds.build_vm(assignment_id, world.worker())

    def settle() -> list[str]:
        def all_done() -> bool:
            for due in register.assignments.send_due_tasks(resend_after_s=0):
                power.switch_power(UUID(str(due.id)), world.worker())
            return not any(vm.power for vm in register.vms.list().items)

        eventually(all_done)
        return [f"{vm.desired} {vm.observed}" for vm in register.vms.list().items]

    register.requests.change_power(request.id, STOP, actor="cli")
    stopped = settle()
    register.requests.change_power(request.id, START, actor="cli")
    started = settle()
    register.requests.change_power(request.id, REBOOT, actor="cli")
    settle()

    assert stopped == ["stopped stopped", "stopped stopped", "stopped absent"]
    assert started == ["running running", "running running", "running absent"]
    assert len(world.host.started) == 6
    assert register.check() == []
