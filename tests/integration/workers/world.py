"""A register center on SQLite, one host in memory, and as many workers as a test wants."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from hypervisor import DomainState, HostPoll, seed_name, volume_name
from monitor.translate import to_report
from registry import AssignmentState, Registry
from registry.hosts import HostAccess
from registry.images import ImageStore
from registry.requests import Vm
from tests.fakes.hypervisor import FakeHypervisor
from tests.register import add_host, add_request, add_tenant, add_vm_type, place
from workers import builds, removals
from workers.context import TaskOutcome, WorkerContext
from workers.host_limits import HostLimits

T = TypeVar("T")
URI = "qemu+tcp://h1.test/system"
#: Of workers that a test stops: long enough to work, short enough to wait for its end.
SHORT_LEASE_S = 0.05
LONG_LEASE_S = 60.0


class CrossableHost(FakeHypervisor):
    """Also calls something right after an operation did its work."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(URI, **settings)
        self._after: dict[str, Callable[[], None]] = {}

    def after(self, op: str, action: Callable[[], None]) -> None:
        self._after[op] = action

    def _do(self, op: str, subject: str, action: Callable[[], T]) -> T:
        result = super()._do(op, subject, action)
        after = self._after.pop(op, None)
        if after is not None:
            after()
        return result


class OneHost:
    """Lends the only host there is."""

    def __init__(self, host: FakeHypervisor) -> None:
        self._host = host

    @contextmanager
    def use(self, host: HostAccess) -> Iterator[FakeHypervisor]:
        assert host.uri == self._host.uri
        yield self._host


class KilledError(BaseException):
    """Stands for SIGKILL: no handler of the product catches it."""


class World:
    """Everything a crossing needs: place, build, delete, look."""

    def __init__(self, registry: Registry, **host_fields: Any) -> None:
        self.registry = registry
        self.host = CrossableHost()
        self.store = ImageStore(Path("no-images"), max_bytes=1 << 30)
        fields = {"domain_type": "qemu", "base_volume": "base.qcow2", "max_builds": 8}
        add_host(registry, "h1", **{"uri": URI} | fields | host_fields)
        add_vm_type(registry)
        add_tenant(registry)

    def report(self) -> None:
        """Let the monitor look at the host."""
        started_at = self.registry.now()
        self.report_of(self.host.report("default"), started_at)

    def report_of(self, seen: HostPoll, started_at: datetime) -> None:
        """Let the monitor write down a look that began then."""
        report = to_report(seen, started_at=started_at, polled_at=self.registry.now(), took_ms=1)
        self.registry.hosts.record_report(self.registry.hosts.get("h1").id, report)

    def request(self) -> UUID:
        """Ask for a small VM and place it; return the assignment."""
        return self.place(add_request(self.registry).id)

    def built(self) -> UUID:
        """Ask for a small VM, place it and let a worker build it; return the assignment."""
        assignment_id = self.request()
        assert builds.build_vm(assignment_id, self.worker()) == TaskOutcome.DONE
        return assignment_id

    def place(self, request_id: UUID) -> UUID:
        """Commit a round that places one VM of a request on the host."""
        request, host = self.registry.requests.get(request_id), self.registry.hosts.get("h1")
        [assignment_id] = place(self.registry, request, host).assignment_ids
        return assignment_id

    def worker(self, name: str = "w1", **changes: Any) -> WorkerContext:
        values: dict[str, Any] = {
            "registry": self.registry,
            "hosts": HostLimits(OneHost(self.host), max_threads=8, pause_s=0, wait_s=0),
            "store": self.store,
            "owner": name,
            "lease_s": LONG_LEASE_S,
            "checkpoint": lambda _: None,
        }
        return WorkerContext(**values | changes)

    def build(self, assignment_id: UUID, **changes: Any) -> TaskOutcome:
        """Let another worker build, as soon as the row lets it."""
        return self._as_soon_as_possible(builds.build_vm, assignment_id, **changes)

    def remove(self, assignment_id: UUID, **changes: Any) -> TaskOutcome:
        """Let another worker remove, as soon as the row lets it."""
        return self._as_soon_as_possible(removals.remove_assignment, assignment_id, **changes)

    def _as_soon_as_possible(
        self, work: Callable[[UUID, WorkerContext], TaskOutcome], subject: UUID, **changes: Any
    ) -> TaskOutcome:
        context = self.worker("another", **changes)
        return eventually(
            lambda: (outcome := work(subject, context)) != TaskOutcome.NOT_OURS and outcome
        )

    def delete_vm_of(self, assignment_id: UUID) -> None:
        self.registry.vms.delete(self.vm_of(assignment_id).id, actor="cli")

    def vm_of(self, assignment_id: UUID) -> Vm:
        for vm in self.registry.vms.list(include_deleted=True).items:
            if vm.assignment_id == assignment_id:
                return vm
        raise AssertionError(f"no VM has the assignment {assignment_id}")

    def state(self, assignment_id: UUID) -> AssignmentState | None:
        return self.registry.assignments.state(assignment_id)

    def committed(self) -> dict[str, int]:
        host = self.registry.hosts.get("h1")
        return {each.resource: each.committed for each in host.inventories}

    def assert_runs_once(self, assignment_id: UUID, *, starts: int = 1) -> None:
        """Only that assignment's domain and volume are there; it runs, started so many times."""
        [domain] = self.host.domains.values()
        assert domain.mark is not None
        assert domain.mark.assignment_id == str(assignment_id)
        assert domain.state is DomainState.RUNNING
        own = {volume_name(assignment_id), seed_name(assignment_id)}
        assert set(self.host.volumes) == {"base.qcow2"} | own
        assert self.host.started.count(domain.uuid) == starts
        assert self.state(assignment_id) == AssignmentState.ACTIVE
        assert self.vm_of(assignment_id).observed == "running"
        assert self.registry.check() == []

    def assert_nothing_is_left(self, assignment_id: UUID) -> None:
        """Host and ledger are as if nothing had been."""
        assert self.host.domains == {}
        assert set(self.host.volumes) == {"base.qcow2"}
        assert self.state(assignment_id) == AssignmentState.RELEASED
        assert set(self.committed().values()) == {0}
        assert self.registry.check() == []


def eventually(condition: Callable[[], T]) -> T:
    """Return what the condition returns once that is true."""
    deadline = time.monotonic() + 30
    while not (seen := condition()):
        assert time.monotonic() < deadline, f"after 30 s still {seen!r}"
        time.sleep(0.01)
    return seen
