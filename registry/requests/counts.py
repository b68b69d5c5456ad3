"""How many VMs and requests there are: one row of an answer, however many of them."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, Select, and_, func, select

from registry.ground.schema import (
    assignments,
    hosts,
    is_place,
    requests,
    vm_types,
    vms,
)
from registry.ledger.known_states import IS_UNKNOWN
from registry.lifecycle import RequestState, VmState
from registry.records.requests import Counts, RequestCount, VmCount
from registry.tenancy.tree import key_of

_LIVE: Final = tuple(
    each.value for each in (RequestState.PENDING, RequestState.PARTLY_PLACED, RequestState.PLACED)
)
_UNKNOWN: Final = func.coalesce(IS_UNKNOWN, False).label("unknown")
_PLACED: Final = assignments.c.id.is_not(None).label("placed")
_VMS: Final = (
    select(
        vm_types.c.name.label("vm_type"),
        requests.c.spot,
        vms.c.observed,
        _UNKNOWN,
        _PLACED,
        func.count().label("number"),
    )
    .select_from(vms)
    .join(requests, requests.c.id == vms.c.request_id)
    .join(vm_types, vm_types.c.id == requests.c.vm_type_id)
    .outerjoin(assignments, and_(assignments.c.vm_id == vms.c.id, is_place))
    .outerjoin(hosts, hosts.c.id == assignments.c.host_id)
    .where(vms.c.deleted_at.is_(None))
    .group_by(vm_types.c.name, requests.c.spot, vms.c.observed, _UNKNOWN, _PLACED)
    .order_by(vm_types.c.name, requests.c.spot, vms.c.observed, _UNKNOWN, _PLACED)
)
_REQUESTS: Final = (
    select(requests.c.state, func.count().label("number"))
    .where(requests.c.state.in_(_LIVE))
    .group_by(requests.c.state)
    .order_by(requests.c.state)
)


def counts(connection: Connection, tenant: str | None) -> Counts:
    """Return what is there now, of a tenant or of all."""
    in_vms: Select[Any] = _VMS
    in_requests: Select[Any] = _REQUESTS
    if tenant is not None:
        in_vms = in_vms.where(vms.c.tenant_id == key_of(tenant))
        in_requests = in_requests.where(requests.c.tenant_id == key_of(tenant))
    return Counts(
        vms=tuple(
            VmCount(
                vm_type=row.vm_type,
                spot=row.spot,
                state=VmState.UNKNOWN if row.unknown else VmState(row.observed),
                placed=row.placed,
                count=row.number,
            )
            for row in connection.execute(in_vms)
        ),
        requests=tuple(
            RequestCount(state=RequestState(row.state), count=row.number)
            for row in connection.execute(in_requests)
        ),
    )
