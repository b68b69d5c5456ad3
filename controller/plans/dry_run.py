"""Can a roll work at all? Its turns are planned before it begins, and nothing moves."""

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

#: A turn costs as much work as there are hosts and VMs; so much takes a core ten seconds.
MAX_WORK: Final = 5_000_000
#: Hosts and VMs together that are planned in the caller's thread: it takes less time than a
#: process does to start.
MAX_IN_THREAD: Final = 1_000
#: For the process to start, and to answer: clients wait for 30 s.
TIME_S: Final = 20.0
#: As of replays: a caller waits.
NICENESS: Final = 5
#: In the way of a VM for a moment: once its turn comes, the roll waits for that.
_PASSING: Final = frozenset({RebalanceObstacle.UNSETTLED, RebalanceObstacle.MOVING})
_NAMED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunInputs:
    """A roll that is to begin."""

    view: RunningView
    turns: Sequence[Sequence[UUID]]
    limits: RebalanceLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunResult:
    """What came of it."""

    turns: int = 0  #: that were planned
    refusal: str | None = None  #: why the roll cannot work


def dry_run_roll(
    preview: DryRunInputs,
    *,
    start: StartChild = start_interpreter,
    within_s: float = TIME_S,
    max_in_thread: int = MAX_IN_THREAD,
) -> int:
    """Return how many turns were planned, each after those before it; all, unless there are many.

    Each turn is planned again when it begins, on what runs then.

    Raises
    ------
    ConflictError
        If VMs of a turn have no place elsewhere, naming some of them and why; or if it took
        too long, and was ended.
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
    """Plan the turns until VMs of one have no place."""
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
