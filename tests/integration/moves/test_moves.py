"""VMs move: what is asked, carried out, cancelled, and what crosses it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hypervisor import DomainState, MigrationObstacle, OperationFailedError
from registry import HostAdminEvent, VmDesired, VmDesiredEvent, VmObserved
from registry.errors import ConflictError, MoveRefusedError
from registry.moves import Move, MoveLimits
from registry.requests import MembershipRule, Rules, Vm
from registry.tasks import Due
from tests.fakes.movers import Breaks
from tests.integration.moves.world import MovingWorld
from tests.register import ACTOR
from workers import moves
from workers.context import MoveOptions, TaskOutcome

# ---- nothing crosses ------------------------------------------------------------------


def test_a_guest_moves_live_and_leaves_nothing_behind(world: MovingWorld) -> None:
    vm = world.running()

    move = world.ask(vm)
    assert (move.state, move.kind) == ("pending", "live")
    assert (move.from_host, move.to_host) == ("h1", "h2")
    assert world.committed() == {"h1": 3072, "h2": 3072, "h3": 0}
    assert world.move(move) == TaskOutcome.DONE

    moved = world.get(move)
    assert (moved.state, moved.downtime_ms, moved.last_error) == ("moved", 150, None)
    assert world.hosts["h1"].started == [str(vm.id)]  # and never again
    assert world.hosts["h2"].started == []
    world.assert_settled(vm, "h2")


@pytest.mark.parametrize("address", [None, "10.1.0.7", "2001:db8::7"])
def test_a_host_receives_moves_at_the_address_of_its_label(
    world: MovingWorld, address: str | None
) -> None:
    vm = world.running()
    labels = ["rack3"] if address is None else ["rack3", f"move_address={address}"]
    world.registry.hosts.update("h2", labels=labels, actor=ACTOR)

    assert world.move(world.ask(vm)) == TaskOutcome.DONE

    assert [each.address for each in world.movers.specs] == [address] * len(world.movers.specs)
    assert world.movers.specs


def test_a_vm_that_is_off_moves_with_its_disk(world: MovingWorld) -> None:
    vm = world.stopped()

    move = world.ask(vm)
    assert move.kind == "cold"
    assert world.move(move) == TaskOutcome.DONE

    assert world.vm(vm).observed == "stopped"
    world.assert_settled(vm, "h2", off=True)


def test_a_share_counts_a_vm_once_while_it_moves(world: MovingWorld) -> None:
    vm = world.running()
    before = world.registry.cluster_queries.accounts().tenants

    world.ask(vm)

    assert world.registry.cluster_queries.accounts().tenants == before
    assert world.registry.requests.get(vm.request_id).state == "placed"


def test_a_vm_moves_on_and_back(world: MovingWorld) -> None:
    vm = world.running()

    for host in ("h2", "h3", "h1"):
        assert world.move(world.ask(world.vm(vm), host)) == TaskOutcome.DONE
        world.assert_settled(vm, host)


def test_what_it_left_behind_goes_before_it_moves_on(world: MovingWorld) -> None:
    vm = world.running()
    world.move(world.ask(vm))

    with pytest.raises(MoveRefusedError, match="left on another host") as refused:
        world.ask(vm, "h3")

    assert refused.value.obstacle == "left_behind"
    world.sweep()
    world.ask(vm, "h3")


# ---- what speaks against it -----------------------------------------------------------


def test_what_cannot_be_moved_says_why(world: MovingWorld) -> None:
    vm = world.running()
    moving = world.running()
    world.ask(moving, "h3")
    world.registry.hosts.change_admin("h2", HostAdminEvent.DRAIN, actor=ACTOR)
    forbidden = world.running()
    world.registry.vms.change_labels(forbidden.id, {"moves": "never"})
    deleted = world.running()
    world.registry.vms.delete(deleted.id, actor=ACTOR)

    def obstacle(of: object, host: str, **requested: bool) -> str:
        with pytest.raises(MoveRefusedError) as refused:
            world.ask(of, host, **requested)  # type: ignore[arg-type]
        return refused.value.obstacle

    assert obstacle(vm, "h1") == "same_host"
    assert obstacle(vm, "h2") == "host_closed"
    assert obstacle(vm, "h3", only_cold=True) == "runs"
    assert obstacle(moving, "h3") == "moves_already"
    assert obstacle(forbidden, "h3") == "label"
    assert obstacle(deleted, "h3") == "deleted"


def test_a_host_without_room_refuses_and_says_what_is_short(world: MovingWorld) -> None:
    vm = world.running()
    world.registry.hosts.update("h2", overrides={"memory_mib": 2048}, actor=ACTOR)

    with pytest.raises(MoveRefusedError, match=r"needs 3072 memory_mib and host h2 has 2048 free"):
        world.ask(vm)


def test_a_group_that_keeps_apart_is_kept_while_its_vm_moves(world: MovingWorld) -> None:
    rules = Rules(anti_affinity=MembershipRule(group="apart"))
    first, second = world.running("h1", rules=rules), world.running("h2", rules=rules)

    with pytest.raises(MoveRefusedError) as refused:
        world.ask(first, "h2")
    world.ask(first, "h3")
    with pytest.raises(MoveRefusedError):
        world.ask(second, "h3")  # it arrives there
    with pytest.raises(MoveRefusedError):
        world.ask(second, "h1")  # it is still there

    assert refused.value.obstacle == "group"


# ---- cancelled, refused, failed -------------------------------------------------------


def test_a_move_that_nobody_began_is_cancelled_at_once(world: MovingWorld) -> None:
    vm, move = world.asked_to_move()

    cancelled = world.registry.moves.cancel(move.id, actor=ACTOR)

    assert (cancelled.state, cancelled.cancelled_by) == ("cancelled", ACTOR)
    assert world.movers.log == []
    world.assert_settled(vm, "h1")
    with pytest.raises(ConflictError, match="it is cancelled"):
        world.registry.moves.cancel(move.id, actor=ACTOR)


def test_a_move_is_cancelled_in_the_middle(world: MovingWorld) -> None:
    vm, move = world.asked_to_move()
    world.movers.during = lambda: world.registry.moves.cancel(move.id, actor=ACTOR)

    assert world.move(move, lease_s=0.0001) == TaskOutcome.FAILED

    assert world.get(move).state == "cancelled"
    world.assert_settled(vm, "h1")


def test_a_host_that_cannot_take_it_fails_the_move_and_is_avoided(world: MovingWorld) -> None:
    vm, move = world.asked_to_move()
    world.movers.refuse(MigrationObstacle.CPU_MODEL, "it lacks avx512f")

    assert world.move(move) == TaskOutcome.FAILED

    failed = world.get(move)
    assert failed.state == "failed"
    assert "avx512f" in str(failed.last_error)
    world.assert_settled(vm, "h1")
    world.registry.requests.change(vm.request_id, count=2, actor=ACTOR)
    assert world.avoided() == {(vm.request_id, world.registry.hosts.get("h2").id)}


@pytest.mark.parametrize("breaks", list(Breaks))
def test_wherever_libvirts_call_breaks_the_guest_runs_once_and_is_known(
    world: MovingWorld, breaks: Breaks
) -> None:
    vm, move = world.asked_to_move()
    world.movers.fail(breaks)

    world.move(move)

    there = breaks in {Breaks.SWITCHED, Breaks.DONE, Breaks.ARRIVED}
    assert world.get(move).state == ("moved" if there else "failed")
    world.assert_settled(vm, "h2" if there else "h1")


# ---- workers die, and cross -----------------------------------------------------------


class KilledError(BaseException):
    """Stands for SIGKILL: no handler of the product catches it."""


def kill(_: object = None) -> None:
    raise KilledError


def kill_worker(world: MovingWorld, asked: Move, at: str) -> None:
    """A worker dies at a checkpoint of a move, and its lease ends."""

    def checkpoint(reached: str) -> None:
        if reached == at:
            raise KilledError

    with pytest.raises(KilledError):
        world.move(asked, checkpoint=checkpoint)
    world.let_claim_end(asked)


@pytest.mark.parametrize("checkpoint", ["move.after_volumes", "move.after_move", "move.after_look"])
def test_another_worker_finds_out_what_became_of_a_move(
    world: MovingWorld, checkpoint: str
) -> None:
    vm, move = world.asked_to_move()
    kill_worker(world, move, checkpoint)
    assert world.get(move).state == "moving"

    assert world.move(move, "w2") != TaskOutcome.NOT_OURS

    assert world.get(move).state == "moved"
    world.assert_settled(vm, "h2")


def test_a_move_without_room_that_other_workers_took_over_ends_with_that_reason(
    world: MovingWorld,
) -> None:
    vm, move = world.asked_to_move()
    kill_worker(world, move, "move.after_volumes")
    full = OperationFailedError("live_move", "No space left on device", 38)
    for attempt in range(2, moves.MAX_ATTEMPTS + 1):
        world.movers.fail(Breaks.COPYING, full)
        assert world.move(move, f"w{attempt}") == TaskOutcome.HANDED_BACK

    assert world.move(move, "last") == TaskOutcome.FAILED

    ended = world.get(move)
    assert ended.state == "failed"
    assert "No space left on device" in str(ended.last_error)
    world.assert_settled(vm, "h1")


def test_a_move_whose_workers_only_died_says_so(world: MovingWorld) -> None:
    vm, move = world.asked_to_move()
    kill_worker(world, move, "move.after_volumes")
    for _ in range(1, moves.MAX_ATTEMPTS):
        world.movers.during = kill
        with pytest.raises(KilledError):
            world.move(move)
        world.let_claim_end(move)

    assert world.move(move, "last") == TaskOutcome.FAILED

    assert world.get(move).last_error == "its worker ended"
    world.assert_settled(vm, "h1")


def write_to_disk(world: MovingWorld, vm: Vm, host: str) -> str:
    """An operator starts a VM by virsh, and it shuts down again; return its disk's name."""
    fake = world.hosts[host]
    name = fake.volume_of(str(vm.id)) or ""
    fake.volumes[name] = replace(fake.volumes[name], allocation_bytes=7 << 20)
    return name


@pytest.mark.parametrize("checkpoint", ["move.after_volumes", "move.after_move", "move.after_look"])
def test_another_worker_copies_a_disk_again_that_may_have_been_written_to(
    world: MovingWorld, checkpoint: str
) -> None:
    vm = world.stopped()
    move = world.ask(vm)
    kill_worker(world, move, checkpoint)
    write_to_disk(world, vm, "h1")

    assert world.move(move, "w2") == TaskOutcome.DONE

    there = world.hosts["h2"]
    arrived = there.volumes[there.volume_of(str(vm.id)) or ""]
    assert arrived.allocation_bytes == 7 << 20
    world.assert_settled(vm, "h2", off=True)


def test_a_copy_of_a_former_worker_waits_for_its_silent_source(world: MovingWorld) -> None:
    vm = world.stopped()
    move = world.ask(vm)
    kill_worker(world, move, "move.after_move")
    name = write_to_disk(world, vm, "h1")
    world.hosts["h1"].unreachable = True

    assert world.move(move, "w2") == TaskOutcome.HANDED_BACK

    assert world.get(move).state == "moving"
    assert name in world.hosts["h1"].volumes
    world.hosts["h1"].unreachable = False
    world.sweep()
    world.assert_settled(vm, "h2", off=True)


@pytest.mark.parametrize("found", ["nothing", "a copy"])
def test_a_worker_that_stood_still_removes_nothing_that_arrived_meanwhile(
    world: MovingWorld, monkeypatch: pytest.MonkeyPatch, found: str
) -> None:
    vm = world.stopped()
    move = world.ask(vm)
    kill_worker(world, move, "move.after_volumes" if found == "nothing" else "move.after_move")
    there = world.hosts["h2"]
    find = there.find

    def stand_still(vm_id: str, **how: Any) -> Any:
        seen = find(vm_id, **how)
        monkeypatch.undo()
        world.let_claim_end(move)
        assert world.move(move, "w3") == TaskOutcome.DONE
        return seen

    monkeypatch.setattr(there, "find", stand_still)

    assert world.move(move, "w2") == TaskOutcome.CLAIM_LOST

    world.assert_settled(vm, "h2", off=True)


def test_a_worker_overtaken_writes_nothing_but_how_long_the_guest_stood_still(
    world: MovingWorld,
) -> None:
    vm, move = world.asked_to_move()

    def overtake(reached: str) -> None:
        if reached == "move.after_move":
            world.let_claim_end(move)
            assert world.move(move, "w2") == TaskOutcome.DONE
            assert world.get(move).downtime_ms is None
            taken_over.append(world.get(move))

    taken_over: list[Move] = []
    assert world.move(move, checkpoint=overtake) == TaskOutcome.CLAIM_LOST
    world.assert_settled(vm, "h2")
    [seen] = taken_over
    assert world.get(move) == replace(seen, downtime_ms=150)


def test_a_worker_that_took_over_ends_what_the_former_still_does(world: MovingWorld) -> None:
    """It was stopped, its child is not: the guest must not leave while we say that it stays."""
    vm, move = world.asked_to_move()
    outcomes = []

    def take_over() -> None:
        world.let_claim_end(move)
        outcomes.append(world.move(move, "w2"))

    world.movers.during = take_over

    outcomes.append(world.move(move))

    assert TaskOutcome.DONE in outcomes
    world.assert_settled(vm, "h2")


# ---- the VM is deleted, stopped, or powers itself off ----------------------------------


def test_a_vm_deleted_before_its_move_began_goes(world: MovingWorld) -> None:
    vm, move = world.asked_to_move()
    world.registry.vms.delete(vm.id, actor=ACTOR)

    world.sweep()
    world.sweep()

    assert world.get(move).state == "cancelled"
    assert_gone(world, vm)


def test_a_vm_deleted_while_it_moves_goes_at_both_ends(world: MovingWorld) -> None:
    vm, move = world.asked_to_move()
    world.movers.during = lambda: world.registry.vms.delete(vm.id, actor=ACTOR)

    world.move(move, lease_s=0.0001)
    world.sweep()
    world.sweep()

    assert world.get(move).state == "cancelled"
    assert_gone(world, vm)


def test_a_vm_deleted_right_after_it_arrived_goes(world: MovingWorld) -> None:
    vm, move = world.asked_to_move()

    def delete(reached: str) -> None:
        if reached == "move.after_look":
            world.registry.vms.delete(vm.id, actor=ACTOR)

    world.move(move, checkpoint=delete)
    world.sweep()
    world.sweep()

    assert_gone(world, vm)


def assert_gone(world: MovingWorld, vm: object) -> None:
    found = world.registry.vms.get(vm.id)  # type: ignore[attr-defined]
    event = [e for e in world.registry.events.list(kind="vm_desired") if e.subject_id == str(vm.id)]  # type: ignore[attr-defined]
    assert [each.event for each in event] == ["delete"]  # once, however many ends it had
    assert found.deleted_at is not None
    assert all(host.domains == {} for host in world.hosts.values())
    assert all(set(host.volumes) == {"base.qcow2"} for host in world.hosts.values())
    assert set(world.committed().values()) == {0}
    assert world.registry.check() == []


def test_power_waits_for_the_move(world: MovingWorld) -> None:
    vm, move = world.asked_to_move()
    seen = []

    def stop() -> None:
        world.registry.vms.change_power(vm.id, VmDesiredEvent.STOP, actor=ACTOR)
        seen.append(world.registry.power.claim(vm.id, "p1", 60))

    world.movers.during = stop
    assert world.move(move) == TaskOutcome.DONE

    assert seen == [None]
    step = world.registry.power.claim(vm.id, "p1", 60)
    assert step is not None
    assert step.host.name == "h2"


def test_a_move_waits_for_power(world: MovingWorld) -> None:
    vm, move = world.asked_to_move()
    world.registry.vms.change_power(vm.id, VmDesiredEvent.STOP, actor=ACTOR)

    assert world.move(move) == TaskOutcome.NOT_OURS
    assert world.get(move).state == "pending"


def test_a_guest_that_powers_itself_off_meanwhile_is_where_its_disk_is(world: MovingWorld) -> None:
    vm, move = world.asked_to_move()
    here = world.hosts["h1"]
    world.movers.during = lambda: here.power_off(str(vm.id), run=here.domains[str(vm.id)].run or 0)

    world.move(move)

    assert world.get(move).state == "failed"
    world.report("h1")
    assert world.vm(vm).observed == "stopped"
    world.assert_settled(vm, "h1", off=True)


# ---- hosts fall silent, are drained, fenced --------------------------------------------


def test_a_silent_source_leaves_the_move_open_until_it_answers(world: MovingWorld) -> None:
    vm, move = world.asked_to_move()

    def cut() -> None:
        world.hosts["h1"].unreachable = True

    world.movers.during = cut
    assert world.move(move) == TaskOutcome.HANDED_BACK
    assert world.get(move).state == "moving"

    world.hosts["h1"].unreachable = False
    world.sweep()
    world.sweep()
    assert world.get(move).state in {"moved", "failed"}
    world.assert_settled(vm, str(world.vm(vm).host))


def test_a_silent_destination_does_not_keep_a_guest_that_runs_where_it_was(
    world: MovingWorld,
) -> None:
    vm, move = world.asked_to_move()

    def cut() -> None:
        world.hosts["h2"].unreachable = True

    world.movers.during = cut
    assert world.move(move) == TaskOutcome.FAILED

    assert world.get(move).state == "failed"
    assert world.vm(vm).host == "h1"
    assert world.committed()["h2"] == 3072  # until it is seen that nothing is there
    world.hosts["h2"].unreachable = False
    world.assert_settled(vm, "h1")


def test_what_reports_say_in_the_middle_of_a_move_changes_nothing(world: MovingWorld) -> None:
    vm, move = world.asked_to_move()

    def look(reached: str) -> None:
        if reached == "move.after_move":  # the source has forgotten it by now
            world.report("h1")
            world.report("h2")

    assert world.move(move, checkpoint=look) == TaskOutcome.DONE

    assert [each for each in events(world, vm) if each == "vm_missing"] == []
    world.assert_settled(vm, "h2")
    world.report("h1")
    world.report("h2")
    assert world.vm(vm).observed == "running"
    assert world.registry.differences.list() == ()


def events(world: MovingWorld, vm: object) -> list[str]:
    page = world.registry.events.list(subject_id=str(vm.id), limit=500)  # type: ignore[attr-defined]
    return [each.kind for each in page]


def test_a_source_that_is_fenced_in_the_middle_does_not_end_a_guest_that_arrived(
    world: MovingWorld,
) -> None:
    vm, move = world.asked_to_move()
    kill_worker(world, move, "move.after_move")
    fence(world, "h1")
    assert world.vm(vm).observed == "running"

    world.sweep()

    assert world.get(move).state == "moved"
    assert world.vm(vm).host == "h2"
    assert world.runs(vm) == ["h2"]


def test_a_vm_whose_source_is_fenced_before_it_arrived_waits_for_a_place(
    world: MovingWorld,
) -> None:
    vm, move = world.asked_to_move()
    kill_worker(world, move, "move.after_volumes")
    fence(world, "h1")
    assert world.vm(vm).host is None

    world.sweep()
    world.sweep()

    assert world.get(move).state == "failed"
    assert world.registry.requests.get(vm.request_id).state == "pending"
    assert world.vm(vm).observed == "absent"
    assert world.committed() == {"h1": 0, "h2": 0, "h3": 0}
    assert world.registry.check() == []


@pytest.mark.parametrize("is_switched", [False, True])
def test_a_vm_whose_source_is_fenced_before_its_move_began_waits_for_a_place(
    world: MovingWorld, is_switched: bool
) -> None:
    vm = world.running()
    if is_switched:  # no move begins before, and no worker switches what has no place
        world.registry.vms.change_power(vm.id, VmDesiredEvent.STOP, actor=ACTOR)
    move = world.ask(vm)
    fence(world, "h1")

    world.sweep()

    assert world.get(move).state == "failed"
    assert world.vm(vm).observed == "absent"
    assert world.committed() == {"h1": 0, "h2": 0, "h3": 0}
    assert world.registry.check() == []


def test_a_move_that_has_not_begun_ends_when_its_destination_is_fenced(world: MovingWorld) -> None:
    vm, move = world.asked_to_move()
    fence(world, "h2")

    world.sweep()

    assert world.get(move).state == "failed"
    world.assert_settled(vm, "h1")


def test_a_destination_that_is_fenced_frees_its_room_and_the_vm_stays(world: MovingWorld) -> None:
    vm, move = world.asked_to_move()
    fence(world, "h2")

    assert world.committed()["h2"] == 0
    world.move(move)

    assert world.get(move).state == "failed"
    assert world.vm(vm).host == "h1"
    assert world.registry.check() == []


def test_a_vm_whose_destination_is_fenced_after_it_left_starts_again_from_its_disk(
    world: MovingWorld,
) -> None:
    vm, move = world.asked_to_move()
    kill_worker(world, move, "move.after_move")
    assert world.runs(vm) == ["h2"]
    fence(world, "h2")
    world.report("h1")
    assert "vm_missing" not in events(world, vm)  # the worker at the move tells where it is

    assert world.move(move, "w2") != TaskOutcome.NOT_OURS

    assert world.get(move).state == "failed"
    assert "h2 was fenced" in str(world.get(move).last_error)
    world.hosts["h2"].unreachable = False
    world.report("h1")
    assert world.vm(vm).observed == "running"
    world.assert_settled(vm, "h1")


def test_a_destination_that_returns_from_its_fence_with_the_vm_does_not_get_it(
    world: MovingWorld,
) -> None:
    vm, move = world.asked_to_move()

    def return_from_fence(reached: str) -> None:
        if reached == "move.after_look":
            there = dict(world.hosts["h2"].domains)
            fence(world, "h2")
            world.hosts["h2"].domains = there
            world.hosts["h2"].unreachable = False

    assert world.move(move, checkpoint=return_from_fence) == TaskOutcome.CLAIM_LOST
    world.hosts["h2"].domains.clear()  # as a leftover is
    world.let_claim_end(move)

    assert world.move(move, "w2") != TaskOutcome.NOT_OURS

    assert world.get(move).state == "failed"
    world.assert_settled(vm, "h1")


def test_a_move_to_a_host_that_was_fenced_meanwhile_is_not_begun_again(world: MovingWorld) -> None:
    vm, move = world.asked_to_move()
    kill_worker(world, move, "move.after_volumes")
    fence(world, "h2")
    world.hosts["h2"].unreachable = False

    assert world.move(move, "w2") != TaskOutcome.NOT_OURS

    assert world.get(move).state == "failed"
    assert world.movers.log == []
    world.assert_settled(vm, "h1")


def fence(world: MovingWorld, name: str) -> None:
    """The host is off, and an operator says so."""
    host = world.hosts[name]
    host.unreachable = True
    key = world.registry.hosts.get(name).id
    world.registry.hosts.record_miss(key, "no answer", unreachable_after=1, down_after=1)
    assert world.registry.hosts.get(name).health == "down"
    world.registry.fencing.confirm(name, actor=ACTOR)
    host.domains.clear()
    host.volumes = {"base.qcow2": host.volumes["base.qcow2"]}


def test_a_moving_vm_keeps_its_labels_and_its_wish(world: MovingWorld) -> None:
    vm = world.running()
    world.registry.vms.change_labels(vm.id, {"app": "db"})

    world.move(world.ask(vm))

    found = world.vm(vm)
    assert (found.labels, found.desired) == ({"app": "db"}, VmDesired.RUNNING)
    assert world.hosts["h2"].domains[str(vm.id)].state is DomainState.RUNNING


def test_no_more_moves_begin_than_a_host_may_have(world: MovingWorld) -> None:
    requested = [world.ask(world.running()) for _ in range(2)]
    also: list[TaskOutcome] = []
    one = MoveOptions(limits=MoveLimits(per_host=1, everywhere=8))
    world.movers.during = lambda: also.append(world.move(requested[1], "w2", moves=one))

    assert world.move(requested[0], moves=one) == TaskOutcome.DONE

    assert also == [TaskOutcome.NOT_OURS]
    assert world.move(requested[1], "w2", moves=one) == TaskOutcome.DONE


def test_the_end_of_a_move_sends_what_has_room_then_and_nothing_else(world: MovingWorld) -> None:
    requested = [world.ask(world.running(), host) for host in ("h2", "h2", "h3")]
    world.registry.assignments.send_due_tasks()  # all are sent, so the sweep gives them time
    limits = MoveLimits(per_host=1, everywhere=8)
    meanwhile: list[Due] = []
    world.movers.during = lambda: meanwhile.extend(
        world.registry.move_steps.mark_next_moves_sent(limits)
    )
    sent: list[Due] = []

    world.move(requested[0], moves=MoveOptions(limits=limits), send=sent.append)

    assert meanwhile == []
    assert [each.id for each in sent if each.task == "workers.move_vm"] == [requested[1].id]
    assert (
        len(world.registry.move_steps.mark_next_moves_sent(MoveLimits(per_host=2, everywhere=1)))
        == 1
    )


@pytest.mark.parametrize(
    ("off_reason", "power"), [("host", "starting"), ("crash", None), ("guest", None)]
)
def test_a_guest_that_went_off_where_it_had_arrived_is_judged_by_how_it_did(
    world: MovingWorld, off_reason: str, power: str | None
) -> None:
    vm = world.running("h1")
    move = world.ask(vm)
    kill_worker(world, move, "move.after_move")
    there = world.hosts["h2"].domains
    there[str(vm.id)] = replace(
        there[str(vm.id)], state=DomainState.STOPPED, run=None, off_reason=off_reason
    )
    world.report("h2")  # its place is h1 still

    assert world.move(move, "w2") == TaskOutcome.DONE
    world.report("h2")

    found = world.vm(vm)
    assert (found.host, found.observed) == ("h2", VmObserved.STOPPED)
    assert (found.power.state if found.power else None) == power
