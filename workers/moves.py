"""Move VMs from host to host so that each runs once, whatever fails.

What may cross: this worker is killed, or stopped past its lease and continued; the message
arrives twice; the VM is deleted, the move cancelled; either host falls silent or is fenced.

1. The claim is a lease on the move's row, extended while the guest's memory is on its way.
2. Look before acting, and after: an error of libvirt's call says nothing about where the
   guest is. `_find_guest` asks both hosts, and only its word ends a move.
3. `arrive` is a compare-and-set on our claim. It makes the arriving assignment the VM's place
   and the old one a leaving one, whose remains the sweep has removed.
4. Who takes a move over ends the former worker's call first, by aborting the job at the
   source: otherwise the guest could still leave while we say that it stays.
   The copy of a disk has no job to abort: nothing is removed at the destination without a look
   at the claim, and no copy begins where the domain is defined.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import Final
from uuid import UUID

import structlog

from hypervisor import (
    DomainState,
    HostDomain,
    HostUnreachableError,
    HypervisorError,
    MigrationProgress,
    MigrationRefusedError,
    MoveSpec,
    OperationFailedError,
)
from registry import AssignmentState, ClaimLostError, VmObserved
from registry.moves import MoveProgress as MoveTold
from registry.moves import MoveStep
from workers import builds, removals
from workers.context import TaskOutcome, WorkerContext
from workers.driver import HostDriver
from workers.errors import HostBusyError, MoveStoppedError, StoppingError

log: Final = structlog.get_logger(__name__)

#: Between two writes of how far a move has come, each of which extends the claim.
_REPORT_EVERY_S: Final = 2.0
#: Workers that may die over one move, before it is given up.
MAX_ATTEMPTS: Final = 3


class GuestLocation(StrEnum):
    """What a look at both hosts says of a VM that moves."""

    HERE = "here"  #: where it was, running or off; or nowhere
    THERE = "there"  #: it runs where it was to go
    THERE_OFF = "there_off"  #: it is whole there, and off
    THERE_PAUSED = "there_paused"  #: it is there alone, and was not resumed yet
    LOST = "lost"  #: it left, and the host where it arrived was fenced with it
    UNKNOWN = "unknown"


def move(move_id: UUID, context: WorkerContext) -> TaskOutcome:
    """Carry out a move, or find out what became of it."""
    if context.stopping.is_set():
        return TaskOutcome.NOT_OURS
    steps = context.registry.move_steps
    step = steps.claim(move_id, context.owner, context.lease_s, context.moves.limits)
    if step is None:
        return TaskOutcome.NOT_OURS
    with structlog.contextvars.bound_contextvars(
        move_id=str(move_id),
        vm_id=str(step.vm_id),
        from_host=step.from_host.name,
        to_host=step.to.host.name,
    ):
        try:
            outcome = _attempt(step, context)
        except ClaimLostError:
            outcome = TaskOutcome.CLAIM_LOST
        except (HostBusyError, StoppingError):
            outcome = _postpone(step, context, None)
        log.info("move_ended", outcome=outcome, kind=step.kind)
    context.send_next_moves()  # first: what was left behind holds up no move
    if outcome is TaskOutcome.DONE:
        context.send_next_on_host(step.from_host.id)
    return outcome


def _attempt(step: MoveStep, context: WorkerContext) -> TaskOutcome:
    error, downtime_ms = step.stop, None
    try:
        if step.begun:
            location = _find_guest(step, context, abort=True, is_reclaimed=True)
            over = step.fenced or step.lost or step.attempts > MAX_ATTEMPTS
            if location is not GuestLocation.HERE or error is not None or over:
                return _settle(step, location, error or "its worker ended", None, context)
        if error is None:
            try:
                downtime_ms = _carry_out(step, context)
            except (HypervisorError, MoveStoppedError) as failure:
                error = str(failure)
                log.warning("move_failed", error=error)
        location = _find_guest(step, context, abort=error is not None)
        if location is GuestLocation.HERE and step.begun and step.stop is None:
            # What the former worker still did may have been in the way.
            return _postpone(step, context, error)
    except HypervisorError as failure:
        log.warning("move_undecided", error=str(failure))
        return _postpone(step, context, error or str(failure))
    try:
        return _settle(step, location, error, downtime_ms, context)
    except ClaimLostError:
        if downtime_ms is not None:  # a worker that took it over does not know it
            context.registry.move_steps.note_standstill(step.claim, downtime_ms)
        raise


def _carry_out(step: MoveStep, context: WorkerContext) -> int | None:
    """Move the guest, or the disk of one that is off; return how long the guest stood still."""
    build = step.to
    spec = _spec_of(step, context)
    with context.hosts.enter(build.host, pool=True) as there:
        if step.begun:  # what a former worker left may be half of a disk
            _remove_arriving(step, there, context)
        wanted = builds.spec_of(build, context.host_networks)
        builds.make_volumes(build, wanted, there, keep=lambda: _extend_claim(step, context, None))
    context.checkpoint("move.after_volumes")
    noted_at = time.monotonic()

    def note_progress(progress: MigrationProgress) -> None:
        nonlocal noted_at
        if context.stopping.is_set():
            raise StoppingError
        if time.monotonic() - noted_at >= min(_REPORT_EVERY_S, context.lease_s / 4):
            noted_at = time.monotonic()
            _extend_claim(step, context, progress)

    with context.hosts.mover(step.from_host, build.host) as mover, _name_hosts_in_errors(step):
        mover.check(spec)
        _extend_claim(step, context, None)
        carry = mover.live if step.kind == "live" else mover.cold
        done = carry(spec, deadline_s=context.moves.deadline_s, tell=note_progress)
    if done.attempts > 1:
        log.warning("move_repeated_at_other_ports", attempts=done.attempts)
    context.checkpoint("move.after_move")
    return done.downtime_ms


@contextmanager
def _name_hosts_in_errors(step: MoveStep) -> Iterator[None]:
    """Say between which hosts a move failed: what libvirt says, each host may say."""
    hosts = f"from host {step.from_host.name} to host {step.to.host.name}"
    try:
        yield
    except MigrationRefusedError as error:
        raise MoveStoppedError(
            f"it cannot be moved {hosts} ({error.obstacle}): {error.detail}"
        ) from error
    except OperationFailedError as error:
        raise MoveStoppedError(f"{error} ({hosts})") from error


def _spec_of(step: MoveStep, context: WorkerContext) -> MoveSpec:
    spec, how = builds.spec_of(step.to, context.host_networks), context.moves
    return MoveSpec(
        vm_id=str(step.vm_id),
        mark=spec.mark,
        pool=spec.pool,
        volume=spec.volume,
        seed_volume=spec.seed_volume,
        network=spec.network,
        network_kind=spec.network_kind,
        guard=spec.guard,
        copy_disk=not step.to.has_disk,
        bandwidth_mib_s=how.bandwidth_mib_s,
        downtime_ms=how.downtime_ms,
        auto_converge=how.auto_converge,
        encrypt=how.encrypt,
        ports=how.ports,
        hang_s=how.hang_s,
        address=step.address,
    )


def _find_guest(
    step: MoveStep, context: WorkerContext, *, abort: bool, is_reclaimed: bool = False
) -> GuestLocation:
    """Ask both hosts where a VM is; with ``abort`` no call that is under way moves it any more.

    A guest that runs says so by itself. One that is off is where its disk is whole: a domain
    is defined where it arrives only after that, and only then forgotten where it was. If the
    move is reclaimed, the copy of a disk is only as new as the former worker's claim: it counts
    only where the source has no domain any more. What a host has of it that was fenced is
    of no VM any more.
    """
    here, is_silent = _find_at_source(step, context, abort=abort)
    if here is not None and here.state is DomainState.RUNNING:
        return GuestLocation.HERE
    if step.lost:
        left = here is None and step.back.state is AssignmentState.ACTIVE
        location = (
            GuestLocation.UNKNOWN
            if is_silent
            else GuestLocation.LOST
            if left
            else GuestLocation.HERE
        )
    else:
        may_be_stale = is_reclaimed and step.kind == "cold" and not step.to.has_disk
        location = _find_at_destination(
            step, here, context, is_silent=is_silent, may_be_stale=may_be_stale
        )
    if location is GuestLocation.HERE and here is not None and here.state is DomainState.PAUSED:
        with context.hosts.enter(step.from_host) as host:
            host.resume(str(step.vm_id))
    return location


def _find_at_source(
    step: MoveStep, context: WorkerContext, *, abort: bool
) -> tuple[HostDomain | None, bool]:
    """Return what the host where a VM was has of it, and whether that host is silent."""
    if step.fenced:
        return None, False
    vm_id = str(step.vm_id)
    try:
        with context.hosts.enter(step.from_host) as host:
            if abort:
                host.abort_move(vm_id)
            seen = host.find(vm_id, deadline_s=context.lookup_deadline_s)
    except HostUnreachableError:
        return None, True
    return (seen if seen is not None and _has_mark_of(seen, step.from_id) else None), False


def _find_at_destination(
    step: MoveStep,
    here: HostDomain | None,
    context: WorkerContext,
    *,
    is_silent: bool,
    may_be_stale: bool,
) -> GuestLocation:
    """Say where a VM is that does not run where it was, and remove what has not arrived."""
    with context.hosts.enter(step.to.host, pool=True) as host:
        there = host.find(str(step.vm_id), deadline_s=context.lookup_deadline_s)
        if there is not None and not _has_mark_of(there, step.to.claim.assignment_id):
            there = None
        if there is not None and there.state is DomainState.RUNNING:
            return GuestLocation.THERE
        is_off = there is not None and there.state is DomainState.STOPPED
        if is_off and not (may_be_stale and (is_silent or here is not None)):
            return GuestLocation.THERE_OFF
        if is_silent:
            return GuestLocation.UNKNOWN
        if there is not None and here is None and not there.paused_by_move:
            return GuestLocation.THERE_PAUSED
        # Paused: the move broke off, or the guest has not left. Off: the source may be newer.
        if there is not None:
            _remove_arriving(step, host, context)
    return GuestLocation.HERE


def _restart_at_source(step: MoveStep, context: WorkerContext) -> None:
    """Start a VM again where it was, from its disk: it is as the guest left it.

    What it wrote where it arrived was lost with that host. Where it cannot be started, it stays
    missing, and an operator decides.
    """
    try:
        spec = builds.spec_of(step.back, context.host_networks)
        with context.hosts.enter(step.from_host, pool=True) as host:
            host.define(spec)
            if step.kind == "live":
                host.start_paused(spec.mark.vm_id, guard=spec.guard)
                host.resume(spec.mark.vm_id)
    except OperationFailedError as error:
        log.warning("vm_not_started_again", error=str(error))


def _remove_arriving(step: MoveStep, there: HostDriver, context: WorkerContext) -> None:
    """Remove what a broken-off attempt left at the destination.

    Raises `ClaimLostError` if another worker has the move: by now the VM may have arrived.
    """
    context.registry.move_steps.keep(step.claim, context.lease_s)
    removals.remove_attempt(
        there,
        str(step.vm_id),
        str(step.to.claim.assignment_id),
        generation=step.to.generation,
        pool=step.to.host.pool,
    )


def _settle(
    step: MoveStep,
    location: GuestLocation,
    error: str | None,
    downtime_ms: int | None,
    context: WorkerContext,
) -> TaskOutcome:
    """Write what became of a move, now that it is known where the VM is."""
    context.checkpoint("move.after_look")
    steps = context.registry.move_steps
    if location is GuestLocation.UNKNOWN:
        return _postpone(step, context, error)
    if location is GuestLocation.LOST:
        error = f"host {step.to.host.name} was fenced when it had arrived there"
        _restart_at_source(step, context)
    if location in {GuestLocation.HERE, GuestLocation.LOST}:
        steps.fail(step.claim, error or "it did not arrive")
        return TaskOutcome.FAILED
    if location is GuestLocation.THERE_PAUSED:
        with context.hosts.enter(step.to.host) as there:
            there.resume(str(step.vm_id))
    # A guest that ran when it left, and is off where it arrived, is judged by the next report,
    # which says whether it went off by itself or with its host.
    stayed_off = location is GuestLocation.THERE_OFF and step.kind == "cold"
    observed = VmObserved.STOPPED if stayed_off else VmObserved.RUNNING
    if not steps.arrive(step.claim, observed, downtime_ms=downtime_ms):
        return TaskOutcome.FAILED
    return TaskOutcome.DONE


def _extend_claim(
    step: MoveStep, context: WorkerContext, progress: MigrationProgress | None
) -> None:
    """Extend the claim and report the progress. Raises `MoveStoppedError` if the move is to end."""
    state = None
    if progress is not None:
        state = MoveTold(
            total_bytes=progress.memory_total_bytes + progress.disk_total_bytes,
            remaining_bytes=progress.memory_remaining_bytes + progress.disk_remaining_bytes,
            rate_bytes_s=progress.rate_bytes_s,
        )
    stop = context.registry.move_steps.keep(step.claim, context.lease_s, state)
    if stop is not None:
        raise MoveStoppedError(stop)


def _postpone(step: MoveStep, context: WorkerContext, error: str | None) -> TaskOutcome:
    with suppress(ClaimLostError):
        context.registry.move_steps.put_off(step.claim, error)
    return TaskOutcome.HANDED_BACK


def _has_mark_of(seen: HostDomain, assignment_id: UUID) -> bool:
    return seen.mark is not None and seen.mark.assignment_id == str(assignment_id)
