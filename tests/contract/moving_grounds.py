"""Two hosts between which moves are tested: in memory, and real ones."""

from __future__ import annotations

import re
import subprocess
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from hypervisor import (
    DomainSpec,
    DomainState,
    HostConnection,
    HostDomain,
    HostEndpoint,
    HostPairMigrator,
    MoveResult,
    MoveSpec,
    seed_name,
    volume_name,
)
from hypervisor.model import IMAGE_PREFIX
from tests.contract.conftest import DEADLINE_S, Ground
from tests.fakes.hypervisor import FakeHypervisor
from tests.fakes.movers import FakeMover, FakeMovers
from tests.servers.lab_guests import run_in_guest
from tests.servers.lab_hosts import LabCluster
from tests.servers.running import eventually

#: Where a lab host has its pool.
POOL_PATH = "/var/lib/libvirt/images"
#: So slow that a move takes some seconds, and things can happen meanwhile.
SLOW_MIB_S = 16
#: What a guest of the lab writes: how long it is up, five times a second.
_BEATING = "run (while :; do read u _ </proc/uptime; echo BEAT $u >/dev/console; sleep 0.2; done) &"
_BEAT = re.compile(r"BEAT (\d+\.\d+)")


@dataclass
class Grounds:
    """Two hosts; VMs are built at the source."""

    source: Ground
    destination: Ground
    ends: tuple[HostEndpoint, HostEndpoint]
    movers: Callable[..., HostPairMigrator | FakeMover]
    fakes: FakeMovers | None = None
    lab: LabCluster | None = None
    made: list[MoveSpec] = field(default_factory=list)
    images: list[tuple[Ground, str]] = field(default_factory=list)

    @property
    def real(self) -> bool:
        return self.fakes is None

    def running(self, *, seed: bool = False, of: DomainSpec | None = None) -> DomainSpec:
        """Build a VM, and wait until its guest is up."""
        spec = self.source.spec() if of is None else of
        if seed:
            spec = replace(spec, seed_volume=seed_name(spec.mark.assignment_id))
            self.source.host.put_volume(self.source.pool, str(spec.seed_volume), b"seed" * 1024)
        self.source.create_volume(spec, capacity_gib=1)
        self.source.host.define(spec)
        self.source.host.start_paused(spec.mark.vm_id, guard=spec.guard)
        self.source.host.resume(spec.mark.vm_id)
        eventually(lambda: b"LAB-GUEST-READY" in self.console(self.source, spec))
        return spec

    def off(self) -> DomainSpec:
        """Build a VM that is off."""
        spec = self.source.spec()
        self.source.create_volume(spec, capacity_gib=1)
        self.source.host.define(spec)
        return spec

    def arriving(self, spec: DomainSpec, **changes: Any) -> MoveSpec:
        """Prepare the destination, and return what is asked of the move there."""
        assignment_id = str(uuid.uuid4())
        wanted = MoveSpec(
            vm_id=spec.mark.vm_id,
            mark=replace(
                spec.mark, assignment_id=assignment_id, generation=spec.mark.generation + 1
            ),
            pool=self.destination.pool,
            volume=volume_name(assignment_id),
            seed_volume=None if spec.seed_volume is None else seed_name(assignment_id),
            network=spec.network,
            guard=spec.guard,
        )
        wanted = replace(wanted, **changes)
        self.made.append(wanted)
        if wanted.copy_disk:
            self.destination.host.create_overlay(
                pool=wanted.pool,
                name=wanted.volume,
                base_volume=self.destination.base_volume,
                capacity_gib=1,
            )
        if wanted.seed_volume is not None:
            self.destination.host.put_volume(wanted.pool, wanted.seed_volume, b"seed" * 1024)
        return wanted

    def mover(self) -> HostPairMigrator | FakeMover:
        return self.movers(*self.ends, deadline_s=DEADLINE_S)

    def live(
        self, wanted: MoveSpec, *, on_progress: Any = lambda _: None, deadline_s: float = DEADLINE_S
    ) -> MoveResult:
        with self.mover() as mover:
            return mover.move_live(wanted, deadline_s=deadline_s, on_progress=on_progress)

    def cold(
        self, wanted: MoveSpec, *, on_progress: Any = lambda _: None, deadline_s: float = DEADLINE_S
    ) -> MoveResult:
        with self.mover() as mover:
            return mover.move_cold(wanted, deadline_s=deadline_s, on_progress=on_progress)

    def check(self, wanted: MoveSpec) -> None:
        with self.mover() as mover:
            mover.check(wanted)

    def switch_off(self, spec: DomainSpec) -> None:
        """Switch a guest off at the source, which has written what it had to."""
        self.source.host.destroy(spec.mark.vm_id)

    def start_at_destination(self, wanted: MoveSpec) -> None:
        """Start what arrived off."""
        self.destination.host.start_paused(wanted.vm_id, guard=wanted.guard)
        self.destination.host.resume(wanted.vm_id)
        eventually(lambda: b"LAB-GUEST-READY" in self.console(self.destination, wanted))

    def states(self, spec: DomainSpec | MoveSpec) -> tuple[DomainState | None, DomainState | None]:
        """What the VM does at the source and at the destination; None: absent."""
        found = (self.seen(each, spec) for each in (self.source, self.destination))
        at_source, at_destination = (None if seen is None else seen.state for seen in found)
        return at_source, at_destination

    def seen(self, ground: Ground, spec: DomainSpec | MoveSpec) -> HostDomain | None:
        return ground.host.find(spec.mark.vm_id)

    def remove_arriving(self, wanted: MoveSpec) -> bool:
        return self.destination.host.remove(
            wanted.vm_id,
            assignment_id=wanted.mark.assignment_id,
            generation=wanted.mark.generation,
            pool=wanted.pool,
            volumes=(wanted.volume, seed_name(wanted.mark.assignment_id)),
        )

    def rest_on(self, base: str) -> None:
        """Let disks rest on the copies of an image, which each host names differently; or none."""
        for number, ground in enumerate((self.source, self.destination), 1):
            ground.base_volume = None if base == "none" else base
            if base == "image":
                name = f"{IMAGE_PREFIX}{uuid.uuid4()}.{number}.qcow2"
                self.in_host(number, "cp", f"{POOL_PATH}/base.qcow2", f"{POOL_PATH}/{name}")
                self.images.append((ground, name))
                ground.base_volume = name

    def in_host(self, number: int, *words: str) -> str:
        """Run something where a host's files are."""
        assert self.lab is not None
        pid = (self.lab.directory / "hosts" / str(number) / "pid").read_text().split()[0]
        command = ["nsenter", "-t", pid, "-m", *words]
        return subprocess.run(
            command, check=True, timeout=120, capture_output=True, text=True
        ).stdout

    def content(self, number: int, volume: str) -> str:
        """The digest of a disk, as its guest would read it."""
        path = f"{POOL_PATH}/{volume}"
        script = f"qemu-img convert -O raw {path} {path}.raw; sha256sum < {path}.raw; rm {path}.raw"
        return self.in_host(number, "sh", "-ec", script)

    def console(self, ground: Ground, spec: DomainSpec | MoveSpec) -> bytes:
        return ground.host.console_tail(spec.mark.vm_id).content

    def order(self, ground: Ground, spec: DomainSpec | MoveSpec, words: str) -> list[str]:
        """Have a real guest's shell run something; return what it said."""
        return run_in_guest(ground.host, spec.mark.vm_id, words)

    def begin_beating(self, spec: DomainSpec) -> None:
        self.order(self.source, spec, _BEATING.removeprefix("run "))
        eventually(lambda: len(self.beats(self.source, spec)) > 2)

    def beats(self, ground: Ground, spec: DomainSpec | MoveSpec) -> list[float]:
        """For how long the guest was up, as it said there."""
        shown = self.console(ground, spec).decode(errors="replace").splitlines()
        # The first and the last may be halves, and what is typed, or its kernel says (it does on
        # a busy machine), may come into the middle of any.
        found = (_BEAT.fullmatch(line) for line in shown[1:-1])
        return [float(beat[1]) for beat in found if beat is not None]

    def empty(self) -> None:
        for wanted in self.made:
            # Whoever ends a move at both hosts ends it for good.
            for ground in (self.destination, self.source):
                ground.host.destroy(wanted.vm_id)
                ground.host.undefine(wanted.vm_id)
            for volume in (wanted.volume, seed_name(wanted.mark.assignment_id)):
                self.destination.host.delete_volume(wanted.pool, volume)
        self.source.empty()
        for ground, name in self.images:
            ground.host.delete_volume(ground.pool, name)
        self.source.base_volume = self.destination.base_volume = "base.qcow2"
        self.images.clear()
        self.made.clear()
        self.source.made.clear()


def fake_grounds() -> Grounds:
    """Two hosts in memory."""
    hosts = [FakeHypervisor(f"fake+tcp://host{number}/system") for number in (1, 2)]
    fakes = FakeMovers({host.uri: host for host in hosts})
    source, destination = (Ground("fake", host, "qemu", "default", "base.qcow2") for host in hosts)
    ends = (HostEndpoint(hosts[0].uri), HostEndpoint(hosts[1].uri))
    return Grounds(source, destination, ends, fakes, fakes=fakes)


def real_grounds(lab: LabCluster) -> Iterator[Grounds]:
    """The first two hosts of a lab, left as they were found."""
    one, other = lab.hosts[:2]
    with (
        HostConnection(one.uri, deadline_s=DEADLINE_S) as first,
        HostConnection(other.uri, deadline_s=DEADLINE_S) as second,
    ):
        made = Grounds(
            Ground("qemu", first, one.domain_type, one.pool, one.base_volume),
            Ground("qemu", second, other.domain_type, other.pool, other.base_volume),
            (HostEndpoint(one.uri), HostEndpoint(other.uri)),
            HostPairMigrator,
            lab=lab,
        )
        yield made
        made.empty()


@pytest.fixture(params=["fake", pytest.param("qemu", marks=pytest.mark.qemu)])
def grounds(
    request: pytest.FixtureRequest, lab_cluster: Callable[[int], LabCluster]
) -> Iterator[Grounds]:
    """Two hosts of each kind that can move guests."""
    if request.param == "fake":
        yield fake_grounds()
    else:
        yield from real_grounds(lab_cluster(2))


@pytest.fixture
def real(lab_cluster: Callable[[int], LabCluster]) -> Iterator[Grounds]:
    """Two real hosts."""
    yield from real_grounds(lab_cluster(2))
