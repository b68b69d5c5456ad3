"""Which spot VMs a stored round ended, and for whom, by name."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from uuid import UUID

from registry.rounds import StoredDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldEnding:
    """A spot VM that a round ended, and for which request."""

    vm_id: UUID
    vm: str
    request_id: UUID
    request: str
    tenant: str  #: whose request it is


def told_endings(stored: StoredDecision) -> tuple[ToldEnding, ...]:
    """Return what a stored round tells; its inputs, which have the names, are read if it does."""
    told = stored.outcome["details"].get("spot")
    if not told or not told["ends"]:
        return ()
    inputs = json.loads(zlib.decompress(stored.inputs))
    names, tenant_of = inputs["names"], inputs["snapshot"]["tenant"]
    found = []
    for vm, request in told["ends"]:
        vm_id, vm_name = names["spot"][vm]
        request_id, request_name, _ = names["requests"][request]
        found.append(
            ToldEnding(
                vm_id=UUID(vm_id),
                vm=vm_name,
                request_id=UUID(request_id),
                request=request_name,
                tenant=names["tenants"][tenant_of[request]][1],
            )
        )
    return tuple(found)
