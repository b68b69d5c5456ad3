"""The grounds on which a host's contract is tested."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pytest

from hypervisor import (
    DomainSpec,
    HostConnection,
    HostDomain,
    Mark,
    domain_name,
    seed_name,
    volume_name,
)
from lab.cluster import LabHost
from tests.fakes.hypervisor import FakeHypervisor
from tests.servers.lab_hosts import LabCluster, driver_hosts, lab_cluster

__all__ = ["driver_hosts", "lab_cluster"]

DEADLINE_S = 60.0


@dataclass
class Ground:
    """A host under test, and how a VM on it is asked for."""

    name: str
    host: HostConnection | FakeHypervisor
    domain_type: str
    pool: str
    base_volume: str | None
    made: list[DomainSpec] = field(default_factory=list)

    def spec(self, *, of: DomainSpec | None = None, generation: int = 1) -> DomainSpec:
        """A new VM; or, given ``of``, another attempt at that one."""
        vm_id = of.mark.vm_id if of else str(uuid.uuid4())
        assignment_id = str(uuid.uuid4())
        spec = DomainSpec(
            mark=Mark(
                vm_id=vm_id, assignment_id=assignment_id, generation=generation, tenant="a", round=7
            ),
            name=domain_name(vm_id),
            domain_type=self.domain_type,
            vcpus=1,
            memory_mib=96,
            pool=self.pool,
            volume=volume_name(assignment_id),
            network="default",
        )
        self.made.append(spec)
        return spec

    def next_generation(self, spec: DomainSpec) -> DomainSpec:
        again = replace(spec, mark=replace(spec.mark, generation=spec.mark.generation + 1))
        self.made.append(again)
        return again

    def create_volume(self, spec: DomainSpec, capacity_gib: int = 5) -> None:
        self.host.create_overlay(
            pool=self.pool,
            name=spec.volume,
            base_volume=self.base_volume,
            capacity_gib=capacity_gib,
        )

    def define(self, spec: DomainSpec) -> None:
        self.create_volume(spec)
        self.host.define(spec)

    def run(self, spec: DomainSpec) -> None:
        self.define(spec)
        self.host.start_paused(spec.mark.vm_id)
        self.host.resume(spec.mark.vm_id)

    def find(self, spec: DomainSpec) -> HostDomain:
        seen = self.host.find(spec.mark.vm_id)
        assert seen is not None
        return seen

    def remove(self, spec: DomainSpec, *, generation: int | None = None) -> bool:
        return self.host.remove(
            spec.mark.vm_id,
            assignment_id=spec.mark.assignment_id,
            generation=generation,
            pool=self.pool,
            volumes=(spec.volume, seed_name(spec.mark.assignment_id)),
        )

    def volumes(self) -> set[str]:
        return {volume.name for volume in self.host.report(self.pool).volumes}

    def empty(self) -> None:
        for spec in self.made:
            self.host.destroy(spec.mark.vm_id)
            self.host.undefine(spec.mark.vm_id)
            self.host.delete_volume(self.pool, spec.volume)
            self.host.delete_volume(self.pool, seed_name(spec.mark.assignment_id))


@pytest.fixture(
    params=[
        "fake",
        pytest.param("test_driver", marks=pytest.mark.test_driver),
        pytest.param("qemu", marks=pytest.mark.qemu),
    ]
)
def ground(
    request: pytest.FixtureRequest,
    lab_cluster: Callable[[int], LabCluster],
    driver_hosts: Callable[[int], list[LabHost]],
) -> Iterator[Ground]:
    """A host of each kind, left as it was found."""
    if request.param == "fake":
        yield Ground("fake", FakeHypervisor(), "qemu", "default", "base.qcow2")
        return
    host = lab_cluster(1).hosts[0] if request.param == "qemu" else driver_hosts(1)[0]
    with HostConnection(host.uri, deadline_s=DEADLINE_S) as connection:
        made = Ground(request.param, connection, host.domain_type, host.pool, host.base_volume)
        yield made
        made.empty()
