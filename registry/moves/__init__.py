"""Moves of VMs from host to host, and plans of them."""

from registry.lifecycle import OPEN_MOVES, MoveState, PlanState
from registry.records.moves import (
    Move,
    MoveClaim,
    MoveLimits,
    MoveObstacle,
    MoveProgress,
    MoveStep,
    Plan,
    PlanKind,
    PlanMove,
    PlannedMove,
    RunningView,
    RunningVm,
)

__all__ = [
    "OPEN_MOVES",
    "Move",
    "MoveClaim",
    "MoveLimits",
    "MoveObstacle",
    "MoveProgress",
    "MoveState",
    "MoveStep",
    "Plan",
    "PlanKind",
    "PlanMove",
    "PlanState",
    "PlannedMove",
    "RunningView",
    "RunningVm",
]
