"""How many VMs of a type there is room for once those that wait and are owed before are served."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from controller.questions.capacity import MOST_VMS, Capacity, capacity_left
from controller.rounds.snapshots import ordinary, to_snapshot
from placement import decide, policy_by_name
from registry.requests import Rules
from registry.rounds import CapacityView, RequestView

#: Serves by shares and host by host, as the fallback of rounds does; no round waits for it.
POLICY: Final = "best_fit_drfh"
_NOT_ASKED_YET: Final = UUID(int=0)


def capacity_in_turn(
    view: CapacityView,
    found: Capacity,
    *,
    tenant: str | None,
    requires: Sequence[str],
    named: Sequence[str] | None,
    rules: Rules,
) -> Capacity:
    """Return ``found`` with what fits beside all that a round would place of what waits.

    Parameters
    ----------
    view : CapacityView
        Without its cluster ``found`` is returned as it is.
    found : Capacity
        What `capacity_left` found by this view and these rules.
    tenant : str or None
        Who asks: it is served when its share comes, so before those that hold more. None, or
        a tenant that there is not: after all that wait.
    """
    cluster = view.cluster
    if cluster is None:
        return found
    if not (found.fits and cluster.requests):
        return replace(found, in_turn=found.fits)
    asker = next((each for each in cluster.tenants if each.name == tenant), None)
    asked: tuple[RequestView, ...] = ()
    if asker is not None:
        asked = (
            RequestView(
                id=_NOT_ASKED_YET,
                name="",
                tenant_id=asker.id,
                vm_type=found.vm_type,
                demand=view.demand,
                count=min(found.fits, MOST_VMS),
                min_count=1,
                requires=tuple(requires),
                hosts=None if named is None else tuple(named),
                avoid=(),
                age=0,
                created_at=cluster.now,
                rules=Rules(forbids=rules.forbids, zone=rules.zone),
            ),
        )
    cluster = ordinary(cluster)  # spot VMs that are asked for take nothing from anybody
    snapshot, _ = to_snapshot(replace(cluster, requests=(*cluster.requests, *asked)))
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
    beside = replace(view, hosts=hosts)
    left = capacity_left(beside, found.vm_type, requires=requires, named=named, rules=rules)
    return replace(found, in_turn=left.fits)
