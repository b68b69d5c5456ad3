"""What libvirt's own helper makes of our domains: the files that AppArmor lets a guest open.

The helper writes the rules from a domain's XML and needs no AppArmor for that, so these run
wherever real hosts do.
"""

from __future__ import annotations

import contextlib
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from hypervisor import DomainSpec, DomainState, HostConnection, OperationFailedError, seed_name
from tests.contract.conftest import DEADLINE_S, Ground
from tests.kill_nine import virsh
from tests.servers.lab_hosts import LabCluster

pytestmark = pytest.mark.qemu

HELPER = "/usr/lib/libvirt/virt-aa-helper"
POOL = "/var/lib/libvirt/images"


@dataclass
class Site:
    """A real host, and its libvirt past us."""

    ground: Ground
    lab: LabCluster

    def xml(self, spec: DomainSpec) -> str:
        return "\n".join(virsh(self.lab.uris[0], "dumpxml", "--inactive", spec.mark.vm_id))

    def rules(self, spec: DomainSpec) -> set[str]:
        """What a guest may open besides what each guest may, as ``"PATH" rk`` or ``rwk``."""
        first = (self.lab.directory / "hosts" / "1" / "pid").read_text().split()[0]
        helper = [HELPER, "--dryrun", "--create", "--uuid", f"libvirt-{spec.mark.vm_id}"]
        done = subprocess.run(
            ["nsenter", "-t", first, "-m", *helper],
            input=self.xml(spec),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        lines = {line.strip().rstrip(",") for line in (done.stdout + done.stderr).splitlines()}
        return {line for line in lines if line.startswith(f'"{POOL}/')}


@pytest.fixture
def site(lab_cluster: Callable[[int], LabCluster]) -> Iterator[Site]:
    lab = lab_cluster(1)
    host = lab.hosts[0]
    with HostConnection(host.uri, deadline_s=DEADLINE_S) as connection:
        ground = Ground("qemu", connection, host.domain_type, host.pool, host.base_volume)
        yield Site(ground, lab)
        ground.empty()


def with_seed(ground: Ground) -> DomainSpec:
    spec = ground.spec()
    seed = seed_name(spec.mark.assignment_id)
    ground.host.put_volume(ground.pool, seed, b"seed" * 1024)
    return replace(spec, seed_volume=seed)


def wanted(spec: DomainSpec) -> set[str]:
    return {
        f'"{POOL}/{spec.volume}" rwk',
        f'"{POOL}/{spec.seed_volume}" rk',
        f'"{POOL}/base.qcow2" rk',
    }


def test_a_guest_may_open_its_disk_its_seed_and_its_base_and_no_other_disk(site: Site) -> None:
    spec, other = with_seed(site.ground), site.ground.spec()
    site.ground.define(spec)
    site.ground.define(other)

    assert site.rules(spec) == wanted(spec)


def test_a_guest_of_an_earlier_release_is_found_has_its_size_and_gets_rules_at_its_next_start(
    site: Site,
) -> None:
    spec, host = with_seed(site.ground), site.ground.host
    site.ground.define(spec)
    domain = ET.fromstring(site.xml(spec))
    for disk, volume in zip(
        domain.iterfind("devices/disk"), (spec.volume, spec.seed_volume), strict=True
    ):
        disk.set("type", "volume")
        source, backing = disk.find("source"), disk.find("backingStore")
        assert source is not None
        source.attrib.clear()
        source.attrib.update({"pool": spec.pool, "volume": str(volume)})
        if backing is not None:
            disk.remove(backing)
    old = site.lab.directory / "old.xml"
    old.write_text(ET.tostring(domain, encoding="unicode"))
    virsh(site.lab.uris[0], "define", str(old))
    assert site.rules(spec) == set()
    [seen] = [each for each in host.report(spec.pool).domains if each.uuid == spec.mark.vm_id]
    assert (seen.mark, seen.disk_gib) == (spec.mark, 5)

    host.start_paused(spec.mark.vm_id)
    host.resume(spec.mark.vm_id)

    assert site.ground.find(spec).state is DomainState.RUNNING
    assert site.ground.find(spec).mark == spec.mark
    assert site.rules(spec) == wanted(spec)
    assert site.ground.remove(spec)


def test_a_base_of_an_operator_that_has_layers_is_opened_down_to_the_last(site: Site) -> None:
    images, ground = site.lab.hosts[0].images_dir, site.ground
    assert images is not None
    layer = images / "layer.qcow2"
    base = ("-F", "qcow2", "-b", f"{POOL}/base.qcow2")
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-u", *base, str(layer), "1G"],
        check=True,
        timeout=60,
    )
    spec = ground.spec()
    ground.host.create_overlay(
        pool=ground.pool, name=spec.volume, base_volume="layer.qcow2", capacity_gib=5
    )

    ground.host.define(spec)

    assert site.rules(spec) == {
        f'"{POOL}/{spec.volume}" rwk',
        f'"{POOL}/layer.qcow2" rk',
        f'"{POOL}/base.qcow2" rk',
    }
    layer.unlink()


def test_a_report_tells_what_the_host_keeps_of_its_guests(site: Site) -> None:
    assert site.ground.host.report(site.ground.pool).shares_kept is None  # nobody to ask about

    site.ground.run(site.ground.spec())

    report = site.ground.host.report(site.ground.pool)
    assert report.security_model == "none"  # the lab's hosts run beside what confines others
    assert report.shares_kept is False


def test_qemu_runs_in_its_sandbox(site: Site) -> None:
    spec = site.ground.spec()
    site.ground.run(spec)

    emulators = [
        words
        for process in Path("/proc").iterdir()
        if process.name.isdigit() and spec.name.encode() in (words := command_of(process))
    ]

    sandboxes = [words.partition(b"\0-sandbox\0")[2] for words in emulators]
    assert [each for each in sandboxes if each.startswith(b"on,")]


def command_of(process: Path) -> bytes:
    with contextlib.suppress(OSError):
        return (process / "cmdline").read_bytes()
    return b""


def test_an_image_that_rests_on_a_file_of_the_host_is_no_base(site: Site) -> None:
    spec, ground = site.ground.spec(), site.ground
    site.ground.create_volume(spec)  # a volume that rests on base.qcow2

    with pytest.raises(OperationFailedError, match=r"base\.qcow2, which is not allowed"):
        ground.host.create_overlay(
            pool=ground.pool,
            name=ground.spec().volume,
            base_volume=spec.volume,
            base_format="qcow2",
            capacity_gib=5,
        )
