"""Effects of a stored round other than placements: VMs that it ended, and reservations."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from dataclasses import dataclass
from uuid import UUID

from registry.rounds import StoredDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotPreemption:
    """A spot or borrowed VM that a round ended, and for which request."""

    vm_id: UUID
    vm: str
    request_id: UUID
    request: str
    tenant: str  #: the tenant of the request


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundReservation:
    """A reservation for which a round kept room, in VMs."""

    reservation_id: UUID
    reservation: str
    tenant: str
    wanted: int  #: VMs not used when the round began
    drawn: int  #: placed by the round for requests that draw on it
    kept: int
    missing: int  #: VMs without room


def stored_reservations(stored: StoredDecision) -> tuple[RoundReservation, ...]:
    """Return the reservations of a stored round, with names from its inputs."""
    details = stored.outcome["details"].get("reserved")
    if not details:
        return ()
    inputs = json.loads(zlib.decompress(stored.inputs))
    names, reserved = inputs["names"], inputs["reserved"]["reserved"]
    drawn, kept = Counter[int](), Counter[int]()
    for request, _, count in details["drawn"]:
        drawn[reserved["draws"][request]] += count
    for number, _, count in details["kept"]:
        kept[number] += count
    return tuple(
        RoundReservation(
            reservation_id=UUID(key),
            reservation=name,
            tenant=names["tenants"][reserved["tenant"][number]][1],
            wanted=reserved["count"][number],
            drawn=drawn[number],
            kept=kept[number],
            missing=max(0, reserved["count"][number] - drawn[number] - kept[number]),
        )
        for number, (key, name) in enumerate(names["reserved"])
    )


def stored_spot_preemptions(stored: StoredDecision) -> tuple[SpotPreemption, ...]:
    """Return the spot and borrowed VMs that a round preempted; names come from its inputs."""
    details = stored.outcome["details"]
    ends = [
        (kind, vm, request)
        for kind in ("spot", "borrowed")
        for vm, request in details.get(kind, {}).get("ends", ())
    ]
    if not ends:
        return ()
    inputs = json.loads(zlib.decompress(stored.inputs))
    names, tenant_of = inputs["names"], inputs["snapshot"]["tenant"]
    found = []
    for kind, vm, request in ends:
        vm_id, vm_name = names[kind][vm]
        request_id, request_name, _ = names["requests"][request]
        found.append(
            SpotPreemption(
                vm_id=UUID(vm_id),
                vm=vm_name,
                request_id=UUID(request_id),
                request=request_name,
                tenant=names["tenants"][tenant_of[request]][1],
            )
        )
    return tuple(found)
