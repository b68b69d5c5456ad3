"""Plans that make room for starving requests, created by the control centre if so configured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

import structlog

from controller.rounds.snapshots import drop_spot_requests, to_snapshot
from placement.constraints.starving_requests import starving_requests
from registry import ConflictError, Registry, SlotLoopPausedError, UnknownNameError
from registry.moves import PlanKind
from registry.rounds import Lease

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomRule:
    """When the control centre creates a plan of moves that makes room."""

    how: Literal["propose", "carry_out"]
    patience: (
        int  #: rounds that a request waits first, as before policies hold hosts back; at least 1
    )
    rest_s: float  #: time before another plan is made for the same request


class RoomPlanner:
    """Creates one plan at a time, for the request that has waited longest below its fair share."""

    def __init__(self, registry: Registry, rule: RoomRule, *, actor: str) -> None:
        self._registry = registry
        self._rule = rule
        self._actor = actor
        self._looked_after: tuple[int, int] | None = None

    def create_plan_if_due(self, lease: Lease) -> None:
        """Create a room plan if a request starves, and a round or plan ended since the last check.

        A request starves by the rule of the policies that reserve hosts for it.
        """
        going_on = self._registry.room_plans.count_open()
        last = self._registry.rounds.last()
        seen = (0 if last is None else last.number, going_on)
        if seen == self._looked_after:
            return
        self._looked_after = seen
        rule = self._rule
        if going_on:
            return
        lacking = self._registry.room_plans.requests_lacking_room(
            rounds=rule.patience, rest_s=rule.rest_s
        )
        if not lacking:
            return
        try:
            view = self._registry.rounds.read_cluster(lease)
        except SlotLoopPausedError:
            self._looked_after = None
            return
        view = drop_spot_requests(view)
        snapshot, _ = to_snapshot(view)
        owed, _ = starving_requests(snapshot, rule.patience)
        for row in owed.tolist():
            request = view.requests[row].id
            if request in lacking and self._create_plan(request):
                return

    def _create_plan(self, request: UUID) -> bool:
        """Create a room plan for a request; return False if the request is placed or deleted."""
        try:
            plan = self._registry.plans.create(
                PlanKind.ROOM,
                {"request": str(request)},
                approve=self._rule.how == "carry_out",
                actor=self._actor,
            )
        except (ConflictError, UnknownNameError):  # it is placed or deleted by now
            return False
        log.info("room_plan_created", plan=str(plan.id), request_id=str(request))
        return True
