"""Move VMs between hosts so that each runs once, whatever fails.

Possible races: this worker is killed, or stopped past its lease and continued; the message arrives
twice; the VM is deleted or the move cancelled; a host falls silent or is fenced.

1. The claim is a lease on the move's row, extended while the guest's memory is sent.
2. Both hosts are checked before and after: an error of libvirt's call does not say where the guest
   is. Only the result of `_find_guest` ends a move.
3. `arrive` is a compare-and-set on the claim. It makes the arriving assignment the VM's current
   one, and the old one leaving; the sweep then sends its removal.
4. A worker that takes a move over first aborts the migration job at the source: otherwise the guest
   could still leave. The copy of a disk has no job to abort, so the claim is checked before
   anything is removed at the destination, and no copy begins if the destination has the domain.
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

#: Interval of progress reports, each of which extends the claim.
_REPORT_EVERY_S: Final = 2.0
#: Maximum attempts of a move whose workers die.
MAX_ATTEMPTS: Final = 3


class GuestLocation(StrEnum):
    """Location of a moving guest, found by a check of both hosts."""

    HERE = "here"  #: at the source, running or off, or on no host
    THERE = "there"  #: running at the destination
    THERE_OFF = "there_off"  #: complete at the destination, and off
    THERE_PAUSED = "there_paused"  #: only at the destination, not resumed yet
    LOST = "lost"  #: it left the source, and the destination was fenced
    UNKNOWN = "unknown"


def move_vm(move_id: UUID, context: WorkerContext) -> TaskOutcome:
    """Carry out a VM's move, or settle one whose worker ended."""
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
            outcome = _move_and_record(step, context)
        except ClaimLostError:
            outcome = TaskOutcome.CLAIM_LOST
        except (HostBusyError, StoppingError):
            outcome = _return_move_claim(step, context, None)
        log.info("move_ended", outcome=outcome, kind=step.kind)
    context.mark_next_moves_sent()  # first, so that an ended move does not delay others
    if outcome is TaskOutcome.DONE:
        context.send_next_on_host(step.from_host.id)
    return outcome


def _move_and_record(step: MoveStep, context: WorkerContext) -> TaskOutcome:
    """Move a VM, or find out where it is, and record the result."""
    error, downtime_ms = step.stop, None
    try:
        if step.begun:
            location = _find_guest(step, context, abort=True, is_reclaimed=True)
            over = step.fenced or step.lost or step.attempts > MAX_ATTEMPTS
            if location is not GuestLocation.HERE or error is not None or over:
                reason = error or step.last_error or "its worker ended"
                return _record_result(step, location, reason, None, context)
        if error is None:
            try:
                downtime_ms = _move_guest_or_disk(step, context)
            except (HypervisorError, MoveStoppedError) as failure:
                error = str(failure)
                log.warning("move_failed", error=error)
        location = _find_guest(step, context, abort=error is not None)
        if location is GuestLocation.HERE and step.begun and step.stop is None:
            # The former worker's call may have been in the way.
            return _return_move_claim(step, context, error)
    except HypervisorError as failure:
        log.warning("move_undecided", error=str(failure))
        return _return_move_claim(step, context, error or str(failure))
    try:
        return _record_result(step, location, error, downtime_ms, context)
    except ClaimLostError:
        if downtime_ms is not None:  # unknown to a worker that took the move over
            context.registry.move_steps.record_downtime(step.claim, downtime_ms)
        raise


def _move_guest_or_disk(step: MoveStep, context: WorkerContext) -> int | None:
    """Move a guest, or the disk of a stopped VM; return the downtime in ms, if known."""
    build = step.to
    spec = _move_spec(step, context)
    with context.hosts.use(build.host, pool=True) as there:
        if step.begun:  # a former worker may have left a partial disk
            _remove_failed_attempt(step, there, context)
        wanted = builds.build_domain_spec(build, context.host_networks)
        builds.make_volumes(
            build, wanted, there, keep=lambda: _extend_move_claim(step, context, None)
        )
    context.checkpoint("move.after_volumes")
    noted_at = time.monotonic()

    def report_progress(progress: MigrationProgress) -> None:
        nonlocal noted_at
        if context.stopping.is_set():
            raise StoppingError
        if time.monotonic() - noted_at >= min(_REPORT_EVERY_S, context.lease_s / 4):
            noted_at = time.monotonic()
            _extend_move_claim(step, context, progress)

    with (
        context.hosts.migrator(step.from_host, build.host) as migrator,
        _name_hosts_in_errors(step),
    ):
        migrator.check(spec)
        _extend_move_claim(step, context, None)
        carry = migrator.move_live if step.kind == "live" else migrator.move_cold
        done = carry(spec, deadline_s=context.moves.deadline_s, on_progress=report_progress)
    if done.attempts > 1:
        log.warning("move_repeated_at_other_ports", attempts=done.attempts)
    context.checkpoint("move.after_move")
    return done.downtime_ms


@contextmanager
def _name_hosts_in_errors(step: MoveStep) -> Iterator[None]:
    """Add the names of both hosts of a move to errors, as libvirt's messages do not."""
    hosts = f"from host {step.from_host.name} to host {step.to.host.name}"
    try:
        yield
    except MigrationRefusedError as error:
        raise MoveStoppedError(
            f"it cannot be moved {hosts} ({error.obstacle}): {error.detail}"
        ) from error
    except OperationFailedError as error:
        raise MoveStoppedError(f"{error} ({hosts})") from error


def _move_spec(step: MoveStep, context: WorkerContext) -> MoveSpec:
    """Return what a migrator needs to move a VM: names, network, filters and limits."""
    spec, how = builds.build_domain_spec(step.to, context.host_networks), context.moves
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
    """Check both hosts, and return where a moving guest is.

    With ``abort``, a running migration is aborted first. A stopped guest is where its disk is
    complete: the destination's domain is defined only after the copy, and only then the source's is
    removed. If the move is reclaimed, the copied disk may be outdated: it counts only if the source
    has no domain any more. A domain on a fenced host counts as gone.
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
        with context.hosts.use(step.from_host) as host:
            host.resume(str(step.vm_id))
    return location


def _find_at_source(
    step: MoveStep, context: WorkerContext, *, abort: bool
) -> tuple[HostDomain | None, bool]:
    """Return a moving VM's domain at the source, if any, and whether the source is silent."""
    if step.fenced:
        return None, False
    vm_id = str(step.vm_id)
    try:
        with context.hosts.use(step.from_host) as host:
            if abort:
                host.abort_move(vm_id)
            seen = host.find(vm_id, deadline_s=context.lookup_deadline_s)
    except HostUnreachableError:
        return None, True
    return (seen if seen is not None and _is_mark_of_move(seen, step.from_id) else None), False


def _find_at_destination(
    step: MoveStep,
    here: HostDomain | None,
    context: WorkerContext,
    *,
    is_silent: bool,
    may_be_stale: bool,
) -> GuestLocation:
    """Return the location of a guest that does not run at the source.

    Removes an incomplete domain at the destination.
    """
    with context.hosts.use(step.to.host, pool=True) as host:
        there = host.find(str(step.vm_id), deadline_s=context.lookup_deadline_s)
        if there is not None and not _is_mark_of_move(there, step.to.claim.assignment_id):
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
        # Paused: the move failed, or the guest has not left. Off: the source's disk may be newer.
        if there is not None:
            _remove_failed_attempt(step, host, context)
    return GuestLocation.HERE


def _restart_at_source(step: MoveStep, context: WorkerContext) -> None:
    """Start a VM again at the source, with its old disk.

    Later writes were lost with the destination. If the VM cannot start, it stays missing, and an
    operator decides.
    """
    try:
        spec = builds.build_domain_spec(step.back, context.host_networks)
        with context.hosts.use(step.from_host, pool=True) as host:
            host.define(spec)
            if step.kind == "live":
                host.start_paused(spec.mark.vm_id, guard=spec.guard)
                host.resume(spec.mark.vm_id)
    except OperationFailedError as error:
        log.warning("vm_not_started_again", error=str(error))


def _remove_failed_attempt(step: MoveStep, there: HostDriver, context: WorkerContext) -> None:
    """Remove the remains of a VM's failed move at the destination.

    Raises `ClaimLostError` if another worker has the move: the VM may have arrived by now.
    """
    context.registry.move_steps.extend_claim(step.claim, context.lease_s)
    removals.remove_attempt(
        there,
        str(step.vm_id),
        str(step.to.claim.assignment_id),
        generation=step.to.generation,
        pool=step.to.host.pool,
    )


def _record_result(
    step: MoveStep,
    location: GuestLocation,
    error: str | None,
    downtime_ms: int | None,
    context: WorkerContext,
) -> TaskOutcome:
    """Record the result of a move, given the guest's location; return the task's outcome."""
    context.checkpoint("move.after_look")
    steps = context.registry.move_steps
    if location is GuestLocation.UNKNOWN:
        return _return_move_claim(step, context, error)
    if location is GuestLocation.LOST:
        error = f"host {step.to.host.name} was fenced when it had arrived there"
        _restart_at_source(step, context)
    if location in {GuestLocation.HERE, GuestLocation.LOST}:
        steps.record_failure(step.claim, error or "it did not arrive")
        return TaskOutcome.FAILED
    if location is GuestLocation.THERE_PAUSED:
        with context.hosts.use(step.to.host) as there:
            there.resume(str(step.vm_id))
    # If a guest left running and is off at the destination, the next report says whether it shut
    # down or its host failed.
    stayed_off = location is GuestLocation.THERE_OFF and step.kind == "cold"
    observed = VmObserved.STOPPED if stayed_off else VmObserved.RUNNING
    if not steps.record_arrival(step.claim, observed, downtime_ms=downtime_ms):
        return TaskOutcome.FAILED
    return TaskOutcome.DONE


def _extend_move_claim(
    step: MoveStep, context: WorkerContext, progress: MigrationProgress | None
) -> None:
    """Extend the claim on a move and report progress; raise `MoveStoppedError` if it must stop."""
    state = None
    if progress is not None:
        state = MoveTold(
            total_bytes=progress.memory_total_bytes + progress.disk_total_bytes,
            remaining_bytes=progress.memory_remaining_bytes + progress.disk_remaining_bytes,
            rate_bytes_s=progress.rate_bytes_s,
        )
    stop = context.registry.move_steps.extend_claim(step.claim, context.lease_s, state)
    if stop is not None:
        raise MoveStoppedError(stop)


def _return_move_claim(step: MoveStep, context: WorkerContext, error: str | None) -> TaskOutcome:
    """Release the claim on a move, which is sent again later."""
    with suppress(ClaimLostError):
        context.registry.move_steps.retry_later(step.claim, error)
    return TaskOutcome.HANDED_BACK


def _is_mark_of_move(seen: HostDomain, assignment_id: UUID) -> bool:
    """Return whether a domain has the mark of an assignment of the move."""
    return seen.mark is not None and seen.mark.assignment_id == str(assignment_id)
