"""Plans of moves: decided on what runs, approved, carried out in waves, cancelled."""

from __future__ import annotations

from typing import Any

import pytest

from controller.plans.executor import PlanExecutor, Planning
from controller.plans.plan_inputs import decide_plan
from controller.rounds.policy_process import PolicyProcess
from controller.rounds.running_state import to_running
from hypervisor import MigrationObstacle
from placement.rebalancing.model import RebalanceLimits
from registry import HostAdminEvent, UnknownNameError
from registry.errors import IllegalTransitionError, MoveRefusedError, PlanMoveOverError
from registry.moves import Plan, PlanKind, PlannedMove
from registry.requests import MembershipRule, Rules
from tests.integration.moves.world import MovingWorld
from tests.register import ACTOR, take_lease

PLANNING = Planning(
    limits=RebalanceLimits(per_source=2, per_destination=2, at_once=8),
    rest_s=3600,
    seed=0,
    budget_units=None,
    deadline_s=60,
    room_hold_s=600,
)


class InThisProcess:
    """Decides as the control centre's child does, without one."""

    def plan(self, data: bytes, *, kind: str, deadline_s: float) -> dict[str, Any]:
        return decide_plan(data)

    def close(self) -> None:
        pass


@pytest.fixture
def centre(world: MovingWorld) -> PlanExecutor:
    return a_centre(world, InThisProcess())


def a_centre(world: MovingWorld, process: Any) -> PlanExecutor:
    lease = take_lease(world.registry)
    return PlanExecutor(
        world.registry, lambda: lease, process, PLANNING, interval_s=1, on_requested=lambda: None
    )


def evacuate(world: MovingWorld, *hosts: str, approve: bool = False) -> Plan:
    return world.registry.plans.create(
        PlanKind.EVACUATE, {"hosts": list(hosts)}, approve=approve, actor=ACTOR
    )


def carry_out(world: MovingWorld, centre: PlanExecutor, plan: Plan, rounds: int = 20) -> Plan:
    """Let the control centre and workers go on until the plan is over."""
    for _ in range(rounds):
        centre.advance()
        world.sweep()
        found = world.registry.plans.get(plan.id)
        if found.ended_at is not None:
            return found
    raise AssertionError(f"after {rounds} looks it is {found.state}: {found}")


def test_a_host_is_emptied_and_each_vm_finds_a_place(
    world: MovingWorld, centre: PlanExecutor
) -> None:
    vms = [world.running("h1") for _ in range(5)]
    world.registry.hosts.change_admin("h1", HostAdminEvent.DRAIN, actor=ACTOR)
    requested = evacuate(world, "h1")
    assert (requested.state, requested.moves) == ("pending", 0)

    centre.advance()

    proposed = world.registry.plans.get(requested.id)
    assert (proposed.state, proposed.moves, proposed.not_moved) == ("proposed", 5, ())
    assert proposed.before is not None
    assert proposed.after is not None
    assert proposed.before["hosts_in_use"] == 1
    assert proposed.after["hosts_in_use"] >= 1
    assert world.committed()["h1"] == 5 * 3072  # nothing moves before it is approved
    assert {each.from_host for each in world.registry.plans.moves(requested.id)} == {"h1"}
    centre.advance()
    assert world.movers.log == []

    world.registry.plans.approve(requested.id, actor="boss")
    done = carry_out(world, centre, requested)

    assert (done.state, done.approved_by, done.failed) == ("done", "boss", 0)
    world.sweep()
    assert world.committed()["h1"] == 0
    assert world.hosts["h1"].domains == {}
    assert all(len(world.runs(vm)) == 1 for vm in vms)
    assert world.registry.check() == []
    moves = world.registry.moves.list(limit=500).items
    assert {each.reason for each in moves} == {f"plan {requested.id}: evacuates"}


def test_a_group_that_keeps_together_moves_whole(world: MovingWorld, centre: PlanExecutor) -> None:
    rules = Rules(affinity=MembershipRule(group="beside"))
    vms = [world.running("h1", rules=rules) for _ in range(2)]
    with pytest.raises(MoveRefusedError, match="its group"):
        world.ask(vms[0])  # alone it would leave the other

    done = carry_out(world, centre, evacuate(world, "h1", approve=True))

    assert (done.state, done.moves, done.failed) == ("done", 2, 0)
    assert len({world.vm(vm).host for vm in vms} - {"h1"}) == 1
    assert world.registry.check() == []


def test_requests_alike_are_one_kind_of_vm(world: MovingWorld) -> None:
    for _ in range(3):
        world.running("h1")

    running, _ = to_running(world.registry.plans.view_running(rest_s=0))

    assert (len(running), len(running.demand)) == (3, 1)


def test_what_has_no_place_is_named_with_what_is_short(
    world: MovingWorld, centre: PlanExecutor
) -> None:
    never = world.running("h1")
    world.registry.vms.change_labels(never.id, {"moves": "never"})
    world.running("h1")
    for host in ("h2", "h3"):
        world.running(host)
        world.registry.hosts.update(host, overrides={"memory_mib": 4096}, actor=ACTOR)

    plan = evacuate(world, "h1")
    centre.advance()

    found = world.registry.plans.get(plan.id)
    assert found.moves == 0
    shown = {each["vm"]: each for each in found.not_moved}
    assert shown[str(never.id)]["obstacle"] == "label"
    [short] = [each for each in found.not_moved if each["vm"] != str(never.id)]
    assert short["why"] == "no_room"
    assert short["missing"]["amounts"] == {"memory_mib": 2048}


def test_a_plan_without_a_move_is_done_and_leaves_nothing_to_approve(
    world: MovingWorld, centre: PlanExecutor
) -> None:
    requested = world.registry.plans.create(PlanKind.BALANCE, {}, approve=False, actor=ACTOR)

    centre.advance()

    done = world.registry.plans.get(requested.id)
    assert (done.state, done.moves, done.approved_by, done.last_error) == ("done", 0, None, None)
    assert done.ended_at is not None
    events = [event.reason for event in world.registry.events.list(kind="plan_state")]
    assert "no useful move" in events
    with pytest.raises(IllegalTransitionError, match="no useful move"):
        world.registry.plans.approve(requested.id, actor=ACTOR)
    assert world.registry.check() == []


def test_a_plan_that_is_approved_at_once_begins_as_soon_as_it_is_decided(
    world: MovingWorld, centre: PlanExecutor
) -> None:
    vm = world.running("h1")

    done = carry_out(world, centre, evacuate(world, "h1", approve=True))

    assert (done.state, done.approved_by) == ("done", ACTOR)
    assert world.runs(vm) != ["h1"]


def test_a_move_that_is_refused_by_then_is_told_and_the_others_go_on(
    world: MovingWorld, centre: PlanExecutor
) -> None:
    first, second = world.running("h1"), world.running("h1")
    plan = evacuate(world, "h1")
    centre.advance()
    world.registry.vms.change_labels(first.id, {"moves": "never"})
    world.registry.plans.approve(plan.id, actor=ACTOR)

    done = carry_out(world, centre, plan)

    assert (done.state, done.moves, done.failed) == ("done", 2, 1)
    [refused] = [each for each in world.registry.plans.moves(plan.id) if each.refused]
    assert refused.vm_id == first.id
    assert "moves=never" in str(refused.refused)
    moved = [each for each in world.registry.plans.moves(plan.id) if not each.refused]
    assert done.moved_gib == sum(each.transfer_mib for each in moved) / 1024 > 0
    assert world.runs(first) == ["h1"]
    assert world.runs(second) != ["h1"]


def test_a_move_waits_for_the_room_that_an_earlier_one_leaves(
    world: MovingWorld, centre: PlanExecutor
) -> None:
    leaves, comes = world.running("h1"), world.running("h2")
    world.registry.hosts.update("h1", overrides={"memory_mib": 3072}, actor=ACTOR)
    h1, h2, h3 = (world.registry.hosts.get(name).id for name in ("h1", "h2", "h3"))
    plan = world.registry.plans.create(PlanKind.BALANCE, {}, approve=True, actor=ACTOR)
    world.registry.plans.propose(
        plan.id,
        [
            PlannedMove(
                vm_id=vm.id, from_host_id=here, to_host_id=to, wave=wave, why="x", transfer_mib=1
            )
            for wave, (vm, here, to) in enumerate([(leaves, h1, h3), (comes, h2, h1)])
        ],
        before={},
        after={},
        stays=[],
        cut=False,
        inputs=b"",
        document={},
        actor=ACTOR,
    )

    done = carry_out(world, centre, plan)  # what was left behind goes a look later

    assert done.failed == 0
    assert [world.vm(each).host for each in (leaves, comes)] == ["h3", "h1"]


def test_a_cancelled_plan_leaves_each_vm_at_one_place(
    world: MovingWorld, centre: PlanExecutor
) -> None:
    vms = [world.running("h1") for _ in range(4)]
    plan = evacuate(world, "h1", approve=True)
    centre.advance()
    centre.advance()

    def cancel() -> None:
        world.registry.plans.cancel(plan.id, actor=ACTOR)

    world.movers.during = cancel
    for _ in range(4):
        world.sweep()
        centre.advance()

    assert world.registry.plans.get(plan.id).state == "cancelled"
    assert all(len(world.runs(vm)) == 1 for vm in vms)
    states = [each.state for each in world.registry.moves.list(limit=500).items]
    assert set(states) <= {"moved", "cancelled"}
    assert "moved" in states
    world.sweep()
    assert world.registry.check() == []
    with pytest.raises(IllegalTransitionError):
        world.registry.plans.approve(plan.id, actor=ACTOR)


def test_a_plan_that_is_cancelled_as_its_next_moves_are_asked_for_begins_none(
    world: MovingWorld, centre: PlanExecutor
) -> None:
    vms = [world.running("h1") for _ in range(6)]
    requested = evacuate(world, "h1", approve=True)
    centre.advance()  # the first begin
    approved = world.registry.plans.get(requested.id)
    world.sweep()
    world.registry.plans.cancel(requested.id, actor=ACTOR)
    moved = world.registry.moves.list(limit=500).items

    centre._carry_out_plan(approved)  # which it read before

    assert [each.id for each in world.registry.moves.list(limit=500).items] == [
        each.id for each in moved
    ]
    assert [each.refused for each in world.registry.plans.moves(requested.id)] == [None] * len(vms)


def test_a_centre_that_leads_no_more_refuses_nothing_that_another_asked_for(
    world: MovingWorld, centre: PlanExecutor
) -> None:
    world.running("h1")
    requested = evacuate(world, "h1", approve=True)
    centre.advance()
    [one] = world.registry.plans.moves(requested.id)

    with pytest.raises(PlanMoveOverError):
        world.registry.moves.create(
            one.vm_id, one.to_host, reason="late", of_plan=(requested.id, one.position), actor=ACTOR
        )

    [one] = world.registry.plans.moves(requested.id)
    assert one.refused is None
    assert carry_out(world, centre, requested).state == "done"


def test_nothing_is_decided_or_carried_out_while_the_slot_loop_is_paused(
    world: MovingWorld, centre: PlanExecutor
) -> None:
    world.running("h1")
    world.registry.slot_loop.pause("a look", actor=ACTOR)
    plan = evacuate(world, "h1", approve=True)

    centre.advance()
    assert world.registry.plans.get(plan.id).state == "pending"

    world.registry.slot_loop.resume(actor=ACTOR)
    assert carry_out(world, centre, plan).state == "done"


def test_only_who_leads_decides_and_carries_out(world: MovingWorld) -> None:
    world.running("h1")
    plan = evacuate(world, "h1", approve=True)
    other = PlanExecutor(
        world.registry,
        lambda: None,
        InThisProcess(),  # type: ignore[arg-type]
        PLANNING,
        interval_s=1,
        on_requested=lambda: None,
    )

    other.advance()

    assert world.registry.plans.get(plan.id).state == "pending"


def test_a_second_balance_right_after_the_first_has_no_useful_move(
    world: MovingWorld, centre: PlanExecutor
) -> None:
    for _ in range(6):
        world.running("h1")
    first = world.registry.plans.create(PlanKind.BALANCE, {}, approve=True, actor=ACTOR)

    done = carry_out(world, centre, first)

    assert done.moves > 0
    assert done.failed == 0
    assert done.before is not None
    assert done.after is not None
    assert done.after["mean_skewness"] <= done.before["mean_skewness"]
    assert len({world.vm(vm).host for vm in world.registry.vms.list().items}) > 1
    # The potential that is shown is that of the game that balancing plays: it rises by the gain.
    assert done.after["potential"] - done.before["potential"] == pytest.approx(done.gain)
    assert done.gain > 0
    second = world.registry.plans.create(PlanKind.BALANCE, {}, approve=True, actor=ACTOR)
    assert carry_out(world, centre, second).moves == 0


def test_what_was_refused_gained_nothing_and_is_left_alone_for_a_while(
    world: MovingWorld, centre: PlanExecutor
) -> None:
    vms = [world.running("h1") for _ in range(6)]
    plan = world.registry.plans.create(PlanKind.BALANCE, {}, approve=False, actor=ACTOR)
    centre.advance()
    proposed = world.registry.plans.get(plan.id)
    first, *others = world.registry.plans.moves(plan.id)
    assert others
    world.registry.vms.change_labels(first.vm_id, {"moves": "never"})
    world.registry.plans.approve(plan.id, actor=ACTOR)

    done = carry_out(world, centre, plan)

    assert done.failed == 1
    assert proposed.gain is not None
    assert done.gain is not None
    assert 0 < done.gain < proposed.gain
    world.registry.vms.change_labels(first.vm_id, {})
    resting = {each.id for each in world.registry.plans.view_running(rest_s=3600).vms if each.rests}
    assert resting == {first.vm_id, *(each.vm_id for each in others)}
    again = world.registry.plans.create(PlanKind.BALANCE, {}, approve=True, actor=ACTOR)
    centre.advance()
    assert first.vm_id not in {each.vm_id for each in world.registry.plans.moves(again.id)}
    assert len(vms) == 6


def test_what_failed_on_its_host_gained_nothing_and_rests(
    world: MovingWorld, centre: PlanExecutor
) -> None:
    for _ in range(6):
        world.running("h1")
    plan = world.registry.plans.create(PlanKind.BALANCE, {}, approve=False, actor=ACTOR)
    centre.advance()
    planned = world.registry.plans.moves(plan.id)
    for _ in planned:
        world.movers.refuse(MigrationObstacle.SNAPSHOTS, "it has 1 snapshot")
    world.registry.plans.approve(plan.id, actor=ACTOR)

    done = carry_out(world, centre, plan)

    assert (done.failed, done.gain) == (len(planned), 0)
    failed = world.registry.moves.list(limit=500).items
    assert {each.last_error for each in failed} == {
        f"it cannot be moved from host h1 to host {each.to_host} (snapshots): it has 1 snapshot"
        for each in failed
    }
    second = world.registry.plans.create(PlanKind.BALANCE, {}, approve=True, actor=ACTOR)
    again = carry_out(world, centre, second)
    assert {each.vm_id for each in planned}.isdisjoint(
        each.vm_id for each in world.registry.plans.moves(again.id)
    )


@pytest.mark.parametrize("taken_out", [HostAdminEvent.DRAIN, HostAdminEvent.MAINTAIN])
@pytest.mark.parametrize("looks", [0, 1, 2])
def test_a_host_that_is_activated_again_is_emptied_no_further(
    world: MovingWorld, centre: PlanExecutor, taken_out: HostAdminEvent, looks: int
) -> None:
    vms = [world.running("h1") for _ in range(6)]
    world.registry.hosts.change_admin("h1", taken_out, actor=ACTOR)
    plan = evacuate(world, "h1", approve=True)
    for _ in range(looks):
        centre.advance()

    world.registry.hosts.change_admin("h1", HostAdminEvent.ACTIVATE, actor="boss")
    ended = carry_out(world, centre, plan)

    assert (ended.state, ended.last_error) == ("cancelled", "host h1 was activated by boss")
    for _ in range(6):
        world.sweep()
        centre.advance()
    assert [world.runs(vm) for vm in vms] == [["h1"]] * 6
    assert world.registry.check() == []


def test_of_a_plan_for_two_hosts_the_one_that_is_activated_keeps_its_vms(
    world: MovingWorld, centre: PlanExecutor
) -> None:
    first, second = world.running("h1"), world.running("h2")
    for host in ("h1", "h2"):
        world.registry.hosts.change_admin(host, HostAdminEvent.DRAIN, actor=ACTOR)
    plan = evacuate(world, "h1", "h2")
    centre.advance()

    world.registry.hosts.change_admin("h1", HostAdminEvent.ACTIVATE, actor="boss")
    world.registry.plans.approve(plan.id, actor=ACTOR)
    done = carry_out(world, centre, plan)

    assert (done.state, done.failed) == ("done", 1)
    [refused] = [each for each in world.registry.plans.moves(plan.id) if each.refused]
    assert refused.refused == "host h1 was activated by boss"
    assert (world.runs(first), world.runs(second) != ["h2"]) == (["h1"], True)


def test_a_host_that_nobody_took_out_is_emptied(world: MovingWorld, centre: PlanExecutor) -> None:
    vm = world.running("h1")
    world.registry.hosts.change_admin("h1", HostAdminEvent.DRAIN, actor=ACTOR)
    world.registry.hosts.change_admin("h1", HostAdminEvent.ACTIVATE, actor=ACTOR)

    done = carry_out(world, centre, evacuate(world, "h1", approve=True))

    assert done.state == "done"
    assert world.runs(vm) != ["h1"]


def test_packing_empties_hosts(world: MovingWorld, centre: PlanExecutor) -> None:
    for host in ("h1", "h2", "h3"):
        world.running(host)

    plan = world.registry.plans.create(PlanKind.PACK, {}, approve=True, actor=ACTOR)
    done = carry_out(world, centre, plan)

    assert done.failed == 0
    world.sweep()
    assert sum(bool(each) for each in world.committed().values()) == 1


def test_a_plan_of_a_host_that_is_not_there_is_refused(world: MovingWorld) -> None:
    with pytest.raises(UnknownNameError, match="nowhere"):
        evacuate(world, "nowhere")


def test_a_stored_plan_is_decided_again_to_the_bit(
    world: MovingWorld, centre: PlanExecutor
) -> None:
    for _ in range(3):
        world.running("h1")
    plan = evacuate(world, "h1")
    centre.advance()

    inputs, document = world.registry.plans.inputs(plan.id)

    assert decide_plan(inputs) == document


@pytest.mark.slow
def test_the_control_centres_child_decides_the_same(
    world: MovingWorld, decider: PolicyProcess
) -> None:
    world.running("h1")
    plan = evacuate(world, "h1")

    a_centre(world, decider).advance()

    inputs, document = world.registry.plans.inputs(plan.id)
    assert decide_plan(inputs) == document
