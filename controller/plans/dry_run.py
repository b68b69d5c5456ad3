"""Dry run of a roll: plans the moves of each turn before the roll begins, without moving a VM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from controller.errors import PolicyFailedError
from controller.fork_server.children import StartChild, start_interpreter
from controller.rounds.policy_process import PolicyProcess
from controller.rounds.running_state import to_running
from placement.rebalancing.evacuate_in_turns import evacuate_in_turns
from placement.rebalancing.model import MovePlan, RebalanceLimits, RebalanceObstacle, RunningState
from registry import ConflictError
from registry.moves import RunningView

#: Maximum work: turns times hosts and VMs. A core does this much in ten seconds.
MAX_WORK: Final = 5_000_000
#: Up to this many hosts and VMs together, the dry run is made in the caller's thread: that takes
#: less time than starting a process.
MAX_IN_THREAD: Final = 1_000
#: Time limit of the process, including its start: clients wait for 30 s.
TIME_S: Final = 20.0
#: As for replays: a caller waits.
NICENESS: Final = 5
#: Obstacles that pass by themselves: when the turn comes, the roll waits for their end.
_PASSING: Final = frozenset({RebalanceObstacle.UNSETTLED, RebalanceObstacle.MOVING})
_NAMED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunInputs:
    """Inputs of the dry run of a roll."""

    view: RunningView
    turns: Sequence[Sequence[UUID]]
    limits: RebalanceLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunResult:
    """The result of a dry run of a roll."""

    turns: int = 0  #: number of turns that were planned
    refusal: str | None = None  #: the reason why the roll cannot work


def dry_run_roll(
    preview: DryRunInputs,
    *,
    start: StartChild = start_interpreter,
    within_s: float = TIME_S,
    max_in_thread: int = MAX_IN_THREAD,
) -> int:
    """Return the number of turns that were planned; a roll with too many is planned in part.

    Each turn is planned on the state after the turns before it. It is planned again when it
    begins, on the VMs that run then.

    Raises
    ------
    ConflictError
        If VMs of a turn have no destination (some are named, with reasons), or if the dry run
        exceeded its time.
    """
    if len(preview.view.cluster.hosts) + len(preview.view.vms) <= max_in_thread:
        found = plan_turns(preview)
    else:
        process = PolicyProcess(niceness=NICENESS, start=start)
        try:
            found = process.dry_run(preview, deadline_s=within_s)
        except PolicyFailedError as error:
            raise ConflictError(
                f"it was not found out whether the hosts can be emptied: {error}. Try again, or"
                " with fewer hosts"
            ) from error
        finally:
            process.close()
    if found.refusal is not None:
        raise ConflictError(found.refusal)
    return found.turns


def plan_turns(preview: DryRunInputs) -> DryRunResult:
    """Plan the turns in order; stop at the first turn with a VM that has no destination."""
    running, names = to_running(preview.view)
    index = {UUID(key): at for at, (key, _) in enumerate(names.snapshot.hosts)}
    work = max(1, len(running.receives) + len(running))
    planned = preview.turns[: max(1, MAX_WORK // work)]
    in_indices = [[index[key] for key in turn] for turn in planned]
    for plan in evacuate_in_turns(running, in_indices, limits=preview.limits):
        if any(each.obstacle not in _PASSING for each in plan.stays):
            hosts = [names.snapshot.hosts[at][1] for at in plan.closed]
            return DryRunResult(refusal=_refusal_message(running, plan, hosts, names.vms))
    return DryRunResult(turns=len(planned))


def _refusal_message(
    running: RunningState, plan: MovePlan, hosts: Sequence[str], vms: Sequence[str]
) -> str:
    """Return why the hosts of a turn cannot be emptied, with some VMs and their reasons."""
    stays = [each for each in plan.stays if each.obstacle not in _PASSING]
    reasons = [
        f"{vms[each.vm]} ({(each.obstacle or each.why).value.replace('_', ' ')})"
        for each in stays[:_NAMED]
    ]
    more = f" and {len(stays) - _NAMED} more" if len(stays) > _NAMED else ""
    several = f"hosts {', '.join(hosts)} at once" if len(hosts) > 1 else f"host {hosts[0]}"
    return (
        f"{several} cannot be emptied: {len(stays)} VMs have no place elsewhere:"
        f" {', '.join(reasons)}{more}. `fuga plan evacuate {' '.join(hosts)}` shows what lacks"
    )
