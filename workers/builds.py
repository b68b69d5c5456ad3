"""Create a VM so that it runs at most once and a failure leaves nothing behind.

Possible races: this worker is killed, or stopped past its lease and continued; the message arrives
twice; the VM is deleted during the build; the host falls silent.

1. The claim is a lease on the assignment's row. It is extended before each step, so a worker that
   lost it does nothing more.
2. The host is checked first: an existing domain of this assignment is reused, even if another
   worker made it.
3. The domain starts paused. `activate` is a compare-and-set on the claim; only its winner resumes
   the guest. A late `resume` finds the same domain, or none, or that of a later attempt, which is
   then the VM's only domain.
4. A worker that lost the claim reads the assignment again (`_clean_up_after_lost_claim`). If
   another worker builds it or it is active, the domain stays. Otherwise the worker removes the
   domain with the assignment's mark, as the deleting worker may have looked before this worker's
   last step.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final
from uuid import UUID

import structlog

from hypervisor import (
    DomainSpec,
    DomainState,
    HostDomain,
    HostUnreachableError,
    Mark,
    OperationFailedError,
    VmLimits,
    domain_name,
    seed_name,
    volume_name,
)
from registry import AssignmentState, ClaimLostError
from registry.tasks import Build
from workers import removals
from workers.context import TaskOutcome, WorkerContext
from workers.driver import HostDriver
from workers.errors import DomainConflictError, HostBusyError, StoppingError
from workers.network_guard import HostNetworks, network_guard
from workers.seed import reads_seed, seed_content

log: Final = structlog.get_logger(__name__)

#: States in which another worker builds, or has built, the same domain.
_HELD_BY_OTHERS: Final = frozenset({AssignmentState.CREATING, AssignmentState.ACTIVE})


def build_vm(assignment_id: UUID, context: WorkerContext) -> TaskOutcome:
    """Build the VM of a reserved assignment, while this worker holds the claim."""
    if context.stopping.is_set():
        return TaskOutcome.NOT_OURS
    build = context.registry.assignments.claim_build(assignment_id, context.owner, context.lease_s)
    if build is None:
        return TaskOutcome.NOT_OURS
    with structlog.contextvars.bound_contextvars(
        assignment_id=str(assignment_id),
        vm_id=str(build.vm_id),
        request_id=str(build.request_id),
        round=build.round,
        host=build.host.name,
    ):
        try:
            outcome = _build_and_record(build, context)
        except ClaimLostError:
            outcome = _clean_up_after_lost_claim(build, context)
        log.info("build_ended", outcome=outcome, from_state=build.state)
    if outcome is not TaskOutcome.HANDED_BACK:
        context.send_next_on_host(build.host.id)
    return outcome


def _build_and_record(build: Build, context: WorkerContext) -> TaskOutcome:
    """Build a VM and record the result; raise `ClaimLostError` if the claim is lost."""
    assignments = context.registry.assignments
    active = build.state is AssignmentState.ACTIVE
    try:
        with context.hosts.use(build.host, pool=not active) as host:
            if active:
                _prepare_resume(build, host, context)
            else:
                _start_domain_paused(build, host, context)
                assignments.activate(build.claim)
                active = True
                context.checkpoint("create.after_activate")
            host.resume(str(build.vm_id))
        assignments.mark_running(build.claim)
    except (HostBusyError, StoppingError):
        assignments.yield_claim(build.claim, None)
        return TaskOutcome.HANDED_BACK
    except HostUnreachableError as error:
        _log_build_failure(build, error)
        if active:
            # The guest may run already: retry until the host answers.
            assignments.yield_claim(build.claim, str(error))
        else:
            assignments.record_failure(build.claim, str(error), transient=True)
        return TaskOutcome.HANDED_BACK
    except (OperationFailedError, DomainConflictError) as error:
        _log_build_failure(build, error)
        assignments.record_failure(build.claim, str(error), transient=False)
        # The host answers, so absence may be proven at once and the capacity freed. Otherwise the
        # sweep retries the quarantined assignment.
        removals.remove_assignment(build.claim.assignment_id, context)
        return TaskOutcome.FAILED
    return TaskOutcome.DONE


def _start_domain_paused(build: Build, host: HostDriver, context: WorkerContext) -> None:
    """Define the domain of a build and start it paused; reuse existing volumes."""
    vm_id = str(build.vm_id)
    seen = _find_own_domain(build, host, context)
    if seen is None or seen.state is DomainState.STOPPED:
        spec = build_domain_spec(build, context.host_networks)
        make_volumes(build, spec, host, keep=lambda: context.extend_claim(build.claim))
        context.checkpoint("create.after_volume")
        context.extend_claim(build.claim)
        host.define(spec)
        context.checkpoint("create.after_define")
        context.extend_claim(build.claim)
        host.start_paused(vm_id, guard=spec.guard)
    context.checkpoint("create.before_resume")


def make_volumes(
    build: Build, spec: DomainSpec, host: HostDriver, *, keep: Callable[[], None]
) -> None:
    """Make the disk and the seed of an assignment; ``keep`` extends the claim before each.

    A disk in a shared pool that the VM already has is never made again. If it is missing, the pool
    is not the shared one, and the build fails.
    """
    keep()
    if not build.has_disk:
        host.create_overlay(
            pool=spec.pool,
            name=spec.volume,
            base_volume=build.image.volume if build.image else build.host.base_volume,
            base_format=build.image.format if build.image else None,
            capacity_gib=build.resources.get("disk_gib", 0),
        )
    elif not host.has_volume(spec.pool, spec.volume):
        raise OperationFailedError(
            "find_disk",
            f"pool {spec.pool} of host {build.host.name} has no volume {spec.volume}, the VM's"
            " disk: the host does not see the shared pool",
        )
    elif layers := host.overlays_of(spec.pool, spec.volume):
        raise OperationFailedError(
            "find_disk",
            f"in pool {spec.pool} of host {build.host.name} {', '.join(layers)} rests on"
            f" {spec.volume}, the VM's disk, and has what the guest wrote last: a snapshot of"
            f" libvirt's. Merge it there with `qemu-img commit -d {layers[0]}` and delete it",
        )
    if spec.seed_volume is not None:
        keep()
        host.put_volume(spec.pool, spec.seed_volume, seed_content(build))


def _find_own_domain(build: Build, host: HostDriver, context: WorkerContext) -> HostDomain | None:
    """Return the domain of a build's assignment if it exists; remove an older attempt's."""
    vm_id = str(build.vm_id)
    seen = host.find(vm_id, deadline_s=context.lookup_deadline_s)
    if seen is None or _is_mark_of_build(build, seen.mark):
        return seen
    if seen.mark is None:
        raise DomainConflictError(build.host.uri, vm_id, f"{seen.name}, which is foreign")
    older = UUID(seen.mark.assignment_id)
    state = context.registry.assignments.state(older)
    if state is not AssignmentState.RELEASED or seen.mark.generation >= build.generation:
        raise DomainConflictError(
            build.host.uri, vm_id, f"of assignment {older}, {state or 'which is unknown'}"
        )
    context.extend_claim(build.claim)
    disk = volume_name(str(build.disk_of))  # that attempt may have made it
    if not removals.remove_attempt(
        host,
        vm_id,
        seen.mark.assignment_id,
        generation=seen.mark.generation,
        pool=build.host.pool,
        volumes=[each for each in removals.volume_names(seen.mark.assignment_id) if each != disk],
    ):
        raise DomainConflictError(build.host.uri, vm_id, f"of assignment {older}, which stays")
    return None


def _prepare_resume(build: Build, host: HostDriver, context: WorkerContext) -> None:
    """Prepare the domain of an active assignment for its resume, after its worker died."""
    vm_id = str(build.vm_id)
    seen = host.find(vm_id, deadline_s=context.lookup_deadline_s)
    if seen is None or not _is_mark_of_build(build, seen.mark):
        # An operator undefined it before a poll found it running.
        raise OperationFailedError("resume", f"{build.host.name} does not have the domain {vm_id}")
    if seen.state is DomainState.STOPPED:
        context.extend_claim(build.claim)
        host.start_paused(vm_id, guard=build_domain_spec(build, context.host_networks).guard)
    context.extend_claim(build.claim)


def _clean_up_after_lost_claim(build: Build, context: WorkerContext) -> TaskOutcome:
    """Remove a built domain after this worker lost its claim, unless others hold the VM."""
    assignment_id = build.claim.assignment_id
    state = context.registry.assignments.state(assignment_id)
    if state in _HELD_BY_OTHERS:
        return TaskOutcome.CLAIM_LOST
    with suppress(ClaimLostError):
        # A deletion took the assignment but not the lease: release the lease, so that no worker
        # waits for its end.
        context.registry.assignments.yield_claim(build.claim, None)
    if removals.remove_assignment(assignment_id, context) is TaskOutcome.DONE:
        return TaskOutcome.CLAIM_LOST
    try:
        with context.hosts.use(build.host, pool=True) as host:
            removals.remove_attempt(
                host,
                str(build.vm_id),
                str(assignment_id),
                generation=build.generation,
                pool=build.host.pool,
            )
    except (HostBusyError, HostUnreachableError, OperationFailedError) as error:
        # A remaining domain is paused or off and has a released mark, so the next report of the
        # host makes it a leftover.
        log.warning("loser_left_traces", error=str(error))
    return TaskOutcome.CLAIM_LOST


def _log_build_failure(build: Build, error: Exception) -> None:
    """Log that a build failed, and why."""
    log.warning("build_failed", failed_before=build.failed_before, error=str(error))


def _is_mark_of_build(build: Build, mark: Mark | None) -> bool:
    """Return whether the mark of a domain is that of a build: its assignment and generation."""
    return (
        mark is not None
        and mark.assignment_id == str(build.claim.assignment_id)
        and mark.generation == build.generation
    )


def build_domain_spec(build: Build, known: HostNetworks) -> DomainSpec:
    """Return the specification of the domain of a VM to build: sizes, disk, network and mark."""
    if build.network is None:
        raise OperationFailedError("define", f"{build.host.name} does not have the VM's network")
    memory_mib = build.resources.get("memory_mib", 0)
    if build.host.memory_backing_mib is not None:
        memory_mib = min(memory_mib, build.host.memory_backing_mib)
    assignment_id = str(build.claim.assignment_id)
    return DomainSpec(
        mark=Mark(
            vm_id=str(build.vm_id),
            assignment_id=assignment_id,
            generation=build.generation,
            tenant=build.tenant,
            round=build.round,
        ),
        name=domain_name(str(build.vm_id)),
        domain_type=build.host.domain_type,
        vcpus=build.resources.get("vcpus", 1),
        memory_mib=memory_mib,
        pool=build.host.pool,
        volume=volume_name(str(build.disk_of)),
        seed_volume=seed_name(assignment_id) if reads_seed(build) else None,
        network=build.network.source,
        network_kind=build.network.kind,
        mac=build.network.mac,
        limits=VmLimits(**build.limits),
        guard=network_guard(build.host, build.network.interface_rules, known),
    )
