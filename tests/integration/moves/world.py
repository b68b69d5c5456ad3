"""A register center, two hosts in memory, and workers that move VMs between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from hypervisor import DomainState, HostEndpoint
from monitor.translate import to_report
from registry import AssignmentState, Registry
from registry.hosts import HostAccess
from registry.images import ImageStore
from registry.moves import Move
from registry.requests import Vm
from tests.fakes.hypervisor import FakeHypervisor
from tests.fakes.movers import FakeMover, FakeMovers
from tests.raw_sql import raw_sql
from tests.register import ACTOR, add_host, add_request, add_tenant, add_vm_type, place, take_lease
from workers import builds, moves, removals
from workers.context import TaskOutcome, WorkerContext
from workers.host_limits import HostLimits

NAMES = ("h1", "h2", "h3")


def uri_of(name: str) -> str:
    return f"qemu+tcp://{name}.test/system"


class HostsInMemory:
    """Lends hosts by their addresses, and movers between them."""

    def __init__(self, hosts: dict[str, FakeHypervisor], movers: FakeMovers) -> None:
        self._hosts, self._movers = hosts, movers

    @contextmanager
    def use(self, host: HostAccess) -> Iterator[FakeHypervisor]:
        yield self._hosts[host.uri]

    @contextmanager
    def migrator(self, source: HostAccess, destination: HostAccess) -> Iterator[FakeMover]:
        with self._movers(HostEndpoint(source.uri), HostEndpoint(destination.uri)) as migrator:
            yield migrator


class MovingWorld:
    """Build a VM on h1; ask, move, look."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.hosts = {name: FakeHypervisor(uri_of(name)) for name in NAMES}
        for name, host in self.hosts.items():
            host.machine_uuid = str(uuid5(NAMESPACE_URL, uri_of(name)))
        by_uri = {uri_of(name): host for name, host in self.hosts.items()}
        self.movers = FakeMovers(by_uri)
        self._lent = HostsInMemory(by_uri, self.movers)
        for name in NAMES:
            add_host(
                registry,
                name,
                uri=uri_of(name),
                domain_type="qemu",
                base_volume="base.qcow2",
                max_builds=8,
            )
        add_vm_type(registry)
        add_tenant(registry)

    def worker(self, name: str = "w1", **changes: Any) -> WorkerContext:
        values: dict[str, Any] = {
            "registry": self.registry,
            "hosts": HostLimits(self._lent, max_threads=8, pause_s=0, wait_s=0),
            "store": ImageStore(Path("no-images"), max_bytes=1 << 30),
            "owner": name,
            "lease_s": 60.0,
            "checkpoint": lambda _: None,
        }
        return WorkerContext(**values | changes)

    def running(self, host: str = "h1", **asked: Any) -> Vm:
        """A VM that runs on a host."""
        request = add_request(self.registry, **asked)
        [key] = place(self.registry, request, self.registry.hosts.get(host)).assignment_ids
        assert builds.build_vm(key, self.worker()) == TaskOutcome.DONE
        return next(vm for vm in self.registry.vms.list(limit=500).items if vm.assignment_id == key)

    def stopped(self, host: str = "h1") -> Vm:
        """A VM that its tenant had, and that is off by now."""
        vm = self.running(host)
        fake = self.hosts[host]
        fake.domains[str(vm.id)] = replace(
            fake.domains[str(vm.id)], state=DomainState.STOPPED, run=None
        )
        self.report(host)
        return self.vm(vm)

    def ask(self, vm: Vm, host: str = "h2", **asked: Any) -> Move:
        return self.registry.moves.create(vm.id, host, reason="maintenance", actor=ACTOR, **asked)

    def asked_to_move(self) -> tuple[Vm, Move]:
        """A VM that runs on h1, and its move to h2, which nobody has begun."""
        vm = self.running()
        return vm, self.ask(vm)

    def move(self, asked: Move, name: str = "w1", **changes: Any) -> TaskOutcome:
        return moves.move_vm(asked.id, self.worker(name, **changes))

    def let_claim_end(self, asked: Move) -> None:
        """End the lease of the worker that has a move: another may take it over."""
        with raw_sql(self.registry.database_url) as raw:
            sql = "UPDATE moves SET lease_until = '2020-01-01 00:00:00.000000' WHERE id = ?"
            raw.run(sql, raw.key(asked.id))

    def sweep(self) -> None:
        """Do all that is due, as the control centre and its workers do."""
        work: dict[str, Callable[[UUID, WorkerContext], TaskOutcome]] = {
            "workers.move_vm": moves.move_vm,
            "workers.delete_vm": removals.remove_assignment,
            "workers.create_vm": builds.build_vm,
            "workers.remove_leftover": removals.remove_leftover,
        }
        for due in self.registry.assignments.send_due_tasks(resend_after_s=0):
            work[due.task](due.id, self.worker("sweeper"))

    def report(self, name: str) -> None:
        """Let the monitor look at a host."""
        started_at = self.registry.now()
        seen = self.hosts[name].report("default")
        report = to_report(seen, started_at=started_at, polled_at=self.registry.now(), took_ms=1)
        self.registry.hosts.record_report(self.registry.hosts.get(name).id, report)

    def vm(self, vm: Vm) -> Vm:
        return self.registry.vms.get(vm.id)

    def get(self, asked: Move) -> Move:
        return self.registry.moves.get(asked.id)

    def avoided(self) -> set[tuple[UUID, UUID]]:
        """Requests, and the hosts that they avoid."""
        lease = take_lease(self.registry)
        waiting = self.registry.rounds.read_cluster(lease).requests
        return {(each.id, host) for each in waiting for host in each.avoid}

    def committed(self) -> dict[str, int]:
        """VMs' worth of memory that each host has committed."""
        return {
            name: sum(
                each.committed
                for each in self.registry.hosts.get(name).inventories
                if each.resource == "memory_mib"
            )
            for name in NAMES
        }

    def runs(self, vm: Vm) -> list[str]:
        """Hosts on which the guest runs."""
        return [
            name
            for name, host in self.hosts.items()
            if (seen := host.domains.get(str(vm.id))) and seen.state is DomainState.RUNNING
        ]

    def assert_settled(self, vm: Vm, host: str, *, off: bool = False) -> None:
        """The VM is on that host and nowhere else, in the ledger and in truth; nothing is left."""
        self.sweep()
        found = self.vm(vm)
        assert (found.host, found.assignment_state) == (host, AssignmentState.ACTIVE)
        assert self.runs(vm) == ([] if off else [host])
        for name, fake in self.hosts.items():
            assert (str(vm.id) in fake.domains) == (name == host), name
            others = {each for each in fake.volumes if each != "base.qcow2"}
            assert all(str(found.assignment_id) in each for each in others), (name, others)
            assert bool(others) == (name == host), (name, others)
            assert self.committed()[name] == (3072 if name == host else 0), name
        assert self.registry.check() == []
