"""A scheduler that takes one VM after another: what rounds are compared with.

A plain loop over a plain connection, as quick as one VM at a time can be: prepared
statements, nothing weighed but which host has least room to spare, no record of why.
It writes what a commit writes for a VM, under the same locks and triggers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

import numpy as np
import psycopg
from psycopg.types.json import Jsonb

from benchmarks.placement.phases import Meter, PhaseSeconds
from benchmarks.registered import RESOURCES, connected
from registry.db import uuid7
from registry.rounds import Lease

Chooser = Callable[[psycopg.Connection[Any], dict[str, int]], UUID]

_WAITING: Final = """
    SELECT v.id, v.request_id, v.tenant_id, t.name, r.vm_type_id
    FROM vms v JOIN requests r ON r.id = v.request_id JOIN tenants t ON t.id = v.tenant_id
    WHERE r.state IN ('pending', 'partly_placed') AND v.desired = 'running'
      AND v.observed = 'absent'
      AND NOT EXISTS (SELECT FROM assignments a WHERE a.vm_id = v.id AND a.state <> 'released')
    ORDER BY v.id LIMIT %s"""
_BEST_FIT: Final = """
    SELECT h.id
    FROM hosts h
    JOIN inventories c ON c.host_id = h.id AND c.resource = 'vcpus'
    JOIN inventories m ON m.host_id = h.id AND m.resource = 'memory_mib'
    JOIN inventories d ON d.host_id = h.id AND d.resource = 'disk_gib'
    WHERE h.admin = 'active' AND h.health = 'up'
      AND c.capacity - c.committed >= %s AND m.capacity - m.committed >= %s
      AND d.capacity - d.committed >= %s
    ORDER BY c.capacity - c.committed, m.capacity - m.committed, h.id LIMIT 1"""
_LEASE: Final = """
    SELECT 1 FROM leases
    WHERE name = %s AND holder = %s AND epoch = %s AND expires_at > clock_timestamp() FOR SHARE"""


def place_one_by_one(
    url: str, lease: Lease, vms: int, meter: Meter, *, by_query: bool
) -> PhaseSeconds:
    """Place VMs one by one; return the seconds of each phase.

    The host of each is chosen by a query, as several such schedulers at once would
    have to, or among hosts that are known beforehand.
    """
    with connected(url) as connection:
        waiting = connection.execute(_WAITING, (vms,)).fetchall()
        assert len(waiting) == vms
        amounts = _amounts(connection)
        choose = _by_query if by_query else _InMemory(connection)
        connection.commit()
        with meter.measuring("commit"):
            for vm in waiting:
                _place(connection, lease, vm, amounts[vm[4]], choose)
    return meter.taken["commit"]


def _amounts(connection: psycopg.Connection[Any]) -> dict[UUID, dict[str, int]]:
    found: dict[UUID, dict[str, int]] = {}
    query = "SELECT vm_type_id, resource, amount FROM vm_type_resources"
    for vm_type, resource, amount in connection.execute(query):
        found.setdefault(vm_type, {})[resource] = amount
    return found


def _by_query(connection: psycopg.Connection[Any], amounts: dict[str, int]) -> UUID:
    wanted = [amounts[resource] for resource in RESOURCES]
    row = connection.execute(_BEST_FIT, wanted, prepare=True).fetchone()
    assert row is not None
    host_id: UUID = row[0]
    return host_id


class _InMemory:
    """The free amounts of every host in memory, as no other scheduler places VMs."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        free: dict[UUID, dict[str, int]] = {}
        query = "SELECT host_id, resource, capacity - committed FROM inventories"
        for host_id, resource, amount in connection.execute(query):
            free.setdefault(host_id, {})[resource] = amount
        self._hosts = list(free)
        self._free = np.array([[each[name] for name in RESOURCES] for each in free.values()])

    def __call__(self, connection: psycopg.Connection[Any], amounts: dict[str, int]) -> UUID:
        wanted = np.array([amounts[resource] for resource in RESOURCES])
        fits = np.flatnonzero((self._free >= wanted).all(axis=1))
        best = fits[np.lexsort(self._free[fits, 1::-1].T)[0]]
        self._free[best] -= wanted
        return self._hosts[best]


def _place(
    connection: psycopg.Connection[Any],
    lease: Lease,
    vm: tuple[UUID, UUID, UUID, str, UUID],
    amounts: dict[str, int],
    choose: Chooser,
) -> None:
    vm_id, request_id, tenant_id, tenant, _ = vm
    run = connection.execute
    held = run(_LEASE, (lease.name, lease.holder, lease.epoch), prepare=True).fetchone()
    assert held is not None
    host_id = choose(connection, amounts)
    run("SELECT name FROM hosts WHERE id = %s FOR NO KEY UPDATE", (host_id,), prepare=True)
    run("SELECT 1 FROM vms WHERE id = %s FOR NO KEY UPDATE", (vm_id,), prepare=True)
    key = uuid7()
    run(
        "INSERT INTO assignments (id, vm_id, host_id, tenant_id, round, generation, state,"
        " created_at) VALUES (%s, %s, %s, %s, 1, 1, 'reserved', clock_timestamp())",
        (key, vm_id, host_id, tenant_id),
        prepare=True,
    )
    run(
        "INSERT INTO assignment_resources (assignment_id, resource, host_id, amount)"
        " SELECT %s, resource, %s, amount FROM unnest(%s::text[], %s::bigint[])"
        " AS given (resource, amount)",
        (key, host_id, list(amounts), list(amounts.values())),
        prepare=True,
    )
    run("UPDATE vms SET generation = generation + 1 WHERE id = %s", (vm_id,), prepare=True)
    run(
        "INSERT INTO events (at, actor, kind, subject_type, subject_id, tenant, to_state, data)"
        " VALUES (clock_timestamp(), 'control', 'assignment_state', 'assignment', %s, %s,"
        " 'reserved', %s)",
        (str(key), tenant, Jsonb({"vm": str(vm_id), "host": str(host_id)})),
        prepare=True,
    )
    run(
        "UPDATE requests SET state = 'partly_placed', updated_at = clock_timestamp()"
        " WHERE id = %s AND state = 'pending'",
        (request_id,),
        prepare=True,
    )
    connection.commit()
