"""Changes of volumes, one short step at a time: files in pools, and disks of guests.

No thread waits for a guest that does not release a disk: a worker polls it later. Steps may be
repeated. A file is made only before any guest had it; afterwards a file that is missing is an
error, never an empty file under its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final
from uuid import UUID

import structlog

from hypervisor import HostUnreachableError, OperationFailedError, data_volume_name, disk_serial
from registry import ClaimLostError, VolumeEvent, VolumeState
from registry.volumes import VolumeStep
from workers.context import TaskOutcome, WorkerContext
from workers.driver import HostDriver
from workers.errors import HostBusyError, StoppingError

log: Final = structlog.get_logger(__name__)


def change_volume(volume_id: UUID, context: WorkerContext) -> TaskOutcome:
    """Carry out the next steps of a volume's change."""
    if context.stopping.is_set():
        return TaskOutcome.NOT_OURS
    step = context.registry.volume_steps.claim(volume_id, context.owner, context.lease_s)
    if step is None:
        return TaskOutcome.NOT_OURS
    bound = log.bind(volume_id=str(volume_id), host=step.host.name, volume=step.state)
    try:
        with context.hosts.use(step.host, pool=True) as host:
            outcome = _take_steps(step, host, context)
    except ClaimLostError:
        with suppress(ClaimLostError):
            context.registry.volume_steps.retry_later(step.claim, None)
        outcome = TaskOutcome.CLAIM_LOST
    except (HostBusyError, StoppingError):
        outcome = _return_claim(step, context, None)
    except HostUnreachableError as error:
        bound.warning("volume_step_failed", error=str(error))
        outcome = _return_claim(step, context, str(error))
    except OperationFailedError as error:
        bound.warning("volume_step_failed", error=str(error))
        outcome = _return_claim(step, context, str(error), refused=True)
    bound.info("volume_step_ended", outcome=outcome)
    return outcome


def _return_claim(
    step: VolumeStep, context: WorkerContext, error: str | None, *, refused: bool = False
) -> TaskOutcome:
    """Release the claim on a volume, whose change is tried again later."""
    try:
        context.registry.volume_steps.retry_later(step.claim, error, refused=refused)
    except ClaimLostError:
        return TaskOutcome.CLAIM_LOST
    return TaskOutcome.HANDED_BACK


def _take_steps(step: VolumeStep, host: HostDriver, context: WorkerContext) -> TaskOutcome:
    """Take the steps of a volume's change until nothing is left to do, or a guest has to answer."""
    steps, state = context.registry.volume_steps, step.state
    while (take := _STEPS.get(state)) is not None:
        if context.stopping.is_set():
            raise StoppingError
        steps.extend_claim(step.claim, state, context.lease_s)
        event = take(step, host)
        context.checkpoint(f"volumes.after_{state}")
        if event is not None:
            state = steps.advance(step.claim, event)
        elif step.overdue:
            # The definition lacks the disk by now, which the guest keeps: it is completed.
            state = steps.give_up_detach(step.claim)
        else:
            steps.poll_again(step.claim)
            return TaskOutcome.HANDED_BACK
    return TaskOutcome.DONE


def _create(step: VolumeStep, host: HostDriver) -> VolumeEvent:
    """Make the empty file of a volume."""
    host.create_overlay(
        pool=step.host.pool,
        name=_file_name(step),
        base_volume=None,
        base_format=None,
        capacity_gib=step.size_gib,
    )
    return VolumeEvent.CREATED


def _attach(step: VolumeStep, host: HostDriver) -> VolumeEvent:
    """Attach a volume to the domain of its VM."""
    host.attach_disk(
        str(step.vm_id),
        assignment_id=str(step.assignment_id),
        pool=step.host.pool,
        volume=_file_name(step),
        serial=disk_serial(step.claim.volume_id),
    )
    return VolumeEvent.ATTACHED


def _detach(step: VolumeStep, host: HostDriver) -> VolumeEvent | None:
    """Take a volume from the domain of its VM; return None while the guest keeps the disk."""
    is_gone = host.detach_disk(
        str(step.vm_id),
        assignment_id=str(step.assignment_id),
        serial=disk_serial(step.claim.volume_id),
    )
    return VolumeEvent.DETACHED if is_gone else None


def _delete(step: VolumeStep, host: HostDriver) -> None:
    """Delete the file of a volume, and prove it absent."""
    name = _file_name(step)
    host.delete_volume(step.host.pool, name)
    if host.has_volume(step.host.pool, name):
        raise OperationFailedError(
            "delete_volume", f"pool {step.host.pool} still has {name} after it was deleted"
        )


def _withdraw(step: VolumeStep, host: HostDriver) -> VolumeEvent:
    """Delete the file of a volume that no guest ever had."""
    _delete(step, host)
    return VolumeEvent.WITHDRAWN


def _remove(step: VolumeStep, host: HostDriver) -> VolumeEvent:
    """Delete the file of a volume that is removed."""
    _delete(step, host)
    return VolumeEvent.ABSENT


def _file_name(step: VolumeStep) -> str:
    """Return the name of a volume's file in its pool."""
    return data_volume_name(step.claim.volume_id)


#: The work that each state requires.
_STEPS: Final[Mapping[VolumeState, Callable[[VolumeStep, HostDriver], VolumeEvent | None]]] = (
    MappingProxyType(
        {
            VolumeState.CREATING: _create,
            VolumeState.ATTACHING: _attach,
            VolumeState.DETACHING: _detach,
            VolumeState.WITHDRAWING: _withdraw,
            VolumeState.REMOVING: _remove,
        }
    )
)
