"""Plans of moves that cross: each other, operators at once, hosts that change, tenants."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from controller.plans.executor import PlanExecutor
from registry import ConflictError, HostAdminEvent, RegistryError
from registry.errors import IllegalTransitionError
from registry.moves import Plan, PlanKind, PlannedMove
from registry.requests import Vm
from tests.integration.moves.test_plans import InThisProcess, a_centre, carry_out, evacuate
from tests.integration.moves.world import MovingWorld
from tests.register import ACTOR, add_request, add_tenant, add_vm_type


@pytest.fixture
def centre(world: MovingWorld) -> PlanExecutor:
    return a_centre(world, InThisProcess())


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Begin calls in threads at one moment, and return what came of each: a value or an error."""
    found: list[Any] = [None] * len(calls)
    start = threading.Barrier(len(calls))

    def run(place: int) -> None:
        start.wait()
        try:
            found[place] = calls[place]()
        except RegistryError as error:
            found[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(calls))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return found


def a_plan(world: MovingWorld, *moves: tuple[Vm, str, str]) -> Plan:
    """A plan of moves (VM, from, to), proposed as if a planner had."""
    plan = world.registry.plans.create(PlanKind.BALANCE, {}, approve=False, actor=ACTOR)
    return propose(world, plan, *moves)


def propose(world: MovingWorld, plan: Plan, *moves: tuple[Vm, str, str]) -> Plan:
    """Propose moves (VM, from, to) as the content of a plan."""
    ids = {host.name: host.id for host in world.registry.hosts.list().items}
    return world.registry.plans.propose(
        plan.id,
        [
            PlannedMove(
                vm_id=vm.id,
                from_host_id=ids[here],
                to_host_id=ids[there],
                wave=0,
                why="balances",
                transfer_mib=1,
            )
            for vm, here, there in moves
        ],
        before={},
        after={},
        stays=[],
        cut=False,
        inputs=b"",
        document={},
        actor=ACTOR,
    )


def test_a_plan_that_two_control_centres_decided_keeps_the_first_decision(
    world: MovingWorld,
) -> None:
    vm = world.running("h1")
    plan = a_plan(world, (vm, "h1", "h2"))

    with pytest.raises(IllegalTransitionError):
        propose(world, plan, (vm, "h1", "h3"))

    [kept] = world.registry.plans.moves(plan.id)
    assert kept.to_host == "h2"


def test_of_two_who_approve_a_plan_at_once_one_did(
    world: MovingWorld, centre: PlanExecutor
) -> None:
    vm = world.running("h1")
    plan = evacuate(world, "h1")
    centre.advance()

    def approve_as(actor: str) -> Callable[[], Plan]:
        return lambda: world.registry.plans.approve(plan.id, actor=actor)

    came = at_once(*(approve_as(f"boss-{each}") for each in range(4)))

    refused = [each for each in came if isinstance(each, IllegalTransitionError)]
    [approved] = [each for each in came if isinstance(each, Plan)]
    assert len(refused) == 3
    assert all(f"approved already by {approved.approved_by}" in str(each) for each in refused)
    assert carry_out(world, centre, plan).approved_by == approved.approved_by
    assert len(world.registry.moves.list(vm_id=vm.id).items) == 1


def test_a_plan_cancelled_as_it_is_approved_is_cancelled(
    world: MovingWorld, centre: PlanExecutor
) -> None:
    vm = world.running("h1")
    plan = evacuate(world, "h1")
    centre.advance()

    at_once(
        lambda: world.registry.plans.approve(plan.id, actor="boss"),
        lambda: world.registry.plans.cancel(plan.id, actor="other"),
        centre.advance,
    )

    assert world.registry.plans.get(plan.id).state == "cancelled"
    for _ in range(3):
        centre.advance()
        world.sweep()
    assert len(world.runs(vm)) == 1
    assert world.registry.check() == []


def test_two_plans_that_want_one_vm_move_it_once(world: MovingWorld, centre: PlanExecutor) -> None:
    vm = world.running("h1")
    plans = [a_plan(world, (vm, "h1", there)) for there in ("h2", "h3")]
    world.registry.plans.approve(plans[0].id, actor=ACTOR)
    assert carry_out(world, centre, plans[0]).failed == 0

    world.registry.plans.approve(plans[1].id, actor=ACTOR)
    second = carry_out(world, centre, plans[1])

    assert (second.state, second.failed) == ("done", 1)
    [refused] = world.registry.plans.moves(plans[1].id)
    assert "it is on host h2 by now, not on host h1" in str(refused.refused)
    world.assert_settled(vm, "h2")


def test_two_plans_that_want_one_vm_at_once_move_it_once(
    world: MovingWorld, centre: PlanExecutor
) -> None:
    vm = world.running("h1")
    plans = [a_plan(world, (vm, "h1", there)) for there in ("h2", "h3")]
    at_once(*(lambda key=each.id: world.registry.plans.approve(key, actor=ACTOR) for each in plans))

    done = [carry_out(world, centre, each) for each in plans]

    assert sorted(each.failed for each in done) == [0, 1]
    assert len(world.registry.moves.list(vm_id=vm.id).items) == 1


def test_two_plans_that_want_the_last_room_of_a_host_do_not_both_get_it(
    world: MovingWorld, centre: PlanExecutor
) -> None:
    world.registry.hosts.update("h2", overrides={"memory_mib": 3072}, actor=ACTOR)
    vms = [world.running("h1"), world.running("h3")]
    plans = [a_plan(world, (vm, here, "h2")) for vm, here in zip(vms, ("h1", "h3"), strict=True)]
    for each in plans:
        world.registry.plans.approve(each.id, actor=ACTOR)

    done = [carry_out(world, centre, each) for each in plans]

    assert [each.failed for each in done] == [0, 1]
    assert world.committed()["h2"] == 3072
    assert world.registry.check() == []


@pytest.mark.parametrize("change", ["maintain", "remove", "lose_room"])
def test_a_plan_whose_destination_changed_since_moves_nothing_there(
    world: MovingWorld, centre: PlanExecutor, change: str
) -> None:
    vm = world.running("h1")
    plan = a_plan(world, (vm, "h1", "h2"))
    if change == "maintain":
        world.registry.hosts.change_admin("h2", HostAdminEvent.MAINTAIN, actor=ACTOR)
    elif change == "remove":
        world.registry.hosts.change_admin("h2", HostAdminEvent.RETIRE, actor=ACTOR)
    else:
        world.registry.hosts.update("h2", overrides={"memory_mib": 1024}, actor=ACTOR)
    world.registry.plans.approve(plan.id, actor=ACTOR)

    done = carry_out(world, centre, plan)

    assert (done.state, done.failed) == ("done", 1)
    assert world.runs(vm) == ["h1"]
    assert world.committed() == {"h1": 3072, "h2": 0, "h3": 0} or change == "remove"
    assert world.registry.check() == []


class TestRoom:
    """Plans that make room for one request."""

    @pytest.fixture
    def large(self, world: MovingWorld) -> Any:
        add_tenant(world.registry, "b")
        add_vm_type(world.registry, "large", vcpus=4, memory_mib=28 * 1024, disk_gib=20)
        for host in ("h1", "h2", "h3"):
            for _ in range(2):
                world.running(host)
        return add_request(world.registry, tenant="b", vm_type="large")

    def ask(self, world: MovingWorld, centre: PlanExecutor, large: Any) -> Plan:
        plan = world.registry.plans.create(
            PlanKind.ROOM, {"request": str(large.id)}, approve=False, actor=ACTOR
        )
        centre.advance()
        return plan

    def test_of_two_for_one_request_one_is_approved(
        self, world: MovingWorld, centre: PlanExecutor, large: Any
    ) -> None:
        first, second = (self.ask(world, centre, large) for _ in range(2))
        world.registry.plans.approve(first.id, actor=ACTOR)

        with pytest.raises(ConflictError, match=f"plan {first.id} makes room"):
            world.registry.plans.approve(second.id, actor=ACTOR)

        assert world.registry.plans.get(second.id).state == "proposed"

    def test_of_two_for_one_request_that_are_approved_at_once_one_is(
        self, world: MovingWorld, centre: PlanExecutor, large: Any
    ) -> None:
        plans = [self.ask(world, centre, large) for _ in range(2)]

        came = at_once(
            *(lambda key=each.id: world.registry.plans.approve(key, actor=ACTOR) for each in plans)
        )

        assert sorted(isinstance(each, ConflictError) for each in came) == [False, True]

    def test_of_two_that_are_asked_at_once_for_one_request_one_is(
        self, world: MovingWorld, large: Any
    ) -> None:
        def ask() -> Plan:
            about = {"request": str(large.id)}
            return world.registry.plans.create(PlanKind.ROOM, about, approve=True, actor=ACTOR)

        came = at_once(*[ask] * 4)

        assert sum(isinstance(each, Plan) for each in came) == 1

    def test_one_for_a_request_that_is_gone_is_not_approved(
        self, world: MovingWorld, centre: PlanExecutor, large: Any
    ) -> None:
        plan = self.ask(world, centre, large)
        world.registry.requests.delete(large.id, actor=ACTOR)

        with pytest.raises(ConflictError, match="waits for a place"):
            world.registry.plans.approve(plan.id, actor=ACTOR)

    def test_one_whose_request_goes_begins_no_other_move(
        self, world: MovingWorld, centre: PlanExecutor, large: Any
    ) -> None:
        plan = self.ask(world, centre, large)
        world.registry.plans.approve(plan.id, actor=ACTOR)
        world.registry.requests.delete(large.id, actor=ACTOR)

        ended = carry_out(world, centre, plan)

        assert (ended.state, world.registry.moves.list().items) == ("cancelled", ())
        assert "waits for a place" in str(ended.last_error)
