"""Counts of VMs and requests, in an answer whose size does not grow with them."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, Integer, Select, and_, cast, false, func, select

from registry.db.schema import assignments, hosts, is_place, requests, vm_types, vms
from registry.ledger.known_states import IS_UNKNOWN
from registry.lifecycle import OUT_OF_REACH, RequestState, VmState
from registry.records.requests import Counts, RequestCount, VmCount
from registry.tenancy.tree import key_query

_LIVE: Final = tuple(
    each.value for each in (RequestState.PENDING, RequestState.PARTLY_PLACED, RequestState.PLACED)
)
_PLACED: Final = assignments.c.id.is_not(None).label("placed")


#: How many VMs of each request are alike: of 100,000 VMs there are fewer requests.
_ALIKE: Final = (
    select(vms.c.request_id, vms.c.borrowed, vms.c.observed, _PLACED, func.count().label("number"))
    .select_from(vms)
    .outerjoin(assignments, and_(assignments.c.vm_id == vms.c.id, is_place))
    .where(vms.c.deleted_at.is_(None))
    .group_by(vms.c.request_id, vms.c.borrowed, vms.c.observed, _PLACED)
)
_UNKNOWN: Final = func.coalesce(IS_UNKNOWN, False).label("unknown")
#: Where hosts do not answer, their VMs are counted separately.
_ALIKE_AND_HEARD: Final = (
    _ALIKE.add_columns(_UNKNOWN)
    .outerjoin(hosts, hosts.c.id == assignments.c.host_id)
    .group_by(_UNKNOWN)
)
_ANY_SILENT: Final = select(hosts.c.id).where(hosts.c.health.in_(OUT_OF_REACH)).limit(1)
_REQUESTS: Final = (
    select(requests.c.state, func.count().label("number"))
    .where(requests.c.state.in_(_LIVE))
    .group_by(requests.c.state)
    .order_by(requests.c.state)
)


def count_vms_and_requests(connection: Connection, tenant: str | None) -> Counts:
    """Return the present counts of VMs and requests, of a tenant or of all."""
    silent = connection.execute(_ANY_SILENT).first() is not None
    in_vms: Select[Any] = (
        _ALIKE_AND_HEARD if silent else _ALIKE.add_columns(false().label("unknown"))
    )
    in_requests: Select[Any] = _REQUESTS
    if tenant is not None:
        in_vms = in_vms.where(vms.c.tenant_id == key_query(tenant))
        in_requests = in_requests.where(requests.c.tenant_id == key_query(tenant))
    return Counts(
        vms=tuple(
            VmCount(
                vm_type=row.vm_type,
                spot=row.spot,
                borrowed=row.borrowed,
                state=VmState.UNKNOWN if row.unknown else VmState(row.observed),
                placed=row.placed,
                count=row.number,
            )
            for row in connection.execute(_count_query(in_vms))
        ),
        requests=tuple(
            RequestCount(state=RequestState(row.state), count=row.number)
            for row in connection.execute(in_requests)
        ),
    )


def _count_query(in_vms: Select[Any]) -> Select[Any]:
    """Return the query that sums counts of VMs over requests of one type."""
    found = in_vms.subquery()
    by = (
        vm_types.c.name,
        requests.c.spot,
        found.c.borrowed,
        found.c.observed,
        found.c.unknown,
        found.c.placed,
    )
    return (
        select(
            vm_types.c.name.label("vm_type"),
            requests.c.spot,
            found.c.borrowed,
            found.c.observed,
            found.c.unknown,
            found.c.placed,
            cast(func.sum(found.c.number), Integer).label("number"),
        )
        .select_from(found)
        .join(requests, requests.c.id == found.c.request_id)
        .join(vm_types, vm_types.c.id == requests.c.vm_type_id)
        .group_by(*by)
        .order_by(*by)
    )
