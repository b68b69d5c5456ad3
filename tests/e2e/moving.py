"""Hosts between which VMs can move, and what workers do with moves, for conversations."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from registry import Registry, VmObserved
from registry.hosts import Host
from registry.moves import MoveLimits, MoveProgress, MoveStep
from tests.register import a_report, add_host, add_request, place, run_vm

LIMITS = MoveLimits(per_host=2, everywhere=8)


def a_host_of_guests(registry: Registry, name: str, **fields: Any) -> Host:
    """Add a host that runs QEMU; the default of `add_host` moves nothing."""
    uri = f"qemu+tcp://{name}.example.org/system"
    return add_host(registry, name, uri=uri, domain_type="qemu", max_builds=8, **fields)


def a_running_vm(registry: Registry, host: Host, **asked: Any) -> str:
    """Return the id of a VM of tenant a that runs there."""
    request = add_request(registry, **{"name": "web"} | asked)
    [key] = place(registry, request, registry.hosts.get(host.name)).assignment_ids
    run_vm(registry, key)
    vms = registry.vms.list(limit=500).items
    return next(str(vm.id) for vm in vms if vm.assignment_id == key)


def begin(registry: Registry, move: str, total: int = 0, left: int = 0, rate: int = 0) -> MoveStep:
    """Claim a move as a worker does, and tell how far it has come."""
    step = registry.move_steps.claim(UUID(move), "w1", 60, LIMITS)
    assert step is not None, f"move {move} cannot be claimed"
    far = MoveProgress(total_bytes=total, remaining_bytes=left, rate_bytes_s=rate)
    registry.move_steps.extend_claim(step.claim, 60, far if total else None)
    return step


def arrive(registry: Registry, step: MoveStep, downtime_ms: int | None = 150) -> None:
    """Do what a worker does whose guest arrived, and clear away what it left."""
    assert registry.move_steps.record_arrival(
        step.claim, VmObserved.RUNNING, downtime_ms=downtime_ms
    )
    removal = registry.assignments.claim_removal(step.from_id, "w1", 60)
    assert removal is not None
    registry.assignments.release(removal.claim)


def silence(registry: Registry, host: str) -> None:
    """Let a host answer no more."""
    registry.hosts.record_miss(
        registry.hosts.get(host).id, "no answer", unreachable_after=1, down_after=9
    )


def shrink(registry: Registry, host: str, vcpus: int) -> None:
    """Let a host report fewer processors than it did."""
    registry.hosts.record_report(registry.hosts.get(host).id, a_report(vcpus=vcpus, hostname=host))
