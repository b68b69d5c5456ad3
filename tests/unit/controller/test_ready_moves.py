"""Moves are asked for in the order of their plan, and before their turn where nothing speaks."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from controller.plans.ready_moves import select_ready_moves
from placement.rebalancing.model import RebalanceLimits
from registry.moves import MoveState, PlanMove

LIMITS = RebalanceLimits(per_source=2, per_destination=2, at_once=8)


def moves(*ends: tuple[int, str, str]) -> list[PlanMove]:
    """A plan: of each move its wave, the host that the VM leaves, and the other."""
    return [
        PlanMove(
            position=position,
            wave=wave,
            vm_id=UUID(int=position),
            vm_name=f"vm-{position}",
            tenant="a",
            from_host=here,
            to_host=there,
            why="evacuates",
            transfer_mib=1,
            move_id=None,
            state=None,
            refused=None,
            leaves=False,
        )
        for position, (wave, here, there) in enumerate(ends)
    ]


def as_it_is(move: PlanMove, state: MoveState, *, leaves: bool = False) -> PlanMove:
    return replace(move, move_id=uuid4(), state=state, leaves=leaves)


def asked(plan: list[PlanMove], limits: RebalanceLimits = LIMITS) -> tuple[list[int], list[int]]:
    """Positions of what is due, and of what goes early."""
    turns = select_ready_moves(plan, limits)
    assert turns is not None
    return [move.position for move in turns.due], [move.position for move in turns.early]


ONE_BY_ONE = [(number // 2, "h1", "h2" if number % 2 else "h3") for number in range(10)]


def test_the_next_moves_of_a_host_are_at_hand_before_a_wave_is_over() -> None:
    plan = moves(*ONE_BY_ONE)

    assert asked(plan) == ([0, 1], [2, 3])  # twice as many as may go on


def test_one_slow_move_holds_up_no_other() -> None:
    plan = moves(*ONE_BY_ONE)
    plan[0] = as_it_is(plan[0], MoveState.MOVING)
    plan[1:6] = [as_it_is(each, MoveState.MOVED) for each in plan[1:6]]

    assert asked(plan) == ([], [6, 7, 8])


def test_a_plan_is_over_with_its_last_move() -> None:
    plan = [as_it_is(each, MoveState.MOVED) for each in moves(*ONE_BY_ONE)]

    assert select_ready_moves(plan, LIMITS) is None


@pytest.mark.parametrize(
    "first",
    [
        pytest.param({"state": MoveState.MOVING}, id="that another leaves"),
        pytest.param({"state": MoveState.MOVED, "leaves": True}, id="that another has left"),
    ],
)
def test_nothing_goes_to_a_host_before_it_has_the_room(first: dict[str, object]) -> None:
    plan = moves((0, "h1", "h2"), (1, "h3", "h1"), (2, "h3", "h4"))
    plan[0] = replace(plan[0], move_id=uuid4(), **first)  # type: ignore[arg-type]

    due, early = asked(plan)

    assert 1 not in [*due, *early]
    assert early == []  # it comes after: what is before it may need what it takes
    plan[0] = as_it_is(plan[0], MoveState.MOVED)
    assert asked(plan) == ([1], [2])


def test_a_vm_goes_on_once_it_has_left_altogether() -> None:
    plan = moves((0, "h1", "h2"), (1, "h2", "h3"))
    plan[1] = replace(plan[1], vm_id=plan[0].vm_id)
    plan[0] = as_it_is(plan[0], MoveState.MOVED, leaves=True)

    assert asked(plan) == ([], [])
    plan[0] = replace(plan[0], leaves=False)
    assert asked(plan) == ([1], [])


def test_a_wave_goes_on_where_one_of_it_waits() -> None:
    plan = moves((0, "h1", "h2"), (1, "h3", "h1"), (1, "h3", "h4"))
    plan[0] = as_it_is(plan[0], MoveState.MOVED, leaves=True)

    assert asked(plan) == ([2], [])


def test_the_whole_site_has_a_limit() -> None:
    plan = moves(*((number, f"a{number}", f"b{number}") for number in range(9)))

    assert asked(plan, replace(LIMITS, at_once=2)) == ([0], [1, 2, 3])
