"""What a VM may take of its host at most, as libvirt and QEMU themselves tell it."""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import libvirt
import pytest

from hypervisor import DomainSpec, DomainState, HostConnection, VmLimits
from hypervisor.child.driver import _start_domain
from hypervisor.xml.resource_limits import SHARES_PER_VCPU
from lab.cluster import LabHost
from tests.contract.conftest import DEADLINE_S, Ground
from tests.kill_nine import virsh
from tests.servers.lab_hosts import LabCluster


@dataclass
class Site:
    ground: Ground
    uri: str

    def run(self, limits: VmLimits) -> DomainSpec:
        spec = replace(self.ground.spec(), limits=limits)
        self.ground.run(spec)
        return spec

    def told(self, *question: str) -> dict[str, str]:
        """What a command of virsh answers, name by name."""
        pairs = (line.partition(":")[::2] for line in virsh(self.uri, *question))
        return {name.strip(): value.strip() for name, value in pairs}


@pytest.fixture
def real(lab_cluster: Callable[[int], LabCluster]) -> Iterator[Site]:
    yield from site(lab_cluster(1).hosts[0], "qemu")


@pytest.fixture
def driver(driver_hosts: Callable[[int], list[LabHost]]) -> Iterator[Site]:
    yield from site(driver_hosts(1)[0], "test_driver")


def site(host: LabHost, name: str) -> Iterator[Site]:
    with HostConnection(host.uri, deadline_s=DEADLINE_S) as connection:
        ground = Ground(name, connection, host.domain_type, host.pool, host.base_volume)
        yield Site(ground, host.uri)
        ground.empty()


def sends_by_limit() -> bool:
    """Tell whether this machine's kernel can bound what a card passes."""
    probe = "ip link add d0 type bridge && tc qdisc add dev d0 root sfq"
    done = subprocess.run(["unshare", "-n", "sh", "-c", probe], capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.qemu
def test_qemu_throttles_the_disks_of_a_guest_together(real: Site) -> None:
    spec = real.run(VmLimits(disk_iops=500, disk_mib_s=20))

    shown = real.told("blkdeviotune", spec.mark.vm_id, "vda")

    assert (shown["total_iops_sec"], shown["total_bytes_sec"]) == ("500", str(20 << 20))
    assert shown["group_name"] == "disks"
    query = '{"execute": "query-block"}'
    [requested] = virsh(real.uri, "qemu-monitor-command", spec.mark.vm_id, query)
    assert '"iops":500' in requested


@pytest.mark.qemu
def test_limits_stay_when_a_guest_is_switched_off_and_on(real: Site) -> None:
    spec = real.run(VmLimits(disk_iops=500))
    real.ground.host.destroy(spec.mark.vm_id)

    real.ground.host.start_paused(spec.mark.vm_id)

    assert real.told("blkdeviotune", spec.mark.vm_id, "vda")["total_iops_sec"] == "500"


@pytest.mark.qemu
def test_a_guest_without_limits_has_none_but_its_share_of_processors(real: Site) -> None:
    spec = real.run(VmLimits())

    assert real.told("blkdeviotune", spec.mark.vm_id, "vda")["total_iops_sec"] == "0"
    xml = ET.fromstring("\n".join(virsh(real.uri, "dumpxml", spec.mark.vm_id)))
    assert xml.findtext("cputune/shares") == str(SHARES_PER_VCPU * spec.vcpus)
    assert xml.find("devices/interface/bandwidth") is None


@pytest.mark.qemu
@pytest.mark.demanding  # of the kernel
@pytest.mark.skipif(not sends_by_limit(), reason="this kernel has no sfq: no limits of cards")
def test_the_host_bounds_what_a_guests_card_passes(real: Site) -> None:
    spec = real.run(VmLimits(net_mbps=100))

    card = ET.fromstring("\n".join(virsh(real.uri, "dumpxml", spec.mark.vm_id)))
    target = card.find("devices/interface/target")
    assert target is not None
    shown = real.told("domiftune", spec.mark.vm_id, target.get("dev", ""))
    assert (shown["inbound.average"], shown["outbound.average"]) == ("12500", "12500")


@pytest.mark.test_driver
def test_libvirt_reads_the_limits_of_disks_and_card_as_they_were_meant(driver: Site) -> None:
    spec = driver.run(VmLimits(disk_iops=500, disk_mib_s=20, net_mbps=100))

    disk = driver.told("blkdeviotune", spec.mark.vm_id, "vda")
    card = driver.told("domiftune", spec.mark.vm_id, card_of(driver, spec))

    assert (disk["total_iops_sec"], disk["total_bytes_sec"]) == ("500", str(20 << 20))
    assert (card["inbound.average"], card["inbound.burst"]) == ("12500", "1250")
    assert (card["outbound.average"], card["outbound.burst"]) == ("12500", "1250")
    assert driver.ground.find(spec).state is DomainState.RUNNING


def card_of(driver: Site, spec: DomainSpec) -> str:
    xml = ET.fromstring("\n".join(virsh(driver.uri, "dumpxml", spec.mark.vm_id)))
    mac = xml.find("devices/interface/mac")
    assert mac is not None
    return mac.get("address", "")


class Unsupported(libvirt.libvirtError):
    """What a host answers whose cgroups have no controller of processors."""

    def get_error_code(self) -> int:
        return int(libvirt.VIR_ERR_CONFIG_UNSUPPORTED)


class WithoutController:
    """A connection and its one domain, which starts without shares alone."""

    def __init__(self, xml: str) -> None:
        self.xml = xml
        self.started = False

    def XMLDesc(self, flags: int) -> str:  # noqa: N802 - libvirt's name
        return self.xml

    def defineXML(self, xml: str) -> WithoutController:  # noqa: N802
        self.xml = xml
        return self

    def createWithFlags(self, flags: int) -> None:  # noqa: N802
        if "<shares>" in self.xml:
            raise Unsupported("CPU tuning is not available on this host")
        if "<unknown/>" in self.xml:
            raise Unsupported("something else is not available")
        self.started = True


def test_where_processors_cannot_be_shared_out_a_guest_starts_without_its_share() -> None:
    host = WithoutController("<domain><cputune><shares>32</shares></cputune></domain>")

    _start_domain(host, host)  # type: ignore[arg-type]

    assert host.started


def test_what_else_a_host_cannot_do_is_its_answer() -> None:
    host = WithoutController("<domain><unknown/></domain>")

    with pytest.raises(Unsupported, match="something else"):
        _start_domain(host, host)  # type: ignore[arg-type]
