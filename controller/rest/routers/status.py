"""/v1/status: the leader, the last round, the processes and what is late."""

from __future__ import annotations

import dataclasses

from fastapi import APIRouter, Security

from controller.queries.overdue_work import OverdueWork, overdue_work
from controller.rest.dependencies import RegistryDep, ServicesDep
from controller.rest.health import full_disks
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import AnyCaller, bearer
from controller.rest.schemas.operations import (
    BorrowedInStatus,
    HostsInView,
    ObservedClockStep,
    ProcessStatus,
    Status,
)
from registry import Registry, SlotLoopState
from registry.admin import is_late
from service.version import release

router = APIRouter(
    prefix="/status", tags=["rounds"], dependencies=[Security(bearer)], route_class=BoundedRoute
)
_TO_TENANTS = {
    "decide": "no control centre decides: requests wait",
    "build": "no worker creates or removes VMs: placed VMs wait",
    "poll": "no monitor polls hosts: states of VMs may be old",
}


@router.get("")
def show_status(caller: AnyCaller, registry: RegistryDep, services: ServicesDep) -> Status:
    """Show whether control centre, workers and monitors do their work, and since when not.

    A tenant sees what is late; only operators see processes and disks.
    """
    found = registry.liveness()
    lease, loop, exact = found.lease, found.slot_loop, caller.is_operator
    disks = full_disks(registry, services.disks()) if exact else []
    late = overdue_work(found, disks)
    leads = lease is not None and lease.expires_at > found.now
    return Status(
        at=found.now,
        release=release() if exact else None,
        healthy=not late and not disks,
        disks=disks,
        late=[_redact_overdue_work(each, exact=exact) for each in late if exact or each.unattended],
        leader=lease.holder if lease is not None and leads and exact else None,
        leads_since=lease.held_since if lease is not None and leads else None,
        paused=loop.state is SlotLoopState.PAUSED,
        last_slot_at=loop.last_slot_at,
        slot_length_s=loop.slot_length_s,
        last_round=found.last_round,
        last_round_at=found.last_round_at,
        processes=[
            ProcessStatus(**dataclasses.asdict(each), late=is_late(each, found.now))
            for each in found.processes
            if exact
        ],
        hosts=(HostsInView.model_validate(found.hosts, from_attributes=True) if exact else None),
        borrowed=_borrowed_in_status(registry) if exact else None,
        oldest_unbuilt_at=found.oldest_reserved_at if exact else None,
        clock_ahead_s=found.clock_ahead_s if exact else None,
        clock_step=(
            ObservedClockStep.model_validate(found.clock_step, from_attributes=True)
            if exact and found.clock_step is not None
            else None
        ),
    )


def _borrowed_in_status(registry: Registry) -> BorrowedInStatus | None:
    found = registry.borrowed_totals()
    if not found:
        return None
    ends = [each.first_end_at for each in found if each.first_end_at is not None]
    return BorrowedInStatus(
        vms=sum(each.vms for each in found),
        ending=sum(each.ending for each in found),
        first_end_at=min(ends, default=None),
    )


def _redact_overdue_work(late: OverdueWork, *, exact: bool) -> OverdueWork:
    return late if exact else dataclasses.replace(late, message=_TO_TENANTS[late.work])
