"""Capacity of each class of hosts now, and how much of it is committed, used and waited for.

A class has all hosts with the same labels. Amounts are sums of the inventories, whose committed
amounts triggers keep, so no assignment is read.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, Text, and_, case, cast, func, select

from registry.catalogue.resources import demands, resource_names
from registry.db.schema import host_reports, hosts, inventories, requests, vms
from registry.ledger.placeable import is_waiting_vm
from registry.lifecycle import OPEN_REQUESTS, HostAdmin, HostHealth

#: Amounts by resource and measure.
Amounts = dict[tuple[str, str], int]

#: Nothing of a host counts whose machine is another host already.
_IS_OWN: Final = hosts.c.same_machine_as.is_(None)
_IS_UP: Final = and_(hosts.c.health == HostHealth.UP.value, _IS_OWN)
_IN_SERVICE: Final = and_(
    _IS_UP,
    hosts.c.admin == HostAdmin.ACTIVE.value,
    hosts.c.pool_silent_since.is_(None),
    hosts.c.found_machine_uuid.is_(None),
)
_LABELS: Final = cast(hosts.c.labels, Text).label("labels")


def _sum_if(condition: ColumnElement[bool], amount: ColumnElement[int]) -> ColumnElement[int]:
    return func.sum(case((condition, amount), else_=0))


_COMMITTED: Final[Select[Any]] = (
    select(
        _LABELS,
        inventories.c.resource,
        func.count().label("hosts"),
        _sum_if(_IS_OWN, inventories.c.capacity).label("capacity"),
        _sum_if(_IN_SERVICE, inventories.c.capacity).label("in_service"),
        func.sum(inventories.c.committed).label("committed"),
    )
    .select_from(hosts)
    .join(inventories, inventories.c.host_id == hosts.c.id)
    .where(hosts.c.admin != HostAdmin.RETIRED.value)
    .group_by("labels", inventories.c.resource)
)
_REPORT: Final = host_reports.c.report
_BUSY: Final = _REPORT["cpu_busy_percent"].as_float()
_USED: Final[Select[Any]] = (
    select(
        _LABELS,
        func.sum(_REPORT["detected", "vcpus"].as_integer() * _BUSY).label("busy_percent"),
        func.sum(_REPORT["memory_used_mib"].as_integer()).label("memory_mib"),
    )
    .select_from(hosts)
    .join(host_reports, host_reports.c.host_id == hosts.c.id)
    .where(hosts.c.admin != HostAdmin.RETIRED.value, _IS_UP)
    .group_by("labels")
)


@dataclass(slots=True)
class ClassSample:
    """The amounts of a class of hosts at one moment."""

    hosts: int = 0
    amounts: Amounts = field(default_factory=dict)


def read_classes(connection: Connection) -> Mapping[str, ClassSample]:
    """Return the amounts of each class of hosts by its labels, joined by commas."""
    found: defaultdict[str, ClassSample] = defaultdict(ClassSample)
    for row in connection.execute(_COMMITTED):
        sample = found[_class_key(row.labels)]
        sample.hosts = max(sample.hosts, row.hosts)
        for measure in ("capacity", "in_service", "committed"):
            sample.amounts[row.resource, measure] = int(row._mapping[measure])
    for row in connection.execute(_USED):
        sample = found[_class_key(row.labels)]
        if row.busy_percent is not None:
            sample.amounts["vcpus", "used"] = round(row.busy_percent / 100)
        if row.memory_mib is not None:
            sample.amounts["memory_mib", "used"] = int(row.memory_mib)
    return found


def read_site(connection: Connection, classes: Mapping[str, ClassSample]) -> Amounts:
    """Return the sums of all classes, and the demand of the VMs that wait for a host."""
    names = resource_names(connection)
    measures = ("capacity", "in_service", "committed", "waiting")
    found: Amounts = {(name, measure): 0 for name in names for measure in measures}
    for sample in classes.values():
        add_amounts(found, sample.amounts)
    waiting = (
        select(requests.c.vm_type_id, func.count())
        .select_from(vms)
        .join(requests, requests.c.id == vms.c.request_id)
        .where(requests.c.state.in_(OPEN_REQUESTS), is_waiting_vm())
        .group_by(requests.c.vm_type_id)
    )
    numbers = {row[0]: row[1] for row in connection.execute(waiting)}
    for vm_type_id, demand in demands(connection, numbers).items():
        for name, amount in demand.items():
            found[name, "waiting"] += amount * numbers[vm_type_id]
    return found


def add_amounts(to: Amounts, amounts: Amounts) -> None:
    """Add amounts to others in place."""
    for key, amount in amounts.items():
        to[key] = to.get(key, 0) + amount


def _class_key(labels: str) -> str:
    return ",".join(json.loads(labels))
