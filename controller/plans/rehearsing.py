"""Can a roll work at all? Its turns are planned before it begins, and nothing moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from controller.rounds.running import to_running
from placement.moving.in_turns import evacuate_in_turns
from placement.moving.model import MoveLimits, Obstacle, Plan, Running
from registry import ConflictError
from registry.moves import RunningView

#: A turn costs as much work as there are hosts and VMs; so much takes a core ten seconds.
MOST_WORK: Final = 5_000_000
#: In the way of a VM for a moment: once its turn comes, the roll waits for that.
_PASSING: Final = frozenset({Obstacle.UNSETTLED, Obstacle.MOVING})
_NAMED: Final = 5


def rehearse(view: RunningView, turns: Sequence[Sequence[UUID]], limits: MoveLimits) -> int:
    """Return how many turns were planned, each after those before it; all, unless there are many.

    Each turn is planned anew when it begins, on what runs then.

    Raises
    ------
    ConflictError
        If VMs of a turn have no place elsewhere, naming some of them and why.
    """
    running, names = to_running(view)
    index = {UUID(key): at for at, (key, _) in enumerate(names.snapshot.hosts)}
    planned = turns[: max(1, MOST_WORK // max(1, len(running.receives) + len(running)))]
    in_indices = [[index[key] for key in turn] for turn in planned]
    for plan in evacuate_in_turns(running, in_indices, limits=limits):
        stays = [each for each in plan.stays if each.obstacle not in _PASSING]
        if stays:
            hosts = [names.snapshot.hosts[at][1] for at in plan.closed]
            raise ConflictError(_refusal(running, plan, hosts, names.vms))
    return len(planned)


def _refusal(running: Running, plan: Plan, hosts: Sequence[str], vms: Sequence[str]) -> str:
    stays = [each for each in plan.stays if each.obstacle not in _PASSING]
    told = [
        f"{vms[each.vm]} ({(each.obstacle or each.why).value.replace('_', ' ')})"
        for each in stays[:_NAMED]
    ]
    more = f" and {len(stays) - _NAMED} more" if len(stays) > _NAMED else ""
    several = f"hosts {', '.join(hosts)} at once" if len(hosts) > 1 else f"host {hosts[0]}"
    return (
        f"{several} cannot be emptied: {len(stays)} VMs have no place elsewhere:"
        f" {', '.join(told)}{more}. `fuga plan evacuate {' '.join(hosts)}` shows what lacks"
    )
