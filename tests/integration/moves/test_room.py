"""Room for a request that starves: moves free it, and rounds keep it until the request is in."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from controller.control_center import policy_child
from controller.host_aliases import Viewer
from controller.plans.executor import PlanExecutor
from controller.plans.plan_inputs import decide_plan
from controller.plans.room_plans import RoomRule
from controller.queries.destinations import destination_hosts
from controller.queries.explanations import WaitingExplanation
from controller.queries.request_explanation import explain_request
from controller.rounds.inputs import decode_inputs
from controller.rounds.interfaces import PolicyChoice, RoundDecider, RoundReport, Slot
from controller.rounds.policy_process import Ideal, PolicyAnswer
from controller.rounds.round import run_round
from registry import ConflictError, HostAdminEvent, MoveRefusedError, Registry, UnknownNameError
from registry.db.ids import uuid7
from registry.moves import Plan, PlanKind
from registry.requests import Request
from tests.integration.moves.test_plans import PLANNING, InThisProcess
from tests.integration.moves.world import MovingWorld
from tests.readers import a_tenant, an_operator
from tests.register import ACTOR, add_request, add_tenant, add_vm_type, take_lease


class DecidesHere:
    """Decides rounds as the control centre's child does, without one."""

    def decide(self, data: bytes, *, policy: str, deadline_s: float) -> PolicyAnswer:
        return policy_child.decide(data)

    def ideal(self, data: bytes, *, resource: int, deadline_s: float) -> Ideal:
        return policy_child.compute_ideal(decode_inputs(data).snapshot, resource)


@pytest.fixture
def world(register: Registry) -> MovingWorld:
    """Two VMs of 3 GiB on each of three hosts; one of 28 GiB fits on none, but in their sum."""
    world = MovingWorld(register)
    add_tenant(register, "b")
    add_vm_type(register, "large", vcpus=4, memory_mib=28 * 1024, disk_gib=20)
    for host in ("h1", "h2", "h3"):
        for _ in range(2):
            world.running(host)
    return world


@pytest.fixture
def centre(world: MovingWorld) -> PlanExecutor:
    return centre_of(world)


def centre_of(world: MovingWorld, process: Any = None, **planning: Any) -> PlanExecutor:
    lease = take_lease(world.registry)
    return PlanExecutor(
        world.registry,
        lambda: lease,
        process or InThisProcess(),
        replace(PLANNING, **planning),
        interval_s=1,
        on_requested=lambda: None,
    )


def run(
    registry: Registry, at: int, *, decider: RoundDecider | None = None, **choice: Any
) -> RoundReport | None:
    """Run a round in this process."""
    values: dict[str, Any] = {
        "name": "fuga",
        "parameters": {"patience": 2},
        "budget_units": 100_000,
        "decision_time_s": 60.0,
    }
    slot = Slot(start_at=datetime.fromtimestamp(1_700_000_000 + at, UTC), length_s=5)
    return run_round(
        slot,
        take_lease(registry),
        PolicyChoice(**values | choice),
        store=registry.rounds,
        decider=decider or DecidesHere(),
        running=registry.plans,
    )


def ask(world: MovingWorld, request: Request, *, approve: bool = False) -> Plan:
    return world.registry.plans.create(
        PlanKind.ROOM, {"request": str(request.id)}, approve=approve, actor=ACTOR
    )


def hosts_of(world: MovingWorld, request: Request) -> list[str | None]:
    return [vm.host for vm in world.registry.vms.list(request_id=request.id).items]


def test_moves_let_a_large_vm_in_and_nobody_else_takes_its_room(
    world: MovingWorld, centre: PlanExecutor
) -> None:
    large = add_request(world.registry, tenant="b", vm_type="large")
    run(world.registry, 0)
    assert hosts_of(world, large) == [None]
    requested = ask(world, large)
    centre.advance()

    proposed = world.registry.plans.get(requested.id)
    assert (proposed.state, proposed.moves, proposed.moved_gib) == ("proposed", 1, 3.0)
    assert proposed.admitted is not None
    assert proposed.admitted["still_waits"] is None
    [at] = proposed.admitted["hosts"]
    [move] = world.registry.plans.moves(requested.id)
    assert (at["count"], at["host"]) == (1, move.from_host)

    world.registry.plans.approve(requested.id, actor=ACTOR)
    many = add_request(world.registry, 40)  # they would refill every gap
    report = run(world.registry, 5)
    assert report is not None
    assert at["host"] not in hosts_of(world, many)
    assert hosts_of(world, large) == [None]
    # Two of three hosts, without the room of the VM that is to arrive.
    assert report.placed == 2 * 8 - 1
    explanation = explain_request(world.registry, large.id, an_operator(world.registry)).waiting
    assert explanation is not None
    assert (explanation.plan, explanation.freed_host_names) == (str(requested.id), (at["host"],))
    assert f"plan {requested.id} makes room for it on {at['host']}" in explanation.message
    hers = explain_request(world.registry, large.id, a_tenant(world.registry)).waiting
    assert hers is not None
    assert (hers.plan, hers.freed_host_names) == (None, None)
    assert "other VMs move to make room for it" in hers.message
    kept_out = explain_request(world.registry, many.id, an_operator(world.registry)).waiting
    assert kept_out is not None
    assert kept_out.held_back > 0

    centre.advance()  # asks for the move
    world.sweep()  # moves, and removes what it left
    world.sweep()
    centre.advance()
    assert world.registry.plans.get(requested.id).state == "approved"  # it keeps the room
    run(world.registry, 10)

    assert hosts_of(world, large) == [at["host"]]
    centre.advance()
    done = world.registry.plans.get(requested.id)
    assert (done.state, done.failed) == ("done", 0)
    number = world.registry.rounds.list().items[0].number
    stored = world.registry.rounds.get(number).decision()
    assert policy_child.decide(stored.inputs).document == stored.outcome
    inputs, document = world.registry.plans.inputs(requested.id)
    assert decide_plan(inputs) == document
    world.sweep()
    assert world.registry.check() == []


def test_a_vm_that_is_moved_by_hand_takes_no_room_that_is_kept(
    world: MovingWorld, centre: PlanExecutor
) -> None:
    large = add_request(world.registry, tenant="b", vm_type="large")
    plan = ask(world, large, approve=True)
    centre.advance()
    [made] = world.registry.plans.get(plan.id).admitted["hosts"]
    [owed] = world.registry.plans.moves(plan.id)
    taken = {made["host"], owed.vm_name}
    vm = next(
        vm
        for vm in world.registry.vms.list(limit=500).items
        if vm.host not in {*taken, None} and vm.name not in taken
    )

    may_go_to = set(destination_hosts(world.registry.moves.cluster_for_move(vm.id), vm.name))

    assert may_go_to == {"h1", "h2", "h3"} - {made["host"], vm.host}
    for name in may_go_to:
        world.registry.hosts.change_admin(name, HostAdminEvent.DRAIN, actor=ACTOR)
    with pytest.raises(MoveRefusedError, match="reserved for requests that have waited longer"):
        next(destination_hosts(world.registry.moves.cluster_for_move(vm.id), vm.name))
    # Who names the host means it.
    assert world.ask(vm, made["host"]).to_host == made["host"]


def test_the_room_is_given_up_when_the_plan_is_cancelled(
    world: MovingWorld, centre: PlanExecutor
) -> None:
    large = add_request(world.registry, tenant="b", vm_type="large")
    plan = ask(world, large, approve=True)
    centre.advance()
    world.registry.plans.cancel(plan.id, actor=ACTOR)
    many = add_request(world.registry, 40)

    run(world.registry, 0, parameters={"patience": 0})

    assert {"h1", "h2", "h3"} <= set(hosts_of(world, many))


def test_room_that_nobody_takes_is_given_up_in_time(world: MovingWorld) -> None:
    centre = centre_of(world)
    large = add_request(world.registry, tenant="b", vm_type="large")
    plan = ask(world, large, approve=True)
    for _ in range(3):
        centre.advance()
        world.sweep()
    assert world.registry.room_plans.keeps_room(plan.id, for_s=60)

    assert not world.registry.room_plans.keeps_room(plan.id, for_s=-1)


def test_what_no_moves_let_in_is_told_and_keeps_nothing(
    world: MovingWorld, centre: PlanExecutor
) -> None:
    add_vm_type(world.registry, "huge", vcpus=4, memory_mib=64 * 1024, disk_gib=20)
    huge = add_request(world.registry, tenant="b", vm_type="huge")
    plan = ask(world, huge, approve=True)

    centre.advance()
    centre.advance()

    done = world.registry.plans.get(plan.id)
    assert (done.state, done.moves) == ("done", 0)
    assert done.admitted is not None
    assert (done.admitted["hosts"], done.admitted["still_waits"]["count"]) == ([], 1)


def test_what_stands_in_the_way_of_a_request_is_told(
    world: MovingWorld, centre: PlanExecutor
) -> None:
    for host in ("h1", "h2", "h3"):
        world.running(host, hosts=[host])
    never = [world.registry.vms.list(limit=500).items[0]]
    for vm in never:
        world.registry.vms.change_labels(vm.id, {"moves": "never"})
    for host in ("h1", "h2", "h3"):  # too full for what it holds to go elsewhere
        for _ in range(6):
            world.running(host, hosts=[host])
    large = add_request(world.registry, tenant="b", vm_type="large")
    plan = ask(world, large)

    centre.advance()

    done = world.registry.plans.get(plan.id)
    assert (done.state, done.moves) == ("done", 0)
    assert done.admitted is not None
    assert done.admitted["still_waits"] == {"count": 1, "reason": "no_room"}
    assert done.admitted["in_the_way"] == {"label": 1, "no_eligible_host": 21, "no_room": 5}


def test_room_is_made_once_and_for_who_waits(world: MovingWorld) -> None:
    large = add_request(world.registry, tenant="b", vm_type="large")
    ask(world, large)

    with pytest.raises(ConflictError, match="makes room for this request already"):
        ask(world, large)
    [placed, *_] = world.registry.requests.list().items
    with pytest.raises(ConflictError, match="waits for a place"):
        ask(world, placed)
    with pytest.raises(UnknownNameError, match="not found"):
        world.registry.plans.create(
            PlanKind.ROOM, {"request": str(uuid7())}, approve=False, actor=ACTOR
        )


@pytest.mark.parametrize("how", ["propose", "carry_out"])
def test_a_request_that_starves_gets_in_by_moves(world: MovingWorld, how: Any) -> None:
    centre = centre_of(world, room=RoomRule(how=how, patience=2, rest_s=3600))
    large = add_request(world.registry, tenant="b", vm_type="large")
    add_request(world.registry, 6)  # small ones refill every gap
    run(world.registry, 0)
    centre.advance()
    assert world.registry.plans.list().items == ()  # it waits for less than its patience
    add_request(world.registry, 6)
    run(world.registry, 5)

    for at in range(10, 40, 5):
        centre.advance()
        centre.advance()  # what was decided is carried out
        world.sweep()
        world.sweep()
        run(world.registry, at)
    centre.advance()

    [plan] = world.registry.plans.list().items
    assert plan.requested_by == "control"
    if how == "propose":
        assert (plan.state, hosts_of(world, large)) == ("proposed", [None])
        return
    assert plan.state == "done"
    assert plan.admitted is not None
    assert hosts_of(world, large) == [plan.admitted["hosts"][0]["host"]]
    shown = [_details(world, each.number) for each in world.registry.rounds.list().items]
    while_they_move = [each for each in shown if "freed" in each]
    assert while_they_move
    assert not any("holding" in each for each in while_they_move)


def _details(world: MovingWorld, number: int) -> Any:
    return world.registry.rounds.get(number).decision().outcome.get("details", {})


def test_a_request_is_told_that_moves_could_let_it_in_where_no_plan_comes_by_itself(
    world: MovingWorld,
):
    registry = world.registry
    large = add_request(registry, tenant="b", name="large", vm_type="large")

    def told(reader: Viewer) -> WaitingExplanation:
        found = explain_request(registry, large.id, reader).waiting
        assert found is not None
        return found

    run(registry, 0, makes_room=True)
    assert told(an_operator(registry)).moves_could_make_room is False
    add_request(registry, tenant="b", name="another", vm_type="large")
    run(registry, 5)

    found = told(an_operator(registry))
    assert (found.reason, found.moves_could_make_room) == ("no_room", True)
    assert "could let it in: `fuga plan room` tells" in found.message
    hers = told(a_tenant(registry, "b"))
    assert "a plan of moves could let it in, which operators make" in hers.message
