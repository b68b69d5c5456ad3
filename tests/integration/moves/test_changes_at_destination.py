"""Moves and rolls whose ground changes after they were asked for."""

from __future__ import annotations

from typing import Any, Final

import pytest

from controller.plans.executor import PlanExecutor
from registry import HostAdminEvent
from registry.moves import Move, StepReport
from registry.networks import NetworkSource
from registry.requests import MembershipRule, Rules, Vm
from tests.integration.moves.test_plans import InThisProcess, a_centre, evacuate
from tests.integration.moves.test_rolls import Site
from tests.integration.moves.world import NAMES, MovingWorld
from tests.register import ACTOR, add_request, place, take_lease
from workers import builds
from workers.context import TaskOutcome

LAN: Final = NetworkSource(kind="bridge", name="br0")
APART: Final = Rules(anti_affinity=MembershipRule(group="apart"))
BESIDE: Final = Rules(affinity=MembershipRule(group="beside"))


@pytest.fixture
def centre(world: MovingWorld) -> PlanExecutor:
    return a_centre(world, InThisProcess())


def arrives_on(world: MovingWorld, host: str) -> Vm:
    """A VM that a round places there and a worker builds at once."""
    request = add_request(world.registry)
    [key] = place(world.registry, request, world.registry.hosts.get(host)).assignment_ids
    assert builds.build_vm(key, world.worker()) is TaskOutcome.DONE
    return next(vm for vm in world.registry.vms.list(limit=500).items if vm.assignment_id == key)


@pytest.mark.parametrize(
    ("event", "told"),
    [(HostAdminEvent.DRAIN, "draining"), (HostAdminEvent.MAINTAIN, "maintenance")],
)
def test_no_move_begins_to_a_host_that_takes_no_vms_by_now(
    world: MovingWorld, event: HostAdminEvent, told: str
) -> None:
    vm, move = world.asked_to_move()
    world.registry.hosts.change_admin("h2", event, actor=ACTOR)

    world.sweep()

    ended = world.get(move)
    assert (ended.state, ended.last_error) == ("failed", f"host h2 is {told}")
    world.assert_settled(vm, "h1")
    world.registry.hosts.change_admin("h2", HostAdminEvent.RETIRE, actor=ACTOR)


def test_a_host_that_closes_holds_nothing_for_moves_that_cannot_begin(world: MovingWorld) -> None:
    _, move = world.asked_to_move()
    world.registry.hosts.record_miss(
        world.registry.hosts.get("h1").id, "no answer", unreachable_after=1, down_after=9
    )
    world.registry.hosts.change_admin("h2", HostAdminEvent.DRAIN, actor=ACTOR)

    world.sweep()

    assert world.get(move).state == "failed"
    assert world.committed()["h2"] == 0


def test_no_move_begins_to_a_host_that_lost_its_room_meanwhile(world: MovingWorld) -> None:
    vm, move = world.asked_to_move()
    world.registry.hosts.update("h2", overrides={"memory_mib": 1024}, actor=ACTOR)

    assert world.move(move) is TaskOutcome.NOT_OURS

    assert world.get(move).last_error == "host h2 offers less memory_mib than it holds by now"
    world.assert_settled(vm, "h1")


def assert_refused(world: MovingWorld, vm: Vm, asked: Move, told: str) -> None:
    assert world.move(asked) is TaskOutcome.NOT_OURS

    ended = world.get(asked)
    assert (ended.state, ended.last_error) == ("failed", told)
    assert world.movers.log == []
    assert world.vm(vm).host == "h1"
    assert world.runs(vm) == ["h1"]
    assert world.registry.check() == []


@pytest.mark.parametrize(
    ("asked_of_it", "labels", "changed"),
    [
        ({"requires": ["ssd"]}, ["ssd"], []),
        ({"rules": Rules(zone="east")}, ["zone=east"], ["zone=west"]),
        ({"rules": Rules(forbids=("old",))}, [], ["old"]),
    ],
    ids=["required", "zone", "forbidden"],
)
def test_no_move_begins_to_a_host_whose_labels_its_request_does_not_allow_by_now(
    world: MovingWorld, asked_of_it: dict[str, Any], labels: list[str], changed: list[str]
) -> None:
    for name in ("h1", "h2"):
        world.registry.hosts.update(name, labels=labels, actor=ACTOR)
    vm = world.running(**asked_of_it)
    move = world.ask(vm)
    world.registry.hosts.update("h2", labels=changed, actor=ACTOR)

    assert_refused(world, vm, move, "its request may not use host h2")
    world.assert_settled(vm, "h1")


def test_no_move_begins_to_a_host_that_lost_its_network_meanwhile(world: MovingWorld) -> None:
    world.registry.networks.add("lan", hosts={"h1": LAN, "h2": LAN}, actor=ACTOR)
    vm = world.running(network="lan")
    move = world.ask(vm)
    world.registry.networks.change("lan", hosts={"h2": None}, actor=ACTOR)

    assert_refused(world, vm, move, "host h2 does not have its network")


def test_no_move_begins_away_from_a_vm_that_was_to_follow_and_stays(
    world: MovingWorld, centre: PlanExecutor
) -> None:
    vms = [world.running("h1", rules=BESIDE) for _ in range(2)]
    plan = evacuate(world, "h1", approve=True)
    centre.advance()
    centre.advance()
    first, second = world.registry.moves.list().items
    world.registry.moves.cancel(first.id, actor=ACTOR)

    vm = next(each for each in vms if each.id == second.vm_id)
    assert_refused(world, vm, second, f"its group or its spread forbids host {second.to_host}")
    assert [world.committed()[name] for name in ("h2", "h3")] == [0, 0]
    centre.advance()
    assert world.registry.plans.get(plan.id).state == "done"


def test_no_move_begins_that_leaves_a_zone_with_more_than_its_part(world: MovingWorld) -> None:
    for name, zone in (("h1", "a"), ("h2", "b"), ("h3", "c")):
        world.registry.hosts.update(name, labels=[f"zone={zone}"], actor=ACTOR)
    request = add_request(world.registry, count=2, rules=Rules(spread="zone"))
    keys = [
        key
        for name in ("h1", "h3")
        for key in place(world.registry, request, world.registry.hosts.get(name)).assignment_ids
    ]
    for key in keys:
        assert builds.build_vm(key, world.worker()) is TaskOutcome.DONE
    items = world.registry.vms.list().items
    vm = next(each for each in items if each.host == "h1")
    move = world.ask(vm)
    world.registry.hosts.update("h2", labels=["zone=c"], actor=ACTOR)

    assert_refused(world, vm, move, "its group or its spread forbids host h2")


@pytest.mark.parametrize("rules", [APART, BESIDE, Rules(spread="zone")])
def test_a_vm_is_no_neighbour_of_its_own_where_it_arrives(world: MovingWorld, rules: Rules) -> None:
    for name in ("h1", "h2", "h3"):
        world.registry.hosts.update(name, labels=["zone=a"], actor=ACTOR)
    vm = world.running(rules=rules)

    assert world.move(world.ask(vm)) is TaskOutcome.DONE

    world.assert_settled(vm, "h2")


def where_a_round_sees(world: MovingWorld, rules: Rules) -> set[str]:
    """Hosts where a group has VMs, as a round sees it that is to place another of them."""
    add_request(world.registry, rules=rules)
    [group] = world.registry.rounds.read_cluster(take_lease(world.registry)).vm_groups
    return {name for name in NAMES if world.registry.hosts.get(name).id in group.hosts}


def test_who_is_to_be_beside_a_vm_that_moves_goes_to_where_it_will_be(world: MovingWorld) -> None:
    vm = world.running("h1", rules=BESIDE)
    move = world.ask(vm, "h2")
    request = add_request(world.registry, rules=BESIDE)

    at_old = place(world.registry, request, world.registry.hosts.get("h1"))
    at_new = place(world.registry, request, world.registry.hosts.get("h2"))

    assert (at_old.assignment_ids, len(at_new.assignment_ids)) == ((), 1)
    assert where_a_round_sees(world, BESIDE) == {"h2"}
    assert world.move(move) is TaskOutcome.DONE
    assert world.vm(vm).host == "h2"


def test_who_is_to_be_apart_from_a_vm_that_moves_avoids_both_its_hosts(world: MovingWorld) -> None:
    vm = world.running("h1", rules=APART)
    world.ask(vm, "h2")

    assert where_a_round_sees(world, APART) == {"h1", "h2"}


def test_a_move_that_fails_has_its_group_where_it_was(world: MovingWorld) -> None:
    vm = world.running("h1", rules=BESIDE)
    world.registry.moves.cancel(world.ask(vm, "h2").id, actor=ACTOR)

    assert where_a_round_sees(world, BESIDE) == {"h1"}


def test_vms_of_a_group_follow_each_other_by_a_plan(
    world: MovingWorld, centre: PlanExecutor
) -> None:
    first, second = world.running("h1", rules=BESIDE), world.running("h1", rules=BESIDE)
    plan = evacuate(world, "h1", approve=True)

    for _ in range(8):
        centre.advance()
        world.sweep()

    assert world.registry.plans.get(plan.id).failed == 0
    assert world.runs(first) == world.runs(second) != ["h1"]


def test_a_plan_goes_on_without_a_move_that_its_destination_refuses(
    world: MovingWorld, centre: PlanExecutor
) -> None:
    for name in ("h1", "h2"):
        world.registry.hosts.update(name, labels=["ssd"], actor=ACTOR)
    vm, other = world.running("h1", requires=["ssd"]), world.running("h1")
    plan = evacuate(world, "h1", approve=True)
    centre.advance()
    centre.advance()
    world.registry.hosts.update("h2", labels=[], actor=ACTOR)

    for _ in range(8):
        world.sweep()
        centre.advance()

    ended = world.registry.plans.get(plan.id)
    assert (ended.state, ended.ended, ended.failed) == ("done", 2, 1)
    assert world.runs(vm) == ["h1"]
    assert world.runs(other) != ["h1"]


def test_a_move_under_way_to_a_host_that_closes_arrives(world: MovingWorld) -> None:
    vm, move = world.asked_to_move()

    def close() -> None:
        world.registry.hosts.change_admin("h2", HostAdminEvent.DRAIN, actor=ACTOR)
        world.registry.hosts.update("h2", overrides={"memory_mib": 1024}, actor=ACTOR)

    world.movers.during = close

    assert world.move(move) is TaskOutcome.DONE
    world.assert_settled(vm, "h2")


def test_moves_of_a_cancelled_plan_end_though_their_host_is_silent(
    world: MovingWorld, centre: PlanExecutor
) -> None:
    vm = world.running("h1")
    plan = evacuate(world, "h1", approve=True)
    centre.advance()
    centre.advance()
    [requested] = world.registry.moves.list().items
    world.registry.hosts.record_miss(
        world.registry.hosts.get("h1").id, "no answer", unreachable_after=1, down_after=9
    )

    world.registry.plans.cancel(plan.id, actor="boss")
    world.sweep()

    assert world.get(requested).state == "cancelled"
    assert [world.committed()[name] for name in ("h2", "h3")] == [0, 0]
    world.report("h1")
    world.assert_settled(vm, "h1")


def test_moves_of_a_cancelled_plan_end_while_the_slot_loop_is_paused(
    world: MovingWorld, centre: PlanExecutor
) -> None:
    vm = world.running("h1")
    plan = evacuate(world, "h1", approve=True)
    centre.advance()
    centre.advance()
    world.registry.slot_loop.pause("a look", actor=ACTOR)

    world.registry.plans.cancel(plan.id, actor="boss")

    world.assert_settled(vm, "h1")


def test_what_has_no_place_keeps_its_name(world: MovingWorld, centre: PlanExecutor) -> None:
    vm = world.running("h1")
    world.registry.vms.change_labels(vm.id, {"moves": "never"})
    plan = evacuate(world, "h1")

    centre.advance()

    assert [each["name"] for each in world.registry.plans.get(plan.id).not_moved] == [vm.name]


def test_the_command_begins_on_no_host_that_got_vms_since_it_was_empty(world: MovingWorld) -> None:
    site = Site(world)
    claim = site.begin("h1")
    site.until(claim, "empty")
    world.registry.hosts.change_admin("h1", HostAdminEvent.ACTIVATE, actor="somebody")
    vm = arrives_on(world, "h1")

    [host] = site.step(claim, StepReport(begun=("h1",))).hosts

    assert host.phase == "emptying"
    assert site.drive(claim).roll.state == "done"
    assert site.ran == ["h1"]
    assert world.runs(vm) in (["h2"], ["h3"])
    assert site.admin()["h1"] == "active"
