"""Carries out plans of moves in the control centre: decides them and requests their moves.

Only the leader does either. The register center checks each move again when it is requested, so a
plan that is outdated at its approval moves no VM where it may not go. The reason of a refusal is
stored with the move, and the other moves go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final
from uuid import UUID

import structlog

from controller.auto_balance import BalanceRule
from controller.errors import PolicyFailedError
from controller.plans.plan_inputs import PlanInputs
from controller.plans.ready_moves import ReadyMoves, select_ready_moves
from controller.plans.room_plans import RoomPlanner, RoomRule
from controller.rounds.failure_domains import failure_domains_of
from controller.rounds.policy_process import PolicyProcess
from controller.rounds.running_state import to_running
from placement.errors import PlacementError
from placement.rebalancing.check import check_plan
from placement.rebalancing.model import MovePlan as DecidedPlan
from placement.rebalancing.model import RebalanceLimits
from placement.rebalancing.room import blocking_vms
from registry import ConflictError, NotFoundError, Registry, RegistryError
from registry.moves import STANDING_RULE, Plan, PlanKind, PlanMoveOverError, PlannedMove, PlanState
from registry.rounds import Lease

log = structlog.get_logger()
ACTOR = "control"
#: Interval between two checks while a plan is carried out.
_SOON_S: Final = 0.2
_IDLE_PART: Final = 4  #: minimum pause as a multiple of a check's duration: plans may be large


@dataclass(frozen=True, slots=True, kw_only=True)
class Planning:
    """Settings by which plans are decided and carried out."""

    limits: RebalanceLimits
    rest_s: float  #: within this time after a move, a VM is moved again only out of need
    seed: int
    budget_units: int | None
    deadline_s: float
    room_hold_s: float  #: time for which the room that moves freed is kept for its request
    balance: BalanceRule | None = None  #: None: no automatic balance plans
    room: RoomRule | None = None  #: None: only operators request room plans
    spare: str | None = (
        None  #: failure domain for which rounds keep spare capacity; plans leave it free
    )


class PlanExecutor:
    """Decides plans and requests their moves at an interval, while this control centre leads."""

    def __init__(
        self,
        registry: Registry,
        lease: Callable[[], Lease | None],
        process: PolicyProcess,
        planning: Planning,
        *,
        interval_s: float,
        on_requested: Callable[[], None],
        on_standing: Callable[[str], None] = lambda _outcome: None,
    ) -> None:
        self._registry = registry
        self._lease = lease
        self._process = process
        self._planning = planning
        self._interval_s = interval_s
        self._on_requested = on_requested
        self._on_standing = on_standing  #: gets the outcome of each automatic plan
        room = planning.room
        self._room_planner = None if room is None else RoomPlanner(registry, room, actor=ACTOR)

    def run(self, stop: threading.Event) -> None:
        """Advance plans until stopped; pause shorter while a plan is under way."""
        pause_s = self._interval_s
        while not stop.wait(pause_s):
            began, goes_on = time.monotonic(), False
            try:
                goes_on = self.advance()
            except RegistryError as error:
                log.error("plans_not_read", error=str(error))
            except Exception:  # the loop outlives a database that is away for a moment
                log.exception("plans_not_read")
            soon_s = max(_SOON_S, _IDLE_PART * (time.monotonic() - began))
            pause_s = min(soon_s, self._interval_s) if goes_on else self._interval_s
        self._process.close()

    def advance(self) -> bool:
        """Advance each pending or approved plan; return whether one is still under way."""
        lease = self._lease()
        if lease is None:
            return False
        self._request_balance(lease)
        if self._room_planner is not None:
            self._room_planner.create_plan_if_due(lease)
        goes_on = False
        for plan in self._registry.plans.list_open():
            if self._cancel_if_hosts_activated(plan):
                continue
            if plan.state is PlanState.PENDING:
                self._decide_plan(plan)
                plan = self._registry.plans.get(plan.id)  # noqa: PLW2901 - as it is now
                if self._cancel_if_hosts_activated(plan):
                    continue
            if plan.state is PlanState.APPROVED:
                self._carry_out_plan(plan)
                goes_on = True
        return goes_on

    def _request_balance(self, lease: Lease) -> None:
        """Request a balance plan if the auto-balance rule wants one now.

        The register center stores the time of the last such plan and checks the lease when it
        writes it, so a change of leader neither loses a plan nor requests one twice.
        """
        rule, standing = self._planning.balance, self._registry.standing_plans
        if rule is None:
            return
        now, last = standing.last()
        due = last is None or (now - last).total_seconds() >= rule.every_s
        if not due or not rule.is_open(now):
            return
        every_s = rule.every_s
        plan = standing.request_if_due(lease, PlanKind.BALANCE, rule.arguments, every_s=every_s)
        if plan is not None:
            log.info("auto_plan_created", plan=str(plan.id), kind=plan.kind)

    def _balance_objection(self, plan: Plan, decided: DecidedPlan) -> str | None:
        """Return why the auto-balance rule declines a plan that it requested, or None."""
        if plan.requested_by != STANDING_RULE:
            return None
        rule = self._planning.balance
        if rule is None:
            return "there is no standing rule any more"
        return rule.objection(_total_gain(decided) or 0.0, len(decided.moves))

    def _decide_plan(self, plan: Plan) -> None:
        """Compute the moves of a pending plan, check and store them; record a failure."""
        bound = log.bind(plan=str(plan.id), kind=plan.kind)
        try:
            inputs = self._read_inputs(plan)
            data = inputs.encode()
            result = self._process.plan(data, kind=plan.kind, deadline_s=self._planning.deadline_s)
            decided = DecidedPlan.from_document(result)
            check_plan(inputs.running, decided)
        except (PolicyFailedError, PlacementError) as error:
            bound.error("plan_failed", error=str(error), alert=True)
            self._registry.plans.record_failure(plan.id, str(error), actor=ACTOR)
            self._report_auto_plan(plan, "failed")
            return
        declined = self._balance_objection(plan, decided)
        self._registry.plans.propose(
            plan.id,
            _planned_moves(inputs, decided),
            before={**_plan_measures(decided, 0), **_resting_vms(inputs, decided)},
            after=_plan_measures(decided, -1),
            stays=[_staying_vm_document(inputs, each) for each in decided.stays],
            cut=decided.cut,
            inputs=data,
            document=result,
            actor=ACTOR,
            admitted=_room_result(inputs, decided) if plan.kind is PlanKind.ROOM else None,
            gain=_total_gain(decided),
            declined=declined,
        )
        self._report_auto_plan(plan, "declined" if declined else "approved")
        bound.info("plan_proposed", moves=len(decided.moves), stays=len(decided.stays))

    def _report_auto_plan(self, plan: Plan, outcome: str) -> None:
        """Report the outcome of a plan to the metrics, if the auto-balance rule requested it."""
        if plan.requested_by == STANDING_RULE:
            self._on_standing(outcome)

    def _read_inputs(self, plan: Plan) -> PlanInputs:
        """Read the running VMs from the register center; return the inputs of a plan."""
        view = self._registry.plans.view_running(rest_s=self._planning.rest_s)
        running, names = to_running(view)
        later = self._registry.rolls.hosts_emptied_later(plan.id)
        spare = self._planning.spare if plan.kind is PlanKind.ROOM else None
        return PlanInputs(
            kind=plan.kind.value,
            arguments={**plan.arguments, "later": later} if later else plan.arguments,
            running=running,
            names=names,
            limits=self._planning.limits,
            seed=self._planning.seed,
            budget_units=self._planning.budget_units,
            domain=None if spare is None else failure_domains_of(spare, view.cluster.hosts).of_host,
        )

    def _carry_out_plan(self, plan: Plan) -> None:
        """Request the moves of an approved plan that are ready; end the plan after its last."""
        turns = select_ready_moves(self._registry.plans.moves(plan.id), self._planning.limits)
        if turns is None:
            if self._registry.room_plans.keeps_room(plan.id, for_s=self._planning.room_hold_s):
                return  # the plan ends once a round has placed the request
            self._registry.plans.finish(plan.id, actor=ACTOR)
            log.info("plan_done", plan=str(plan.id), moves=plan.moves, failed=plan.failed)
            return
        if turns.begins and (
            self._cancel_if_outside_hours(plan) or self._cancel_if_request_served(plan)
        ):
            return
        if self._request_moves(plan, turns):
            self._on_requested()

    def _request_moves(self, plan: Plan, turns: ReadyMoves) -> int:
        """Request moves; return their number. An early move that is refused waits for its turn."""
        created = 0
        for each in (*turns.due, *turns.early):
            try:
                self._registry.moves.create(
                    each.vm_id,
                    each.to_host,
                    reason=f"plan {plan.id}: {each.why}",
                    of_plan=(plan.id, each.position),
                    actor=plan.approved_by or ACTOR,
                )
                created += 1
            except PlanMoveOverError:
                break  # it is cancelled, or another centre leads
            except (ConflictError, NotFoundError) as error:
                if each in turns.early:
                    break
                self._registry.plans.refuse(plan.id, each.position, str(error))
                log.warning("planned_move_refused", plan=str(plan.id), error=str(error))
        return created

    def _cancel_if_hosts_activated(self, plan: Plan) -> bool:
        """Cancel an evacuation whose hosts were all activated; else drop moves from activated ones.

        Returns whether the plan was cancelled.
        """
        if plan.kind is not PlanKind.EVACUATE:
            return False
        why = self._registry.plans.refuse_moves_from_activated(plan, actor=ACTOR)
        if why is None:
            return False
        self._registry.plans.cancel(plan.id, actor=ACTOR, reason=why)
        log.info("plan_ended", plan=str(plan.id), reason=why)
        return True

    def _cancel_if_outside_hours(self, plan: Plan) -> bool:
        """Cancel an automatic plan if it is outside its hours; return whether it was."""
        if plan.requested_by != STANDING_RULE:
            return False
        rule = self._planning.balance
        if rule is not None and rule.is_open(self._registry.now()):
            return False
        why = "its hours are over" if rule else "there is no standing rule any more"
        self._registry.plans.cancel(plan.id, actor=STANDING_RULE, reason=why)
        log.info("standing_plan_ended", plan=str(plan.id), reason=why)
        return True

    def _cancel_if_request_served(self, plan: Plan) -> bool:
        """Cancel a room plan if no VM of its request waits any more; return whether it was."""
        if plan.kind is not PlanKind.ROOM:
            return False
        request = UUID(plan.arguments["request"])
        if self._registry.room_plans.is_waiting(request):
            return False
        why = f"no VM of request {request} waits for a place any more"
        self._registry.plans.cancel(plan.id, actor=ACTOR, reason=why)
        log.info("room_plan_ended", plan=str(plan.id), reason=why)
        return True


def _planned_moves(inputs: PlanInputs, plan: DecidedPlan) -> list[PlannedMove]:
    """Convert the moves of a decided plan to records, with ids in place of indices."""
    hosts = [UUID(key) for key, _ in inputs.names.snapshot.hosts]
    return [
        PlannedMove(
            vm_id=UUID(inputs.names.vms[move.vm]),
            from_host_id=hosts[move.source],
            to_host_id=hosts[move.destination],
            wave=move.wave,
            why=move.why.value,
            transfer_mib=move.transfer_mib,
        )
        for move in plan.moves
    ]


def _room_result(inputs: PlanInputs, plan: DecidedPlan) -> Mapping[str, Any]:
    """Return as JSON values where a room plan lets the request in, and what still waits."""
    hosts = inputs.names.snapshot.hosts
    left = plan.still_waits[0] if plan.still_waits else None
    return {
        "hosts": [
            {"host_id": hosts[host][0], "host": hosts[host][1], "count": count}
            for _, host, count in plan.admitted
        ],
        "still_waits": left and {"count": left.count, "reason": left.reason.value},
        "in_the_way": blocking_vms(inputs.running, left.request)
        if left and not plan.admitted
        else None,
    }


def _plan_measures(plan: DecidedPlan, place: int) -> dict[str, Any]:
    """Return a plan's measures before its first move (``place`` 0), or after its last (-1).

    If the plan comes from a game, ``potential`` is the potential of that game, which rises.
    """
    found = asdict(plan.measures[place])
    own = plan.details.get("potential")
    return found if own is None else {**found, "potential": float(own[place])}


def _total_gain(plan: DecidedPlan) -> float | None:
    """Return the gain in potential of a plan; None for plans of other purposes."""
    gains = plan.details.get("gains")
    return None if gains is None else float(sum(gains))


def _resting_vms(inputs: PlanInputs, plan: DecidedPlan) -> Mapping[str, int]:
    """Return the number of movable VMs that a plan for a gain skips because they moved lately."""
    if _total_gain(plan) is None:
        return {}
    running = inputs.running
    return {"resting": int((running.movable & running.rests).sum())}


def _staying_vm_document(inputs: PlanInputs, stays: Any) -> Mapping[str, Any]:
    """Return as JSON values why a VM of a plan stays, and what the nearest host lacks."""
    names = inputs.names.snapshot.hosts
    missing = None
    if stays.missing is not None:
        resources = inputs.running.snapshot.resources
        short = zip(resources, stays.missing.amounts, strict=True)
        missing = {
            "host": names[stays.missing.host][1],
            "amounts": {resource: amount for resource, amount in short if amount > 0},
        }
    return {
        "vm": inputs.names.vms[stays.vm],
        "why": stays.why.value,
        "obstacle": stays.obstacle.value if stays.obstacle else None,
        "missing": missing,
    }
