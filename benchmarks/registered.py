"""A register center on PostgreSQL full of hosts and running VMs, loaded in bulk.

The rows are those that the API, the control centre and the workers would have left,
and go in through the ledger's triggers: what is committed is their doing.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import numpy as np
import psycopg
from psycopg.types.json import Jsonb
from sqlalchemy import make_url

from benchmarks.placement.clusters import VM_TYPES, google_hosts, heavy_parts
from registry import Registry
from registry.db import uuid7
from tests.register import a_commit, a_report, add_host, add_tenant, add_vm_type, take_lease

RESOURCES: Final = ("vcpus", "memory_mib", "disk_gib")
#: Share of requests of each of `VM_TYPES`.
OFTEN: Final = (0.2, 0.25, 0.25, 0.2, 0.1)
NAMES: Final = ("tiny", "small", "medium", "large", "xlarge")
#: Of one VM of each type, as `RESOURCES`.
AMOUNTS: Final = np.column_stack(
    [VM_TYPES[:, 0], VM_TYPES[:, 1] * 1024, VM_TYPES[:, 0] * 15]
).astype(np.int64)
DISK_GIB: Final = 4_000
#: VMs of a request that runs, and of one that waits, on the average.
PER_REQUEST: Final = 5
HOSTS_PER_TENANT: Final = 14

_NODE: Final = """<node><cpu><mhz>2000</mhz><model>x86</model><active>8</active><nodes>1</nodes>
<sockets>1</sockets><cores>8</cores><threads>1</threads></cpu><memory>16777216</memory>
<pool type="dir"><name>default-pool</name><target><path>/default-pool</path></target></pool></node>
"""
#: Copies of the first host.
_HOSTS: Final = """
    INSERT INTO hosts SELECT (jsonb_populate_record(first, jsonb_build_object(
        'id', gen_random_uuid(), 'name', given.name, 'uri', given.uri))).*
    FROM hosts first, unnest(%s::text[], %s::text[]) AS given (name, uri)
"""
#: Copies of the first tenant.
_TENANTS: Final = """
    INSERT INTO tenants SELECT (jsonb_populate_record(first, jsonb_build_object(
        'id', gen_random_uuid(), 'name', given.name))).*
    FROM tenants first, unnest(%s::text[]) AS given (name)
"""
#: Of VMs that no round has placed yet.
_VOLUMES: Final = """
    INSERT INTO volumes (id, tenant_id, name, size_gib, state, bound_vm_id, created_by_request,
        due_at, changed_at, created_at)
    SELECT gen_random_uuid(), tenant_id, number || ' of ' || id, 1, 'unplaced', id, true, now(),
        now(), now()
    FROM vms, generate_series(1, %s) AS number
    WHERE NOT EXISTS (SELECT 1 FROM assignments WHERE vm_id = vms.id)
"""
_FILES: Final = """
    UPDATE volumes SET state = 'available', host_id = known.id
    FROM (SELECT id, row_number() OVER (ORDER BY id) - 1 AS number FROM hosts) known,
        (SELECT id, row_number() OVER (ORDER BY id) AS number FROM volumes
         WHERE state = 'unplaced') made
    WHERE volumes.id = made.id AND known.number = made.number % (SELECT count(*) FROM hosts)
"""
_INVENTORIES: Final = """
    INSERT INTO inventories (host_id, resource)
    SELECT hosts.id, resources.name FROM hosts, resources ON CONFLICT DO NOTHING
"""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The database that `load` filled."""

    url: str
    tenants: tuple[tuple[UUID, str], ...]
    types: tuple[UUID, ...]


def connected(url: str) -> psycopg.Connection[Any]:
    """Return a plain connection."""
    given = make_url(url).set(drivername="postgresql")
    return psycopg.connect(given.render_as_string(hide_password=False))


def load(
    url: str, *, hosts: int, running: int, larger: int = 1, tenants: int | None = None
) -> Loaded:
    """Fill an upgraded database with hosts that are up, and VMs that run on them.

    ``larger`` is by how much hosts are larger than Google's, which hold about eight VMs each.
    By default there is a tenant for each `HOSTS_PER_TENANT` hosts, and at least nine.
    """
    registry = Registry.connect(url)
    for name, amounts in zip(NAMES, AMOUNTS.tolist(), strict=True):
        add_vm_type(registry, name, **dict(zip(RESOURCES, amounts, strict=True)))
    names = [f"t{number:04}" for number in range(tenants or max(9, hosts // HOSTS_PER_TENANT))]
    add_tenant(registry, names[0])
    number = registry.rounds.commit_round(a_commit(take_lease(registry))).number
    registry.close()
    with connected(url) as connection:
        connection.execute(_TENANTS, [names[1:]])
        types = dict(connection.execute("SELECT name, id FROM vm_types").fetchall())
        rows = connection.execute("SELECT id, name FROM tenants ORDER BY name").fetchall()
        loaded = Loaded(url, tuple(rows), tuple(types[name] for name in NAMES))
        capacity = larger * _capacities(hosts)
        host_ids = _insert_hosts(connection, capacity)
        type_of, host_of = spread_vms(capacity, running)
        vms = _insert_requests(connection, loaded, type_of, state="placed")
        _insert_assignments(connection, loaded, vms, [host_ids[host] for host in host_of], number)
    tidy(url)
    return loaded


def tidy(url: str) -> None:
    """Vacuum the tables, as autovacuum does in a database in use."""
    with connected(url) as connection:
        connection.autocommit = True
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


def register_worlds(
    url: str, count: int, folder: Path, uri_of: Callable[[int], str] | None = None
) -> None:
    """Write hosts of libvirt's test driver into the register center, as if each had been added.

    ``uri_of`` is given the numbers from 1 on; by default each host is a file of ``folder``.
    """
    first = folder / "0.xml"
    first.write_text(_NODE)
    for number in range(1, count):
        os.link(first, folder / f"{number}.xml")
    registry = Registry.connect(url)
    add_host(registry, "h0", uri=f"test://{first}", pool="default-pool", up=False)
    registry.close()
    uri_of = uri_of or (lambda number: f"test://{folder}/{number}.xml")
    names = [f"h{number}" for number in range(1, count)]
    uris = [uri_of(number) for number in range(1, count)]
    with connected(url) as connection:
        connection.execute(_HOSTS, [names, uris])
        connection.execute(_INVENTORIES)


def analyze(loaded: Loaded) -> None:
    """Update the planner's statistics after a bulk load, as autovacuum does within a minute."""
    with connected(loaded.url) as connection:
        connection.autocommit = True
        connection.execute("ANALYZE")


def ask(loaded: Loaded, vms: int) -> None:
    """Insert requests of tenants for ``vms`` more VMs."""
    rng = np.random.default_rng(vms)
    with connected(loaded.url) as connection:
        type_of = np.sort(rng.choice(len(AMOUNTS), vms, p=OFTEN))
        _insert_requests(connection, loaded, type_of, state="pending")


def bring_volumes(loaded: Loaded, each: int, *, with_files: bool) -> None:
    """Bind so many volumes to each VM that waits, without files or with files on hosts in turn."""
    with connected(loaded.url) as connection:
        connection.execute(_VOLUMES, (each,))
        if with_files:
            connection.execute(_FILES)


def run_what_was_placed(loaded: Loaded) -> None:
    """Set placed VMs to running and every host to polled, in bulk instead of by workers."""
    with connected(loaded.url) as connection:
        connection.execute(
            "UPDATE assignments SET state = 'active', activated_at = now() WHERE state = 'reserved'"
        )
        connection.execute(
            "UPDATE vms SET observed = 'running' FROM assignments"
            " WHERE assignments.vm_id = vms.id AND observed = 'absent'"
        )
        connection.execute("UPDATE hosts SET last_polled_at = now()")
    with connected(loaded.url) as connection:
        connection.autocommit = True
        connection.execute("CHECKPOINT")


def _capacities(hosts: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    sizes = google_hosts(hosts)
    return np.column_stack([sizes[:, 0], sizes[:, 1] * 1024, np.full(hosts, DISK_GIB)])


def spread_vms(
    capacity: np.ndarray[Any, np.dtype[np.int64]], vms: int
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], list[int]]:
    """Return the type and host of ``vms`` VMs; the hosts take them in turn.

    Raises
    ------
    ValueError
        If the hosts have no room for so many.
    """
    rng = np.random.default_rng(4)
    free = capacity.copy()
    type_of: list[int] = []
    host_of: list[int] = []
    while len(host_of) < vms:
        drawn = rng.choice(len(AMOUNTS), len(free), p=OFTEN)
        fits = np.flatnonzero((free >= AMOUNTS[drawn]).all(axis=1))[: vms - len(host_of)]
        if not len(fits) and not (free[:, None] >= AMOUNTS).all(axis=2).any():
            raise ValueError(
                f"{vms} VMs do not fit on {len(free)} hosts: {len(host_of)} do; give more hosts"
            )
        free[fits] -= AMOUNTS[drawn[fits]]
        type_of += drawn[fits].tolist()
        host_of += fits.tolist()
    order = np.argsort(type_of, kind="stable")
    return np.array(type_of)[order], np.array(host_of)[order].tolist()


def _insert_hosts(
    connection: psycopg.Connection[Any], capacity: np.ndarray[Any, np.dtype[np.int64]]
) -> list[UUID]:
    now = datetime.now(UTC)
    keys = [uuid7() for _ in capacity]
    names = [f"h{number:06}" for number in range(len(keys))]
    _copy(
        connection,
        "hosts (id, name, uri, admin, health, labels, domain_type, pool, network, max_builds,"
        " last_polled_at, created_at)",
        (
            (key, name, f"qemu+tls://{name}/system", "active", "up", Jsonb([]), "kvm", "default",
             "default", 4, now, now)
            for key, name in zip(keys, names, strict=True)
        ),
    )  # fmt: skip
    _copy(
        connection,
        "inventories (host_id, resource, detected)",
        (
            (key, resource, amount)
            for key, amounts in zip(keys, capacity.tolist(), strict=True)
            for resource, amount in zip(RESOURCES, amounts, strict=True)
        ),
    )
    report = a_report()
    seen = json.loads(json.dumps(dataclasses.asdict(report), default=str))
    _copy(
        connection,
        "host_reports (host_id, report, polled_at)",
        ((key, Jsonb(seen), now) for key in keys),
    )
    return keys


def _insert_requests(
    connection: psycopg.Connection[Any],
    loaded: Loaded,
    type_of: np.ndarray[Any, np.dtype[np.int64]],
    *,
    state: str,
) -> list[tuple[UUID, UUID, str, int]]:
    """Insert requests for VMs of these types, and the VMs: id, tenant's id and name, type.

    Some tenants ask for much more than others, in requests of one type and about
    `PER_REQUEST` VMs.
    """
    now = datetime.now(UTC)
    rng = np.random.default_rng(len(type_of))
    shares = heavy_parts(rng, len(loaded.tenants))
    starts = np.union1d(
        np.flatnonzero(np.diff(type_of, prepend=-1)),
        np.flatnonzero(rng.random(len(type_of)) < 1 / PER_REQUEST),
    )
    ends = [*starts[1:].tolist(), len(type_of)]
    owners = rng.choice(len(loaded.tenants), len(starts), p=shares).tolist()
    observed, generation = ("running", 1) if state == "placed" else ("absent", 0)
    requests, vms, found = [], [], []
    for start, end, owner in zip(starts.tolist(), ends, owners, strict=True):
        tenant_id, tenant = loaded.tenants[owner]
        kind, key = int(type_of[start]), uuid7()
        name = f"r-{key.hex[-20:]}"
        requests.append(
            (key, name, tenant_id, loaded.types[kind], end - start, 1, Jsonb([]), state, now, now)
        )
        for index in range(end - start):
            vm = uuid7()
            found.append((vm, tenant_id, tenant, kind))
            vms.append(
                (vm, f"{name}-{index + 1}", key, tenant_id, "running", observed, generation, now)
            )
    _copy(
        connection,
        "requests (id, name, tenant_id, vm_type_id, count, min_count, requires, state, created_at,"
        " updated_at)",
        requests,
    )
    _copy(
        connection,
        "vms (id, name, request_id, tenant_id, desired, observed, generation, created_at)",
        vms,
    )
    _copy(
        connection,
        "interfaces (vm_id, mac)",
        (
            (vm[0], "02:" + ":".join(f"{byte:02x}" for byte in vm[0].bytes[-5:]))
            for vm in found
        ),
    )  # fmt: skip
    return found


def _insert_assignments(
    connection: psycopg.Connection[Any],
    loaded: Loaded,
    vms: Sequence[tuple[UUID, UUID, str, int]],
    host_ids: Sequence[UUID],
    number: int,
) -> None:
    now = datetime.now(UTC)
    keys = [uuid7() for _ in vms]
    _copy(
        connection,
        "assignments (id, vm_id, host_id, tenant_id, round, generation, state, created_at,"
        " activated_at)",
        (
            (key, vm, host_id, tenant_id, number, 1, "active", now, now)
            for key, (vm, tenant_id, _, _), host_id in zip(keys, vms, host_ids, strict=True)
        ),
    )
    _copy(
        connection,
        "assignment_resources (assignment_id, resource, host_id, amount)",
        (
            (key, resource, host_id, amount)
            for key, (_, _, _, kind), host_id in zip(keys, vms, host_ids, strict=True)
            for resource, amount in zip(RESOURCES, AMOUNTS[kind].tolist(), strict=True)
        ),
    )
    changes = ((None, None, "reserved"), ("reserved", "claimed", "creating"),
               ("creating", "started", "active"))  # fmt: skip
    _copy(
        connection,
        "events (at, actor, kind, subject_type, subject_id, tenant, from_state, event, to_state,"
        " data)",
        (
            (now, "control", "assignment_state", "assignment", str(key), tenant, *change,
             Jsonb({"vm": str(vm)}))
            for key, (vm, _, tenant, _) in zip(keys, vms, strict=True)
            for change in changes
        ),
    )  # fmt: skip


def _copy(connection: psycopg.Connection[Any], into: str, rows: Iterable[Sequence[Any]]) -> None:
    with connection.cursor().copy(f"COPY {into} FROM STDIN".encode()) as copy:
        for row in rows:
            copy.write_row(row)
