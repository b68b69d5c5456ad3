"""Power changes of VMs, one short step at a time.

The worker signals a guest to shut down and checks it later; no thread waits. The signal is recorded
before it is sent, so it is never forgotten. Steps may be repeated or late: each names the run of
the domain that it is for, and does not affect a later run.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final
from uuid import UUID

import structlog

from hypervisor import DomainState, HostDomain, HostUnreachableError, OperationFailedError
from registry import ClaimLostError, PowerEvent, PowerState
from registry.tasks import PowerStep
from workers.context import TaskOutcome, WorkerContext
from workers.driver import HostDriver
from workers.errors import HostBusyError, StoppingError
from workers.network_guard import network_guard

log: Final = structlog.get_logger(__name__)

_GOING_DOWN: Final = frozenset({PowerState.STOPPING, PowerState.SHUTTING_DOWN})


def switch_power(vm_id: UUID, context: WorkerContext) -> TaskOutcome:
    """Carry out the next step of a VM's power change."""
    if context.stopping.is_set():
        return TaskOutcome.NOT_OURS
    power = context.registry.power
    step = power.claim(vm_id, context.owner, context.lease_s)
    if step is None:
        return TaskOutcome.NOT_OURS
    bound = log.bind(vm_id=str(vm_id), host=step.host.name, power=step.state)
    try:
        with context.hosts.use(step.host) as host:
            outcome = _take_power_step(step, host, context)
    except ClaimLostError:
        with suppress(ClaimLostError):
            # Another change has been requested: release the lease, so that its worker need not
            # wait.
            power.retry_later(step.claim, None)
        outcome = TaskOutcome.CLAIM_LOST
    except (HostBusyError, StoppingError):
        outcome = _return_power_claim(step, context, None)
    except HostUnreachableError as error:
        bound.warning("power_step_failed", error=str(error))
        outcome = _return_power_claim(step, context, str(error))
    except OperationFailedError as error:
        bound.warning("power_step_failed", error=str(error))
        outcome = _return_power_claim(step, context, str(error), refused=True)
    bound.info("power_step_ended", outcome=outcome)
    return outcome


def _return_power_claim(
    step: PowerStep, context: WorkerContext, error: str | None, *, refused: bool = False
) -> TaskOutcome:
    """Release the claim on a power change, which is tried again later."""
    try:
        context.registry.power.retry_later(step.claim, error, refused=refused)
    except ClaimLostError:
        return TaskOutcome.CLAIM_LOST
    return TaskOutcome.HANDED_BACK


def _take_power_step(step: PowerStep, host: HostDriver, context: WorkerContext) -> TaskOutcome:
    """Take the step that a power change's state requires, and record it."""
    power = context.registry.power
    seen = _find_domain(step, host, context)
    state = step.state
    off = seen.state is DomainState.STOPPED
    if state is not PowerState.STARTING and off:
        state = power.advance(step.claim, PowerEvent.SEEN_OFF)
        if state is PowerState.IDLE:
            return TaskOutcome.DONE
    if state is PowerState.STARTING:
        _extend_power_claim(step, state, context)
        if off:
            # The definition may be older than the network's filters.
            guard = network_guard(step.host, step.interface_rules, context.host_networks)
            host.start_paused(str(step.claim.vm_id), guard=guard)
            # As in a build: a worker that lost the claim does not resume the guest.
            context.checkpoint("power.after_start")
            _extend_power_claim(step, state, context)
        host.resume(str(step.claim.vm_id))
        power.advance(step.claim, PowerEvent.SEEN_ON)
        return TaskOutcome.DONE
    if step.overdue:
        _extend_power_claim(step, state, context)
        return _force_off_or_reset(step, host, context, seen)
    if step.to_signal:
        state = power.advance(step.claim, PowerEvent.SIGNALLED)
        context.checkpoint("power.after_signalled")
        _extend_power_claim(step, state, context)
        host.shut_down(str(step.claim.vm_id), run=_run_number(seen))
    power.poll_again(step.claim)
    return TaskOutcome.HANDED_BACK


def _find_domain(step: PowerStep, host: HostDriver, context: WorkerContext) -> HostDomain:
    """Return the domain of a VM to switch, or raise if the host has none with its mark."""
    vm_id = str(step.claim.vm_id)
    seen = host.find(vm_id, deadline_s=context.lookup_deadline_s)
    mark = None if seen is None else seen.mark
    if seen is None or mark is None or mark.assignment_id != str(step.assignment_id):
        # The monitor reports the result.
        raise OperationFailedError("find", f"{step.host.name} does not have the domain {vm_id}")
    return seen


def _force_off_or_reset(
    step: PowerStep, host: HostDriver, context: WorkerContext, seen: HostDomain
) -> TaskOutcome:
    """Cut a VM's power, or reset it, as its guest did not shut down in time; record it."""
    vm_id, run = str(step.claim.vm_id), _run_number(seen)
    if step.state in _GOING_DOWN:
        host.power_off(vm_id, run=run)
        event = PowerEvent.SEEN_OFF
    else:
        host.reset(vm_id, run=run)
        event = PowerEvent.RESET
    context.checkpoint("power.after_force")
    context.registry.power.advance(step.claim, event)
    return TaskOutcome.DONE


def _run_number(seen: HostDomain) -> int:
    """Return the number of a domain's present run, or raise if it went off just now."""
    if seen.run is None:
        raise OperationFailedError("find", f"domain {seen.uuid} went off while it was looked at")
    return seen.run


def _extend_power_claim(step: PowerStep, state: PowerState, context: WorkerContext) -> None:
    """Extend the claim on a power change before a step that cannot be undone."""
    if context.stopping.is_set():
        raise StoppingError
    context.registry.power.extend_claim(step.claim, state, context.lease_s)
