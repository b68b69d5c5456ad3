"""The standing rule of balance: asked when due, within hours, judged, never two at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from controller.auto_balance import BalanceRule
from controller.plans.executor import PlanExecutor
from registry import Registry, StaleEpochError
from registry.moves import STANDING_RULE, Plan, PlanKind
from registry.rounds import CONTROL_LEASE
from tests.integration.moves.test_plans import PLANNING, InThisProcess
from tests.integration.moves.world import MovingWorld
from tests.raw_sql import RawSql
from tests.register import ACTOR, take_lease

Centre = Callable[..., PlanExecutor]


@pytest.fixture
def world(register: Registry) -> MovingWorld:
    world = MovingWorld(register)
    for _ in range(6):
        world.running("h1")
    return world


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def centre(world: MovingWorld, told: list[str]) -> Centre:
    lease = take_lease(world.registry)

    def make(**rule: Any) -> PlanExecutor:
        given = {"every_s": 3600, "least_gain": 0.001, "most_gib": 1000} | rule
        return PlanExecutor(
            world.registry,
            lambda: lease,
            InThisProcess(),  # type: ignore[arg-type]
            replace(PLANNING, balance=BalanceRule(**given)),
            interval_s=1,
            on_requested=lambda: None,
            on_standing=told.append,
        )

    return make


def plans(world: MovingWorld) -> tuple[Plan, ...]:
    return world.registry.plans.list().items


def look(world: MovingWorld, centre: PlanExecutor, times: int = 20) -> None:
    for _ in range(times):
        centre.advance()
        world.sweep()


def closed_hours(world: MovingWorld, *, from_now_h: float) -> str:
    """Two hours that begin so long after the register center's time."""
    first = world.registry.now() + timedelta(hours=from_now_h)
    return f"{first:%H:%M}-{first + timedelta(hours=2):%H:%M}"


def test_what_gains_enough_is_carried_out_and_the_next_is_due_an_interval_later(
    world: MovingWorld, centre: Centre, told: list[str], raw: RawSql
) -> None:
    look(world, centre())

    [plan] = plans(world)
    assert (plan.kind, plan.state, plan.failed) == ("balance", "done", 0)
    assert (plan.requested_by, plan.approved_by) == (STANDING_RULE, STANDING_RULE)
    assert plan.gain is not None
    assert plan.gain >= 0.001
    assert plan.moves > 0
    assert told == ["approved"]
    steps = [(each.actor, each.event) for each in world.registry.events.list(kind="plan_state")]
    assert steps == [("control", "proposed"), (STANDING_RULE, "approved"), ("control", "done")]

    raw.run("UPDATE plans SET requested_at = '2026-01-01 00:00:00'")
    look(world, centre(), times=3)

    [second, _] = plans(world)
    assert (second.state, second.last_error) == ("cancelled", "no useful move")
    assert told == ["approved", "declined"]


def test_what_gains_too_little_is_declined_and_moves_nothing(
    world: MovingWorld, centre: Centre, told: list[str]
) -> None:
    look(world, centre(least_gain=100), times=3)

    [plan] = plans(world)
    assert plan.state == "cancelled"
    assert "less than least_gain, 100" in str(plan.last_error)
    assert plan.moves > 0
    assert world.registry.moves.list().items == ()
    assert told == ["declined"]


def test_one_plan_moves_no_more_than_the_rule_allows(world: MovingWorld, centre: Centre) -> None:
    look(world, centre(most_gib=3))

    [plan] = plans(world)
    assert (plan.state, plan.moves) == ("done", 1)
    assert plan.moved_gib <= 3
    assert plan.arguments == {"most_gib": 3}


def test_nothing_is_asked_outside_of_the_hours(world: MovingWorld, centre: Centre) -> None:
    look(world, centre(hours=closed_hours(world, from_now_h=2)), times=2)
    assert plans(world) == ()

    look(world, centre(hours=closed_hours(world, from_now_h=-1)), times=1)
    assert len(plans(world)) == 1


def test_no_wave_begins_once_the_hours_are_over(world: MovingWorld, centre: Centre) -> None:
    centre().advance()

    look(world, centre(hours=closed_hours(world, from_now_h=2)), times=2)

    [plan] = plans(world)
    assert (plan.state, plan.last_error) == ("cancelled", "its hours are over")


def test_it_waits_for_a_plan_that_goes_on_and_for_the_slot_loop(
    world: MovingWorld, centre: Centre
) -> None:
    world.registry.slot_loop.pause("a look", actor=ACTOR)
    centre().advance()
    assert plans(world) == ()
    world.registry.slot_loop.resume(actor=ACTOR)

    world.registry.plans.create(PlanKind.REPAIR, {}, approve=True, actor=ACTOR)
    centre().advance()
    assert [each.kind for each in plans(world)] == ["repair"]
    look(world, centre(), times=3)
    assert [each.kind for each in plans(world)] == ["balance", "repair"]


def test_a_control_centre_that_takes_over_neither_loses_nor_doubles_a_plan(
    world: MovingWorld, centre: Centre, raw: RawSql
) -> None:
    standing = world.registry.standing_plans
    old = take_lease(world.registry)
    assert standing.request_if_due(old, PlanKind.BALANCE, {}, every_s=3600) is not None
    world.registry.leases.release(old)
    new = world.registry.leases.acquire(CONTROL_LEASE, "another", 60)
    assert new is not None

    with pytest.raises(StaleEpochError):
        standing.request_if_due(old, PlanKind.BALANCE, {}, every_s=0)
    raw.run("UPDATE plans SET state = 'done'")
    assert standing.request_if_due(new, PlanKind.BALANCE, {}, every_s=3600) is None
    assert standing.request_if_due(new, PlanKind.BALANCE, {}, every_s=0) is not None


def test_without_a_rule_what_it_asked_for_is_declined(world: MovingWorld, centre: Centre) -> None:
    lease = take_lease(world.registry)
    world.registry.standing_plans.request_if_due(lease, PlanKind.BALANCE, {}, every_s=1)
    without = PlanExecutor(
        world.registry,
        lambda: lease,
        InThisProcess(),  # type: ignore[arg-type]
        PLANNING,
        interval_s=1,
        on_requested=lambda: None,
    )

    look(world, without, times=2)

    [plan] = plans(world)
    assert (plan.state, plan.last_error) == ("cancelled", "there is no standing rule any more")
