"""Removal of VMs from their hosts; only proof of absence releases an assignment."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import UUID

import structlog

from hypervisor import (
    DomainState,
    HostUnreachableError,
    OperationFailedError,
    seed_name,
    volume_name,
)
from hypervisor.model import IMAGE_PREFIX
from registry import ClaimLostError
from registry.hosts import HostAccess
from registry.tasks import Leftover, Removal
from workers.context import TaskOutcome, WorkerContext
from workers.driver import HostDriver
from workers.errors import HostBusyError, StoppingError

log: Final = structlog.get_logger(__name__)


def remove_assignment(assignment_id: UUID, context: WorkerContext) -> TaskOutcome:
    """Remove the domain and volume of a releasing or quarantined assignment, then release it."""
    if context.stopping.is_set():
        return TaskOutcome.NOT_OURS
    removal = context.registry.assignments.claim_removal(
        assignment_id, context.owner, context.lease_s
    )
    if removal is None:
        return TaskOutcome.NOT_OURS
    with structlog.contextvars.bound_contextvars(
        assignment_id=str(assignment_id),
        vm_id=str(removal.vm_id),
        request_id=str(removal.request_id),
        host=removal.host.name,
    ):
        try:
            outcome = _remove_and_record(removal, context)
        except ClaimLostError:
            # Another worker removes it: removing twice is harmless.
            outcome = TaskOutcome.CLAIM_LOST
        log.info("removal_ended", outcome=outcome)
    if outcome is TaskOutcome.DONE:
        context.send_next_on_host(removal.host.id)
    return outcome


def _remove_and_record(removal: Removal, context: WorkerContext) -> TaskOutcome:
    """Remove a VM from its host and release its assignment once absence is proven."""
    assignments = context.registry.assignments
    try:
        with context.hosts.use(removal.host) as host:
            _stop_guest(removal, host, context)
        if removal.neighbours:
            context.extend_claim(removal.claim)
            with context.hosts.use(removal.host, pool=True) as host:
                files = _files_of_removal(removal, host)
            context.extend_claim(removal.claim)
            check_hosts_sharing_pool(
                removal.neighbours, files, context, keep=lambda: context.extend_claim(removal.claim)
            )
        with context.hosts.use(removal.host, pool=True) as host:
            absent = _remove_claimed_assignment(removal, host, context)
    except (HostBusyError, StoppingError):
        assignments.yield_claim(removal.claim, None)
        return TaskOutcome.HANDED_BACK
    except (HostUnreachableError, OperationFailedError) as error:
        log.warning("removal_failed", error=str(error))
        assignments.yield_claim(removal.claim, str(error))
        return TaskOutcome.HANDED_BACK
    if not absent:
        assignments.yield_claim(
            removal.claim,
            f"{removal.host.name} has a domain with UUID {removal.vm_id} without fuga's"
            " mark: an operator must decide there whose it is; if it is the deleted VM's, shut it"
            " down and `virsh undefine` it",
        )
        return TaskOutcome.HANDED_BACK
    assignments.release(removal.claim)
    return TaskOutcome.DONE


def _stop_guest(removal: Removal, host: HostDriver, context: WorkerContext) -> None:
    """Stop the guest of a removal without storage calls, which may hang."""
    vm_id = str(removal.vm_id)
    assignment_id = str(removal.claim.assignment_id)
    seen = host.find(vm_id, deadline_s=context.lookup_deadline_s)
    if seen is not None and seen.mark is not None and seen.mark.assignment_id == assignment_id:
        if removal.left_behind and seen.state is DomainState.RUNNING:
            # Wherever the ledger places the VM: a running guest may be its only one.
            raise OperationFailedError("remove", f"a guest runs on {removal.host.name}")
        context.extend_claim(removal.claim)
        host.destroy(vm_id, mark=seen.mark)
    context.checkpoint("delete.after_destroy")


def _remove_claimed_assignment(removal: Removal, host: HostDriver, context: WorkerContext) -> bool:
    """Remove the domain and volumes of a claimed assignment; return whether they are gone."""
    context.extend_claim(removal.claim)
    return remove_attempt(
        host,
        str(removal.vm_id),
        str(removal.claim.assignment_id),
        generation=removal.generation,
        pool=removal.host.pool,
        volumes=_volumes_of_removal(removal),
    )


def _volumes_of_removal(removal: Removal) -> list[str]:
    """Return the names of the volumes to delete with a VM."""
    disk = [] if removal.disk_of is None else [volume_name(str(removal.disk_of))]
    return [*disk, seed_name(str(removal.claim.assignment_id))]


def _files_of_removal(removal: Removal, host: HostDriver) -> list[str]:
    """Return the names of all files to delete with a VM, also those of its snapshots."""
    volumes = _volumes_of_removal(removal)
    more = host.files_removed_with(
        str(removal.vm_id),
        assignment_id=str(removal.claim.assignment_id),
        pool=removal.host.pool,
        volumes=volumes,
    )
    return [*volumes, *more]


def remove_leftover(leftover_id: UUID, context: WorkerContext) -> TaskOutcome:
    """Remove a domain or volume of a released assignment.

    Released is final, so nothing needs it any more. Domains of an unknown assignment stay, unless
    an operator requested the removal: they may belong to another installation, or be newer than a
    restored backup.
    """
    leftover = _claim_leftover(leftover_id, context)
    if leftover is None:
        return TaskOutcome.NOT_OURS
    bound = log.bind(leftover_id=str(leftover_id), host=leftover.host.name, name=leftover.name)
    try:
        return _remove_claimed_leftover(leftover, context, bound)
    except (HostBusyError, StoppingError):
        return TaskOutcome.HANDED_BACK
    except ClaimLostError:
        return TaskOutcome.CLAIM_LOST


def _remove_claimed_leftover(leftover: Leftover, context: WorkerContext, bound: Any) -> TaskOutcome:
    """Remove a claimed leftover from its host unless another host uses its files."""
    volumes = _volumes_of_leftover(leftover)
    try:
        files = _files_of_leftover(leftover, volumes, context)
    except (HostUnreachableError, OperationFailedError) as error:
        return _record_refusal(leftover, str(error), context, bound)
    try:
        check_hosts_sharing_pool(
            leftover.neighbours,
            files,
            context,
            keep=lambda: context.extend_leftover_claim(leftover),
        )
    except (HostUnreachableError, OperationFailedError) as error:
        if leftover.kind == "volume":
            return _record_refusal(leftover, str(error), context, bound)
        # Remove the domain now; the files become leftovers of their own.
        bound.warning("leftover_files_stay", files=files, error=str(error))
        volumes = []
    try:
        with context.hosts.use(leftover.host, pool=True) as host:
            _check_guest_off(leftover, host, context)
            absent = _delete_leftover(leftover, host, volumes)
    except (HostUnreachableError, OperationFailedError) as error:
        return _record_refusal(leftover, str(error), context, bound)
    if not absent:
        why = (
            f"{leftover.host.name} still shows it, or has a domain with UUID {leftover.vm_uuid}"
            " without fuga's mark: if nobody needs that, shut it down and undefine it there"
        )
        return _record_refusal(leftover, why, context, bound)
    context.registry.assignments.finish_leftover(leftover.id)
    bound.info("leftover_removed", kind=leftover.kind)
    return TaskOutcome.DONE


def _record_refusal(
    leftover: Leftover, why: str, context: WorkerContext, bound: Any
) -> TaskOutcome:
    """Record why a leftover was not removed, for `fuga doctor --hosts`; it is tried again."""
    bound.warning("leftover_stays", error=why)
    context.registry.assignments.record_leftover_error(leftover, why)
    return TaskOutcome.HANDED_BACK


def _claim_leftover(leftover_id: UUID, context: WorkerContext) -> Leftover | None:
    """Claim a leftover domain or volume; None if this worker must not remove it."""
    if context.stopping.is_set():
        return None
    assignments = context.registry.assignments
    leftover = assignments.claim_leftover(leftover_id, context.owner, context.lease_s)
    if leftover is None or _is_image_copy(leftover):
        return leftover
    if leftover.assignment_id is None:
        return None
    if not leftover.requested and assignments.state(leftover.assignment_id) is None:
        log.warning("leftover_unknown", host=leftover.host.name, name=leftover.name)
        return None
    return leftover


def _is_image_copy(leftover: Leftover) -> bool:
    """Return whether a leftover is a copy of an image, which belongs to no assignment."""
    return leftover.kind == "volume" and leftover.name.startswith(IMAGE_PREFIX)


def _volumes_of_leftover(leftover: Leftover) -> list[str]:
    """Return the names of the volumes to delete with a leftover."""
    if _is_image_copy(leftover):
        return [leftover.name]
    assignment_id = str(leftover.assignment_id)
    names = [] if leftover.disk_stays else [volume_name(assignment_id)]
    names += [] if leftover.seed_stays else [seed_name(assignment_id)]
    return [name for name in names if name == leftover.name or leftover.kind != "volume"]


def _files_of_leftover(leftover: Leftover, volumes: list[str], context: WorkerContext) -> list[str]:
    """Return the names of all files to delete with a leftover, also those of its snapshots.

    Only hosts that share the pool are queried about them.
    """
    if not (volumes and leftover.neighbours) or leftover.kind == "volume":
        return volumes
    context.extend_leftover_claim(leftover)
    with context.hosts.use(leftover.host, pool=True) as host:
        more = host.files_removed_with(
            str(leftover.vm_uuid),
            assignment_id=str(leftover.assignment_id),
            pool=leftover.host.pool,
            volumes=volumes,
        )
    context.extend_leftover_claim(leftover)
    return [*volumes, *more]


def check_hosts_sharing_pool(
    neighbours: Sequence[HostAccess],
    volumes: list[str],
    context: WorkerContext,
    *,
    keep: Callable[[], None],
) -> None:
    """Raise if a domain on another host with the same pool uses one of the volumes.

    Every such host has to answer. ``keep`` extends the claim during the calls.
    """
    if not volumes:
        return
    until = time.monotonic() + context.lease_s / 2  # else another worker may claim it
    for number, each in enumerate(neighbours):
        if number and time.monotonic() > until:
            keep()
            until = time.monotonic() + context.lease_s / 2
        try:
            with context.hosts.use(each, pool=True) as host:
                users = host.domains_using(each.pool, volumes, deadline_s=context.lookup_deadline_s)
        except HostBusyError as error:
            raise OperationFailedError(
                "remove", f"host {each.name}, which sees the pool, was not queried: {error.reason}"
            ) from error
        if users:
            raise OperationFailedError(
                "remove",
                f"domain {', '.join(users)} of {each.name} uses {', '.join(volumes)}: find out"
                " whose it is; if nobody needs it, shut it down and undefine it there, else give it"
                " another disk",
            )


def _check_guest_off(leftover: Leftover, host: HostDriver, context: WorkerContext) -> None:
    """Raise if the domain of a leftover runs, but a stopped one was to be removed."""
    if not leftover.requested or leftover.vm_uuid is None:
        return
    seen = host.find(str(leftover.vm_uuid), deadline_s=context.lookup_deadline_s)
    if seen is not None and seen.state is not DomainState.STOPPED:
        raise OperationFailedError("remove", f"{leftover.name} runs on {leftover.host.name}")


def _delete_leftover(leftover: Leftover, host: HostDriver, volumes: list[str]) -> bool:
    """Delete a leftover domain or volume; return whether it is proven absent."""
    if leftover.kind == "volume":
        for name in volumes:
            host.delete_volume(leftover.host.pool, name)
        return True
    return remove_attempt(
        host,
        str(leftover.vm_uuid),
        str(leftover.assignment_id),
        generation=None,
        pool=leftover.host.pool,
        volumes=volumes,
    )


def remove_attempt(
    host: HostDriver,
    vm_id: str,
    assignment_id: str,
    *,
    generation: int | None,
    pool: str,
    volumes: Sequence[str] | None = None,
) -> bool:
    """Remove an assignment's domain and volumes; return whether they are proven absent.

    ``volumes`` are the volumes to delete, by default all that the assignment may have made: in a
    shared pool another attempt of the VM may use its disk.

    Returns False if the host has a domain of the VM whose owner is unknown (without a mark, for
    example). The VM must not be placed elsewhere until that domain is gone.
    """
    return host.remove(
        vm_id,
        assignment_id=assignment_id,
        generation=generation,
        pool=pool,
        volumes=volume_names(assignment_id) if volumes is None else volumes,
    )


def volume_names(assignment_id: str) -> tuple[str, ...]:
    """Return the names of the volumes that an assignment may have made."""
    return volume_name(assignment_id), seed_name(assignment_id)
