"""Moves of VMs from host to host: asked, cancelled, listed."""

from registry.records.moves import (
    Move,
    MoveClaim,
    MoveLimits,
    MoveObstacle,
    MoveProgress,
    MoveStep,
)

__all__ = ["Move", "MoveClaim", "MoveLimits", "MoveObstacle", "MoveProgress", "MoveStep"]
