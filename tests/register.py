"""A register center for a test, and builders with defaults: a test says only what matters.

The fixtures `register_url`, `register` and `raw` are offered to every test by
``tests/conftest.py``; a test that asks for one runs on SQLite and on PostgreSQL.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_DNS, UUID, uuid5

import pytest

from registry import Registry, upgrade
from registry.catalogue import VmType
from registry.db.packed_json import pack_json
from registry.hosts import DomainReport, Host, HostReport, NewHost, UriPolicy
from registry.requests import Request, WaitingStatus
from registry.rounds import CONTROL_LEASE, CommittedRound, Lease, Placement, RoundCommit
from registry.tasks import Build
from registry.tenancy import Tenant
from tests.raw_sql import RawSql, raw_sql
from tests.servers.postgres import TEMPLATE, PostgresServer, as_run_role

ACTOR = "test"
#: what tests register: nothing connects to it
TEST_URIS = UriPolicy(
    schemes=frozenset({"test", "qemu", "qemu+tcp", "qemu+unix", "test+unix"}),
    parameters=frozenset({"socket"}),
)


@pytest.fixture(scope="session")
def upgraded_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Upgrade once; each test gets a copy."""
    path = tmp_path_factory.mktemp("register") / "upgraded.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture(
    params=[
        pytest.param("sqlite", marks=pytest.mark.sqlite),
        pytest.param("postgresql", marks=pytest.mark.postgresql),
    ]
)
def register_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the URL of a fresh, upgraded register center, on each database in turn."""
    if request.param == "sqlite":
        path = request.getfixturevalue("tmp_path") / "fuga.db"
        shutil.copy(request.getfixturevalue("upgraded_database"), path)
        yield f"sqlite:///{path}"
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with server.database(template=TEMPLATE) as url:
        yield url


#: For a test of what no database can change, as of connections and pages: it runs once.
ON_ANY_DATABASE = pytest.mark.parametrize(
    "register_url", [pytest.param("sqlite", marks=pytest.mark.sqlite)], indirect=True
)


@pytest.fixture
def register(register_url: str) -> Iterator[Registry]:
    """Return a fresh, upgraded register center, open; on PostgreSQL as what processes log in as."""
    found = Registry.connect(as_run_role(register_url))
    yield found
    found.close()


@pytest.fixture
def raw(register_url: str) -> Iterator[RawSql]:
    """Return a connection around the code."""
    with raw_sql(register_url) as connection:
        yield connection


def now() -> datetime:
    """Return the time as the monitor would stamp it."""
    return datetime.now(UTC)


def add_host(
    registry: Registry,
    name: str = "h1",
    *,
    vcpus: int = 16,
    memory_mib: int = 32_768,
    disk_gib: int = 300,
    up: bool = True,
    **fields: Any,
) -> Host:
    """Register a host; with ``up`` the monitor has reached it and detected its capacity."""
    fields = {"uri": f"test+unix:///{name}", "domain_type": "test"} | fields
    host = registry.hosts.add(NewHost(name=name, **fields), actor=ACTOR, uri_policy=TEST_URIS)
    if not up:
        return host
    report = a_report(vcpus=vcpus, memory_mib=memory_mib, disk_gib=disk_gib, hostname=name)
    return registry.hosts.record_report(host.id, report)


def a_report(
    *domains: DomainReport,
    vcpus: int = 16,
    memory_mib: int = 32_768,
    disk_gib: int = 300,
    volumes: tuple[str, ...] = (),
    hostname: str = "h1",
    started_at: datetime | None = None,
) -> HostReport:
    """Return one look at a host, begun just now."""
    started_at = started_at if started_at is not None else now()
    return HostReport(
        hostname=hostname,
        detected={"vcpus": vcpus, "memory_mib": memory_mib, "disk_gib": disk_gib},
        cpu_busy_percent=3.0,
        memory_used_mib=1024,
        disk_used_gib=10,
        domains=domains,
        volumes=volumes,
        started_at=started_at,
        polled_at=started_at + timedelta(milliseconds=5),
        took_ms=5,
    )


def a_domain(build: Build, state: str = "running", **fields: Any) -> DomainReport:
    """Return the domain of a build as the monitor sees it."""
    defaults: dict[str, Any] = {
        "uuid": build.vm_id,
        "name": f"fuga-{build.vm_id}",
        "vcpus": build.resources["vcpus"],
        "memory_mib": build.resources["memory_mib"],
        "disk_gib": build.resources["disk_gib"],
        "assignment_id": build.claim.assignment_id,
        "generation": build.generation,
    }
    return DomainReport(state=state, **(defaults | fields))


def a_stranger(name: str = "other", state: str = "running", **fields: Any) -> DomainReport:
    """Return a domain that is not ours."""
    defaults: dict[str, Any] = {
        "uuid": uuid5(NAMESPACE_DNS, name),
        "name": name,
        "vcpus": 2,
        "memory_mib": 2048,
        "disk_gib": 20,
    }
    return DomainReport(state=state, **(defaults | fields))


def add_vm_type(registry: Registry, name: str = "small", **resources: int) -> VmType:
    """Add a VM type; by default the FUGA paper's ``small``."""
    amounts = {"vcpus": 1, "memory_mib": 3072, "disk_gib": 15} | resources
    return registry.vm_types.add(name, amounts, actor=ACTOR)


def add_tenant(registry: Registry, name: str = "a", weight: float = 1.0, **fields: Any) -> Tenant:
    """Add a tenant."""
    return registry.tenants.add(name, weight=weight, actor=ACTOR, **fields)


def add_group(registry: Registry, name: str, **fields: Any) -> Tenant:
    """Add a group of tenants."""
    return add_tenant(registry, name, is_group=True, **fields)


def add_request(registry: Registry, count: int = 1, **fields: Any) -> Request:
    """Make a request of tenant ``a`` for VMs of type ``small``."""
    fields = {"tenant": "a", "vm_type": "small", "actor": ACTOR} | fields
    return registry.requests.create(count=count, **fields)


def take_lease(registry: Registry, holder: str = "cc-1", length_s: float = 600) -> Lease:
    """Take the control centre's lease."""
    lease = registry.leases.acquire(CONTROL_LEASE, holder, length_s)
    assert lease is not None, "somebody else holds the control centre's lease"
    return lease


def a_commit(
    lease: Lease,
    placements: tuple[Placement, ...] = (),
    host_versions: Mapping[UUID, int] | None = None,
    waiting: Mapping[UUID, WaitingStatus] | None = None,
    **fields: Any,
) -> RoundCommit:
    """Return a round's commit with an unremarkable record."""
    defaults: dict[str, Any] = {
        "holder": lease.holder,
        "epoch": lease.epoch,
        "slot_start_at": now(),
        "slot_length_s": 5.0,
        "policy": "fuga",
        "decided_by": "policy",
        "fallback_reason": None,
        "parameters": {"eta": 5},
        "seed": 7,
        "engine_version": "0.1.0",
        "budget_units": 1000,
        "work": 10,
        "cut": False,
        "inputs": b"inputs",
        "inputs_digest": "sha256:0",
        "outcome": pack_json({"placed": [], "details": {}}),
        "shares": [{"tenant": "a", "share": 0.1}],
        "bound": 4.0,
        "fair_distance": 0.05,
        "timings": {"policy": 0.01},
    }
    return RoundCommit(
        placements=placements,
        host_versions=host_versions if host_versions is not None else {},
        waiting=waiting if waiting is not None else {},
        **(defaults | fields),
    )


def place(
    registry: Registry, request: Request, host: Host, count: int = 1, lease: Lease | None = None
) -> CommittedRound:
    """Commit a round that places VMs of a request on a host as it is now."""
    lease = lease if lease is not None else take_lease(registry)
    version = registry.hosts.get(host.name).version
    part = Placement(request_id=request.id, host_id=host.id, count=count)
    return registry.rounds.commit_round(a_commit(lease, (part,), {host.id: version}))


def a_cluster(registry: Registry, hosts: int = 1) -> tuple[Host, ...]:
    """Add hosts h1, h2, …, the type ``small`` and the tenants ``a`` and ``b``."""
    add_vm_type(registry)
    add_tenant(registry, "a")
    add_tenant(registry, "b")
    return tuple(add_host(registry, f"h{number}") for number in range(1, hosts + 1))


def start_vm(registry: Registry, assignment_id: UUID, owner: str = "w1") -> Build:
    """Do what a worker does until the domain is started, paused."""
    build = registry.assignments.claim_build(assignment_id, owner, 60)
    assert build is not None, f"assignment {assignment_id} cannot be claimed"
    registry.assignments.activate(build.claim)
    return build


def run_vm(registry: Registry, assignment_id: UUID, owner: str = "w1") -> Build:
    """Do what a worker does when all goes well."""
    build = start_vm(registry, assignment_id, owner)
    registry.assignments.mark_running(build.claim)
    return build


def running(registry: Registry, host: Host, **fields: Any) -> Build:
    """Return the build of a VM that was asked for, placed on this host, and runs."""
    (key,) = place(registry, add_request(registry, **fields), host).assignment_ids
    return run_vm(registry, key)


def remove_vm(registry: Registry, assignment_id: UUID, owner: str = "w1") -> None:
    """Do what a worker does to remove a VM, or to prove a failed build absent."""
    removal = registry.assignments.claim_removal(assignment_id, owner, 60)
    assert removal is not None, f"assignment {assignment_id} cannot be claimed for removal"
    registry.assignments.release(removal.claim)
