"""The monitor's own process on real hosts: healthy, frozen, gone, and with strangers on them."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from hypervisor import DomainSpec, HostConnection, Mark, domain_name, volume_name
from lab.cluster import LabHost
from registry import HostHealth
from registry.requests import Vm
from tests.integration.workers.site import Site, open_site, virsh
from tests.servers.lab_hosts import LabCluster, lab_cluster  # noqa: F401
from tests.servers.running import eventually

pytestmark = [pytest.mark.sqlite, pytest.mark.qemu, pytest.mark.slow]

INTERVAL_S = 4.0
GUEST_PATIENCE_S = 2.5
SETTINGS = {
    "FUGA_POLL_INTERVAL_S": str(INTERVAL_S),
    "FUGA_POLL_DEADLINE_S": "3",
    "FUGA_UNREACHABLE_AFTER": "2",
    "FUGA_DOWN_AFTER": "4",
}
STRANGER_XML = """<domain type='qemu'><name>stranger</name><uuid>{uuid}</uuid>
<memory unit='MiB'>96</memory><vcpu>2</vcpu><os><type machine='pc'>hvm</type></os></domain>"""


@pytest.fixture
def lab(lab_cluster: Callable[[int], LabCluster]) -> LabCluster:  # noqa: F811
    return lab_cluster(3)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with open_site(tmp_path) as site:
        yield site


def polls(site: Site, name: str) -> int:
    """Tell whether, and how often of late, a host was looked at: its last look's time."""
    at = site.registry.hosts.get(name).last_polled_at
    return round(at.timestamp() * 1e6) if at else 0


def a_running_vm(site: Site, lab: LabCluster) -> tuple[LabHost, Vm]:
    """Start a monitor and workers for the first host, and a VM there."""
    host = lab.hosts[0]
    site.add_host(host, reported=False)
    site.start("monitor", **SETTINGS)
    site.start("workers")
    eventually(lambda: polls(site, host.name))
    site.request(host)
    eventually(site.all_run)
    [vm] = site.vms()
    return host, vm


def test_a_frozen_libvirtd_and_a_frozen_guest_delay_no_other_host(
    site: Site, lab: LabCluster
) -> None:
    for host in lab.hosts:
        site.add_host(host, reported=False)
    well, with_frozen_guest, hung = (host.name for host in lab.hosts)
    site.start("monitor", **SETTINGS)
    eventually(lambda: all(polls(site, host.name) for host in lab.hosts))
    worker = site.start("workers")
    site.request(lab.hosts[1])
    eventually(site.all_run)
    [vm] = site.vms()
    oldest_s = {well: 0.0, with_frozen_guest: 0.0}

    def sample() -> None:
        now = site.registry.now()
        for name, before_s in oldest_s.items():
            at = site.registry.hosts.get(name).last_polled_at
            assert at is not None
            oldest_s[name] = max(before_s, (now - at).total_seconds())

    def is_down() -> bool:
        sample()
        return site.registry.hosts.get(hung).health == HostHealth.DOWN

    with (
        lab.faulty(2, "freeze-guest", domain_name(str(vm.id)), until="thaw-guest"),
        lab.faulty(3, "hang-daemon", until="resume-daemon"),
    ):
        eventually(is_down, every_s=0.05)

    assert oldest_s[well] <= INTERVAL_S, oldest_s
    # One look waits a little for the frozen guest's own numbers, then does without.
    assert oldest_s[with_frozen_guest] <= INTERVAL_S + GUEST_PATIENCE_S, oldest_s
    host = site.registry.hosts.get(hung)
    assert "no answer" in (host.last_error or "")  # type: ignore[attr-defined]
    eventually(lambda: site.registry.hosts.get(hung).health == HostHealth.UP)
    assert site.registry.hosts.get(hung).last_error is None
    site.delete_all_and_wait()
    worker.end()


def test_capacity_and_consumption_are_read(site: Site, lab: LabCluster) -> None:
    host, vm = a_running_vm(site, lab)
    host_id = site.registry.hosts.get(host.name).id

    def guest_is_seen_working() -> bool:
        report = site.registry.hosts.latest_reports()[host_id]
        return any(
            str(domain.uuid) == str(vm.id)
            and domain.assignment_id == vm.assignment_id
            and domain.state == "running"
            and (domain.cpu_time_ns or 0) > 0
            and (domain.memory_used_mib or 0) > 0
            for domain in report.domains
        )

    eventually(guest_is_seen_working)
    report = site.registry.hosts.latest_reports()[host_id]
    assert report.cpu_busy_percent is not None
    assert 0 <= report.cpu_busy_percent <= 100
    assert (report.memory_used_mib or 0) > 0
    assert volume_name(str(vm.assignment_id)) in report.volumes
    inventories = {each.resource: each for each in site.registry.hosts.get(host.name).inventories}
    assert all((each.detected or 0) > 0 for each in inventories.values())
    assert all(each.foreign == 0 for each in inventories.values())
    site.delete_all_and_wait()


def test_a_vm_that_goes_missing_is_an_event_and_the_vm_is_lost(site: Site, lab: LabCluster) -> None:
    host, vm = a_running_vm(site, lab)

    virsh(host.uri, "destroy", str(vm.id))
    virsh(host.uri, "undefine", str(vm.id))

    eventually(lambda: site.vms()[0].observed == "lost")
    [event] = site.registry.events.list(kind="vm_missing")
    assert event.subject_id == str(vm.id)
    site.delete_all_and_wait()
    assert lab.images(1) == {"base.qcow2"}


def test_a_guest_that_powers_itself_off_is_stopped_and_stays_so(
    site: Site, lab: LabCluster
) -> None:
    host, vm = a_running_vm(site, lab)

    virsh(host.uri, "destroy", str(vm.id))

    eventually(lambda: site.vms()[0].observed == "stopped")
    before = polls(site, host.name)
    eventually(lambda: site.sweep() or polls(site, host.name) > before)
    assert virsh(host.uri, "domstate", str(vm.id)) == ["shut off"]
    site.delete_all_and_wait()


def test_a_domain_that_is_not_ours_is_an_event_and_counts_against_the_host(
    site: Site, lab: LabCluster, tmp_path: Path
) -> None:
    host = lab.hosts[0]
    site.add_host(host, reported=False)
    site.start("monitor", **SETTINGS)
    eventually(lambda: polls(site, host.name))
    uuid = str(uuid4())
    xml = tmp_path / "stranger.xml"
    xml.write_text(STRANGER_XML.format(uuid=uuid))
    virsh(host.uri, "define", str(xml))
    try:
        virsh(host.uri, "start", "stranger")

        def foreign() -> dict[str, int]:
            inventories = site.registry.hosts.get(host.name).inventories
            return {each.resource: each.foreign for each in inventories}

        eventually(lambda: foreign()["vcpus"] == 2)
        assert foreign()["memory_mib"] == 96
        [event] = site.registry.events.list(kind="stranger_seen")
        assert event.data["uuid"] == uuid
        capacity = {
            each.resource: each.capacity for each in site.registry.hosts.get(host.name).inventories
        }
        assert capacity["vcpus"] == 14
    finally:
        virsh(host.uri, "destroy", "stranger")
        virsh(host.uri, "undefine", "stranger")
    eventually(lambda: set(foreign().values()) == {0})


def test_a_domain_of_a_released_assignment_is_cleared_away(site: Site, lab: LabCluster) -> None:
    host = lab.hosts[0]
    site.add_host(host, reported=False)
    site.start("monitor", **SETTINGS)
    site.start("workers")
    eventually(lambda: polls(site, host.name))
    [assignment_id] = site.request(host)
    eventually(site.all_run)
    [vm] = site.vms()
    site.delete_all_and_wait()
    # As a libvirtd leaves it that was frozen with a define in its socket.
    with HostConnection(host.uri) as connection:
        volume = volume_name(str(assignment_id))
        connection.create_overlay(
            pool="default", name=volume, base_volume="base.qcow2", capacity_gib=5
        )
        connection.define(
            DomainSpec(
                mark=Mark(
                    vm_id=str(vm.id),
                    assignment_id=str(assignment_id),
                    generation=1,
                    tenant="a",
                    round=1,
                ),
                name=domain_name(str(vm.id)),
                domain_type="qemu",
                vcpus=1,
                memory_mib=96,
                pool="default",
                volume=volume,
                network="default",
            )
        )

    def is_clean() -> bool:
        site.sweep()
        return lab.images(1) == {"base.qcow2"} and virsh(host.uri, "list", "--all") == []

    eventually(is_clean)
    eventually(lambda: site.registry.events.list(kind="leftover_removed"))


def test_hosts_come_and_go_and_a_host_that_never_answered_says_why(
    site: Site, lab: LabCluster
) -> None:
    monitor = site.start("monitor", **SETTINGS)
    eventually(lambda: monitor.logged("monitor_started"))
    site.add_host(lab.hosts[0], reported=False)
    site.add_unanswering_host("unanswering", "qemu+tcp://127.0.0.1:9/system")

    eventually(lambda: polls(site, lab.hosts[0].name))
    eventually(lambda: site.registry.hosts.get("unanswering").last_error)

    host = site.registry.hosts.get("unanswering")
    assert host.health == HostHealth.ENROLLING
    site.retire("unanswering")
    eventually(lambda: monitor.logged("watch_stopped", host="unanswering"))
    monitor.send(signal.SIGTERM)
    assert monitor.process.wait(30) == 0
    assert monitor.logged("monitor_stopped")
