"""Moves and rolls whose ground changes after they were asked for."""

from __future__ import annotations

import pytest

from controller.plans.carrying import Plans
from registry import HostAdminEvent
from registry.moves import Driving
from registry.requests import Vm
from tests.integration.moves.test_plans import InThisProcess, a_centre, evacuate
from tests.integration.moves.test_rolls import Site
from tests.integration.moves.world import MovingWorld
from tests.register import ACTOR, add_request, place
from workers import builds
from workers.context import Outcome


@pytest.fixture
def centre(world: MovingWorld) -> Plans:
    return a_centre(world, InThisProcess())


def arrives_on(world: MovingWorld, host: str) -> Vm:
    """A VM that a round places there and a worker builds at once."""
    request = add_request(world.registry)
    [key] = place(world.registry, request, world.registry.hosts.get(host)).assignment_ids
    assert builds.create(key, world.worker()) is Outcome.DONE
    return next(vm for vm in world.registry.vms.list(limit=500).items if vm.assignment_id == key)


@pytest.mark.parametrize(
    ("event", "told"),
    [(HostAdminEvent.DRAIN, "draining"), (HostAdminEvent.MAINTAIN, "maintenance")],
)
def test_no_move_begins_to_a_host_that_takes_no_vms_by_now(
    world: MovingWorld, event: HostAdminEvent, told: str
) -> None:
    vm = world.running()
    asked = world.ask(vm)
    world.registry.hosts.apply("h2", event, actor=ACTOR)

    world.sweep()

    ended = world.get(asked)
    assert (ended.state, ended.last_error) == ("failed", f"host h2 is {told}")
    world.assert_settled(vm, "h1")
    world.registry.hosts.apply("h2", HostAdminEvent.RETIRE, actor=ACTOR)


def test_a_host_that_closes_holds_nothing_for_moves_that_cannot_begin(world: MovingWorld) -> None:
    vm = world.running()
    asked = world.ask(vm)
    world.registry.hosts.record_miss(
        world.registry.hosts.get("h1").id, "no answer", unreachable_after=1, down_after=9
    )
    world.registry.hosts.apply("h2", HostAdminEvent.DRAIN, actor=ACTOR)

    world.sweep()

    assert world.get(asked).state == "failed"
    assert world.committed()["h2"] == 0


def test_no_move_begins_to_a_host_that_lost_its_room_meanwhile(world: MovingWorld) -> None:
    vm = world.running()
    asked = world.ask(vm)
    world.registry.hosts.update("h2", overrides={"memory_mib": 1024}, actor=ACTOR)

    assert world.move(asked) is Outcome.NOT_OURS

    assert world.get(asked).last_error == "host h2 offers less memory_mib than it holds by now"
    world.assert_settled(vm, "h1")


def test_a_move_under_way_to_a_host_that_closes_arrives(world: MovingWorld) -> None:
    vm = world.running()
    asked = world.ask(vm)

    def close() -> None:
        world.registry.hosts.apply("h2", HostAdminEvent.DRAIN, actor=ACTOR)
        world.registry.hosts.update("h2", overrides={"memory_mib": 1024}, actor=ACTOR)

    world.movers.during = close

    assert world.move(asked) is Outcome.DONE
    world.assert_settled(vm, "h2")


def test_moves_of_a_cancelled_plan_end_though_their_host_is_silent(
    world: MovingWorld, centre: Plans
) -> None:
    vm = world.running("h1")
    plan = evacuate(world, "h1", approve=True)
    centre.look()
    centre.look()
    [asked] = world.registry.moves.list().items
    world.registry.hosts.record_miss(
        world.registry.hosts.get("h1").id, "no answer", unreachable_after=1, down_after=9
    )

    world.registry.plans.cancel(plan.id, actor="boss")
    world.sweep()

    assert world.get(asked).state == "cancelled"
    assert [world.committed()[name] for name in ("h2", "h3")] == [0, 0]
    world.report("h1")
    world.assert_settled(vm, "h1")


def test_moves_of_a_cancelled_plan_end_while_the_slot_loop_is_paused(
    world: MovingWorld, centre: Plans
) -> None:
    vm = world.running("h1")
    plan = evacuate(world, "h1", approve=True)
    centre.look()
    centre.look()
    world.registry.slot_loop.pause("a look", actor=ACTOR)

    world.registry.plans.cancel(plan.id, actor="boss")

    world.assert_settled(vm, "h1")


def test_what_has_no_place_keeps_its_name(world: MovingWorld, centre: Plans) -> None:
    vm = world.running("h1")
    world.registry.vms.label(vm.id, {"moves": "never"})
    plan = evacuate(world, "h1")

    centre.look()

    assert [each["name"] for each in world.registry.plans.get(plan.id).stays] == [vm.name]


def test_the_command_begins_on_no_host_that_got_vms_since_it_was_empty(world: MovingWorld) -> None:
    site = Site(world)
    claim = site.begin("h1")
    site.until(claim, "empty")
    world.registry.hosts.apply("h1", HostAdminEvent.ACTIVATE, actor="somebody")
    vm = arrives_on(world, "h1")

    [host] = site.step(claim, Driving(begun=("h1",))).hosts

    assert host.phase == "emptying"
    assert site.drive(claim).roll.state == "done"
    assert site.ran == ["h1"]
    assert world.runs(vm) in (["h2"], ["h3"])
    assert site.admin()["h1"] == "active"
