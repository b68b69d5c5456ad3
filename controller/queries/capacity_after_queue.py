"""Capacity left for a VM type after the queue ahead of it is served.

On a large site this takes a second of CPU time, so a child process computes it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

import structlog

from controller.errors import PolicyFailedError
from controller.fork_server.children import StartChild, start_interpreter
from controller.queries.capacity import MAX_VMS, Capacity, capacity_left
from controller.rounds.policy_process import PolicyProcess
from controller.rounds.snapshots import drop_spot_requests, to_snapshot
from placement import decide, policy_by_name
from registry.requests import Rules
from registry.rounds import CapacityView, RequestView

log = structlog.get_logger()

#: The policy that serves the queue: the same as the fallback of rounds.
POLICY: Final = "best_fit_drfh"
#: Up to this many hosts and VMs together, the caller's thread computes it: that takes less time
#: than starting a process.
MAX_IN_THREAD: Final = 1_000
#: Time limit of the process, including its start: clients wait for 30 s.
TIME_S: Final = 10.0
#: As for replays: a caller waits.
NICENESS: Final = 5
_NO_REQUEST_YET: Final = UUID(int=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityInputs:
    """Inputs of the capacity after the queue, with the capacity before it is served."""

    view: CapacityView  #: without a cluster, `found` is returned unchanged
    found: Capacity  #: by `capacity_left`, with this view and these rules
    #: the tenant that would request the VMs: it is served before tenants with larger shares.
    #: None or an unknown tenant: after the whole queue
    tenant: str | None
    requires: Sequence[str]
    named: Sequence[str] | None
    rules: Rules


def capacity_in_turn(
    question: CapacityInputs,
    *,
    start: StartChild = start_interpreter,
    within_s: float = TIME_S,
    max_in_thread: int = MAX_IN_THREAD,
) -> Capacity:
    """Return the capacity with ``in_turn``: how many VMs fit after a round has served the queue.

    On a large cluster a child process computes it. If it takes longer than ``within_s`` it is
    killed, and ``in_turn`` stays None.
    """
    found, cluster = question.found, question.view.cluster
    if cluster is None:
        return found
    if not (found.fits and cluster.requests):
        return replace(found, in_turn=found.fits)
    vms = sum(each.count for each in cluster.requests) + found.fits
    if len(cluster.hosts) + vms <= max_in_thread:
        return replace(found, in_turn=capacity_after_round(question))
    process = PolicyProcess(niceness=NICENESS, start=start)
    try:
        in_turn: int = process.capacity_in_turn(question, deadline_s=within_s)
    except PolicyFailedError as error:
        log.warning("capacity_in_turn_not_computed", error=str(error))
        return found
    finally:
        process.close()
    return replace(found, in_turn=in_turn)


def capacity_after_round(question: CapacityInputs) -> int:
    """Simulate a round on the queue; return how many more VMs of the type it then places."""
    view, found, rules = question.view, question.found, question.rules
    cluster = view.cluster
    assert cluster is not None  # noqa: S101 no child is started without it
    asker = next((each for each in cluster.tenants if each.name == question.tenant), None)
    requests: tuple[RequestView, ...] = ()
    if asker is not None:
        requests = (
            RequestView(
                id=_NO_REQUEST_YET,
                name="",
                tenant_id=asker.id,
                vm_type=found.vm_type,
                demand=view.demand,
                count=min(found.fits, MAX_VMS),
                min_count=1,
                requires=tuple(question.requires),
                hosts=None if question.named is None else tuple(question.named),
                avoid=(),
                age=0,
                created_at=cluster.now,
                rules=Rules(forbids=rules.forbids, zone=rules.zone),
            ),
        )
    cluster = drop_spot_requests(cluster)  # requested spot VMs take no room from others
    snapshot, _ = to_snapshot(replace(cluster, requests=(*cluster.requests, *requests)))
    allocation = decide(snapshot, policy_by_name(POLICY, {}), seed=0, budget_units=None)
    taken: defaultdict[UUID, list[int]] = defaultdict(lambda: [0] * len(view.demand))
    for request, host, count in allocation.placed.tolist():
        if request < len(cluster.requests):
            amounts = taken[cluster.hosts[host].id]
            for resource, each in enumerate(cluster.requests[request].demand):
                amounts[resource] += count * each
    hosts = tuple(
        replace(host, committed=tuple(map(sum, zip(host.committed, taken[host.id], strict=True))))
        if host.id in taken
        else host
        for host in view.hosts
    )
    full_view = replace(view, hosts=hosts)
    left = capacity_left(
        full_view, found.vm_type, requires=question.requires, named=question.named, rules=rules
    )
    return left.fits
