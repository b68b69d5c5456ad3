"""Obstacles to the move of a VM: its state, both hosts, its rules and network, and room."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final, TypeAlias
from uuid import UUID

from sqlalchemy import Connection, Row, Select, and_, func, select

from registry.db.schema import (
    assignment_resources,
    assignments,
    hosts,
    inventories,
    is_place,
    request_images,
    requests,
    tenants,
    unreleased,
    vms,
    volumes,
)
from registry.images.host_copies import pairs_without_room
from registry.lifecycle import AssignmentState, HostAdmin, HostHealth, VmDesired, VmObserved
from registry.networks.addresses import read_guest_network
from registry.records.moves import MoveObstacle
from registry.requests.rules import memberships, rules_allow, rules_of
from registry.rounds.rule_violations import drop_rule_violations

#: An obstacle to a move, with its description.
FoundObstacle: TypeAlias = tuple[MoveObstacle, str]


#: A tenant's label on its VM: `moves=never`, or `moves=cold` for one that moves while it is off.
MOVES_LABEL: Final = "moves"


#: The domain type that cannot copy disks: libvirt's test driver.
CANNOT_COPY: Final = "test"


#: VMs with their places, with the columns that the checks of moves need.
HERE: Final[Select[Any]] = (
    select(
        vms.c.id,
        vms.c.name,
        vms.c.request_id,
        vms.c.tenant_id,
        vms.c.generation,
        vms.c.desired,
        vms.c.observed,
        vms.c.labels,
        tenants.c.name.label("tenant"),
        requests.c.vm_type_id,
        request_images.c.image_id,
        assignments.c.id.label("assignment_id"),
        assignments.c.state,
        assignments.c.round,
        assignments.c.host_id,
        func.coalesce(assignments.c.disk_of, assignments.c.id).label("disk_of"),
        func.coalesce(assignments.c.disk_generation, assignments.c.generation).label(
            "disk_generation"
        ),
    )
    .select_from(vms)
    .join(tenants, tenants.c.id == vms.c.tenant_id)
    .join(requests, requests.c.id == vms.c.request_id)
    .outerjoin(request_images, request_images.c.request_id == vms.c.request_id)
    .outerjoin(assignments, and_(assignments.c.vm_id == vms.c.id, is_place))
)


def move_obstacles(
    connection: Connection,
    vm: Row[Any],
    there: UUID,
    *,
    only_cold: bool,
    following: Collection[UUID],
) -> Iterator[FoundObstacle]:
    """Yield the obstacles to a move: of the VM, of both hosts, of rules and of room."""
    yield from obstacles_to_any_move(connection, vm, only_cold=only_cold)
    yield from _host_obstacles(connection, vm, there)
    yield from rule_obstacles(connection, vm, there, leaving={vm.host_id}, following=following)
    yield from _room_obstacles(connection, vm, there)


def obstacles_to_any_move(
    connection: Connection, vm: Row[Any], *, only_cold: bool
) -> Iterator[FoundObstacle]:
    """Yield the obstacles to any move of a VM, which is a row of `HERE`."""
    if vm.desired == VmDesired.DELETED.value:
        yield MoveObstacle.DELETED, "it is deleted"
    seen = (VmObserved.RUNNING.value, VmObserved.STOPPED.value)
    if vm.state != AssignmentState.ACTIVE.value or vm.observed not in seen:
        what = "it has no place" if vm.state is None else f"its place is {vm.state}"
        yield MoveObstacle.NOT_BUILT, f"{what}, and it is {vm.observed}"
    runs = vm.observed == VmObserved.RUNNING.value
    wanted = vm.labels.get(MOVES_LABEL)
    if wanted == "never" or (wanted == "cold" and runs):
        yield MoveObstacle.LABEL, f"its tenant says {MOVES_LABEL}={wanted}"
    if only_cold and runs:
        yield MoveObstacle.RUNS, "it runs: stop it first, or move it live"
    other_states = select(assignments.c.state).where(
        assignments.c.vm_id == vm.id, unreleased, assignments.c.id != vm.assignment_id
    )
    for state in connection.scalars(other_states):
        if state == AssignmentState.ARRIVING.value:
            yield MoveObstacle.MOVES_ALREADY, "it is moving already"
        else:
            yield MoveObstacle.LEFT_BEHIND, "what it left on another host is not gone yet"
    held = select(func.count()).select_from(volumes).where(volumes.c.vm_id == vm.id)
    if number := connection.execute(held).scalar_one():
        what = "1 volume" if number == 1 else f"{number} volumes"
        yield MoveObstacle.LOCAL_VOLUME, f"it has {what}, which cannot move: detach them first"
    yield from _endpoint_obstacles(
        connection.execute(select(hosts).where(hosts.c.id == vm.host_id)).one()
    )


def _endpoint_obstacles(host: Row[Any]) -> Iterator[FoundObstacle]:
    """Yield the obstacles to a move on its source or destination host."""
    if host.health != HostHealth.UP.value:
        yield MoveObstacle.HOST_SILENT, f"host {host.name} is {host.health}"
    if host.found_machine_uuid is not None:
        yield MoveObstacle.HOST_SILENT, f"another machine answers as host {host.name}"
    if host.pool_silent_since is not None:
        yield MoveObstacle.SILENT_POOL, f"the storage of host {host.name} does not answer"
    if host.domain_type == CANNOT_COPY:
        yield MoveObstacle.HYPERVISOR, "libvirt's test driver moves no guests"


def _host_obstacles(connection: Connection, vm: Row[Any], there: UUID) -> Iterator[FoundObstacle]:
    """Yield the obstacles to a move from the states of both hosts."""
    if vm.host_id == there:
        yield MoveObstacle.SAME_HOST, "it is on that host"
    found = connection.execute(select(hosts).where(hosts.c.id.in_([vm.host_id, there])))
    ends = {row.id: row for row in found}
    here, to = ends[vm.host_id], ends[there]
    yield from _endpoint_obstacles(to)
    if to.admin != HostAdmin.ACTIVE.value:
        yield MoveObstacle.HOST_CLOSED, f"host {to.name} is {to.admin}"
    if to.same_machine_as is not None:
        yield MoveObstacle.HOST_CLOSED, f"host {to.name} is the machine of another host"
    if here.same_machine_as == to.id:
        yield MoveObstacle.SAME_HOST, f"hosts {here.name} and {to.name} are one machine"
    if here.domain_type != to.domain_type:
        which = f"{here.name} runs {here.domain_type}, {to.name} {to.domain_type}"
        yield MoveObstacle.HYPERVISOR, which


def rule_obstacles(
    connection: Connection,
    vm: Row[Any],
    there: UUID,
    *,
    leaving: Collection[UUID],
    following: Collection[UUID],
) -> Iterator[FoundObstacle]:
    """Yield the obstacles to a move from the VM's request, groups and network.

    The groups are locked. See `drop_rule_violations` for ``leaving`` and ``following``.
    """
    request = connection.execute(select(requests).where(requests.c.id == vm.request_id)).one()
    to = connection.execute(select(hosts.c.name, hosts.c.labels).where(hosts.c.id == there)).one()
    rules = rules_of(request, memberships(connection, [request.id]).get(request.id, {}))
    if not rules_allow(rules, request.requires, request.hosts, host=to.name, labels=to.labels):
        yield MoveObstacle.NOT_ALLOWED, f"its request may not use host {to.name}"
    kept, _ = drop_rule_violations(
        connection, [(vm, there)], leaving=[leaving], following=following
    )
    if not kept:
        yield MoveObstacle.GROUP, f"its group or its spread forbids host {to.name}"
    if read_guest_network(connection, vm.id, there) is None:
        yield MoveObstacle.NO_NETWORK, f"host {to.name} does not have its network"


def _room_obstacles(connection: Connection, vm: Row[Any], there: UUID) -> Iterator[FoundObstacle]:
    """Yield an obstacle to a move if the destination lacks room for the VM or its image."""
    short = (
        select(inventories.c.resource, assignment_resources.c.amount, inventories.c.capacity)
        .add_columns(inventories.c.committed, hosts.c.name)
        .select_from(assignment_resources)
        .join(inventories, inventories.c.resource == assignment_resources.c.resource)
        .join(hosts, hosts.c.id == inventories.c.host_id)
        .where(
            assignment_resources.c.assignment_id == vm.assignment_id,
            inventories.c.host_id == there,
            inventories.c.committed + assignment_resources.c.amount > inventories.c.capacity,
        )
        .order_by(inventories.c.resource)
    )
    for row in connection.execute(short):
        free = max(0, row.capacity - row.committed)
        what = f"{row.amount} {row.resource} and host {row.name} has {free} free"
        yield MoveObstacle.NO_ROOM, f"it needs {what}"
    amounts = {vm.vm_type_id: assignment_amounts(connection, vm.assignment_id)}
    if vm.image_id is not None and pairs_without_room(connection, [(vm, there)], amounts):
        yield MoveObstacle.NO_ROOM_FOR_IMAGE, "its image does not fit on that host as well"


def assignment_amounts(connection: Connection, assignment_id: UUID) -> dict[str, int]:
    """Return the amounts of capacity that an assignment holds, by resource."""
    query = select(assignment_resources.c.resource, assignment_resources.c.amount).where(
        assignment_resources.c.assignment_id == assignment_id
    )
    return {row.resource: row.amount for row in connection.execute(query)}
