"""The cluster view for the choice of a move's destination: the VM as a request of its own.

So a policy chooses its destination by the rules for new VMs. Its present
place stays committed, as it does during the move. The VMs of its groups
and zones are counted without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, or_, select

from registry.catalogue.resources import resource_names
from registry.db.clock import db_now
from registry.db.schema import hosts, tenants, vms
from registry.errors import MoveRefusedError, NotFoundError
from registry.moves.obstacles import CANNOT_COPY, HERE, assignment_amounts, obstacles_to_any_move
from registry.records.cluster import ClusterView, HostView, RequestView, SpotView, TenantView
from registry.requests.rules import zone_of
from registry.rounds.cluster_view import request_of_vm, room_freed_by_plans
from registry.rounds.group_views import vm_group_views
from registry.rounds.known_hosts import KnownHosts
from registry.rounds.reserved_room import reserved_view
from registry.rounds.spot import read_kept_room


def cluster_for_move(connection: Connection, vm_id: UUID, *, only_cold: bool) -> ClusterView:
    """Return the cluster with a single request for one VM, which avoids the VM's present host.

    Quotas do not apply, as a move needs no more than the tenant holds. Room that
    is freed or kept for waiting requests is listed, spot VMs are not.

    Raises
    ------
    NotFoundError
        If there is no such VM.
    MoveRefusedError
        If the VM cannot move to any host.
    """
    vm = connection.execute(HERE.where(vms.c.id == vm_id)).one_or_none()
    if vm is None:
        raise NotFoundError("VM", vm_id)
    for obstacle, detail in obstacles_to_any_move(connection, vm, only_cold=only_cold):
        raise MoveRefusedError(vm.name, obstacle.value, detail)
    axis, now = resource_names(connection), db_now(connection)
    # Reserved room counts as committed, as in rounds.
    _, found = reserved_view(connection, axis, now, KnownHosts().read(connection, axis, now))
    request = request_of_vm(connection, axis, now, [host.id for host in found], vm_id)
    return ClusterView(
        epoch=0,
        now=now,
        resources=axis,
        hosts=found,
        tenants=(_tenant_view(connection, vm.tenant_id, len(axis)),),
        requests=(_request_of_moving_vm(connection, vm, request, axis, found),),
        vm_groups=vm_group_views(connection, [request.id], leaving=vm.host_id),
        freed=room_freed_by_plans(connection, axis),
        spot=SpotView(vms=(), kept=read_kept_room(connection, now)),
    )


def _tenant_view(connection: Connection, tenant_id: UUID, width: int) -> TenantView:
    """Return a moving VM's tenant as a round sees it, with nothing held."""
    row = connection.execute(select(tenants).where(tenants.c.id == tenant_id)).one()
    return TenantView(id=row.id, name=row.name, weight=row.weight, held=(0,) * width)


def _request_of_moving_vm(
    connection: Connection,
    vm: Row[Any],
    request: RequestView,
    axis: Sequence[str],
    found: Sequence[HostView],
) -> RequestView:
    """Return the request of a moving VM for its held amounts, on any host but its present one."""
    here = next(host for host in found if host.id == vm.host_id)
    held = assignment_amounts(connection, vm.assignment_id)
    spread = request.spread
    if spread is not None:
        own = zone_of(here.labels)
        placed = tuple((zone, count - (zone == own)) for zone, count in spread.placed)
        spread = replace(spread, placed=placed)
    unlike = _incompatible_hosts(connection, vm.host_id)
    return replace(
        request,
        demand=tuple(held.get(name, 0) for name in axis),
        min_count=1,
        avoid=tuple(sorted({*request.avoid, *unlike, vm.host_id})),
        spread=spread,
    )


def _incompatible_hosts(connection: Connection, host_id: UUID) -> Sequence[UUID]:
    """Return hosts with another hypervisor, to which no guest of this host can move."""
    own = select(hosts.c.domain_type).where(hosts.c.id == host_id).scalar_subquery()
    other = or_(hosts.c.domain_type != own, hosts.c.domain_type == CANNOT_COPY)
    return connection.scalars(select(hosts.c.id).where(other)).all()
