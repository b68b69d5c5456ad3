"""A real host that is cut off is switched off by a real script, and returns without its VMs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import cluster
from registry import HostHealth
from registry.audit import Event
from registry.differences import Difference
from tests.integration.workers.site import Site, domain_states, open_site, virsh
from tests.register import take_lease
from tests.servers.lab_hosts import LabCluster, lab_cluster  # noqa: F401
from tests.servers.running import eventually

pytestmark = [pytest.mark.sqlite, pytest.mark.qemu, pytest.mark.slow]

MONITOR = {
    "FUGA_POLL_INTERVAL_S": "2",
    "FUGA_POLL_DEADLINE_S": "4",
    "FUGA_UNREACHABLE_AFTER": "1",
    "FUGA_DOWN_AFTER": "2",
}
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def lab(lab_cluster: Callable[[int], LabCluster]) -> LabCluster:  # noqa: F811
    return lab_cluster(2)


@pytest.fixture
def site(tmp_path: Path, lab: LabCluster) -> Iterator[Site]:
    with open_site(tmp_path) as site:
        yield site


def test_a_host_that_is_cut_off_is_fenced_and_its_vm_runs_once_elsewhere(
    site: Site, lab: LabCluster, tmp_path: Path
) -> None:
    first, second = lab.hosts
    for host in lab.hosts:
        site.add_host(host, reported=False)
    site.registry.hosts.update(
        first.name, labels=["on_failure=rebuild"], fence_target="1", actor="cli"
    )
    fence = tmp_path / "fence"
    fence.write_text(f'#!/bin/sh\nexec {ROOT}/lab/scripts/host-fault {lab.directory} "$1" "$2"\n')
    fence.chmod(0o755)
    site.start("monitor", **MONITOR)
    site.start("workers", FUGA_FENCE_COMMAND=f'["{fence}", "{{target}}", "power-off"]')
    eventually(lambda: {health(site, host.name) for host in lab.hosts} == {HostHealth.UP})
    site.request(first)
    eventually(site.all_run)
    [vm] = site.vms()
    lease = take_lease(site.registry)

    lab.fault(1, "cut-network")
    eventually(lambda: health(site, first.name) == HostHealth.DOWN)
    assert domain_states(second.uri) == {}
    site.registry.fencing.request_for_failed_hosts(lease)
    eventually(lambda: site.sweep() or site.vms()[0].host is None)

    assert [host.running for host in cluster.host_statuses(lab.directory)][:2] == [False, True]
    site.place_again(vm.request_id, second)
    eventually(site.all_run)
    assert domain_states(second.uri) == {str(vm.id): "running"}

    lab.restore()
    eventually(lambda: site.sweep() or health(site, first.name) == HostHealth.UP)

    assert domain_states(first.uri) == {}
    assert lab.images(1) == {"base.qcow2"}
    assert domain_states(second.uri) == {str(vm.id): "running"}
    found = site.registry.events.list(kind="leftover_found")
    assert "domain" in {event.data["kind"] for event in found}
    assert site.registry.check() == []
    site.delete_all_and_wait()


def health(site: Site, name: str) -> HostHealth:
    return site.registry.hosts.get(name).health


def test_vms_start_again_with_their_host_and_what_is_gone_from_it_is_told(
    site: Site, lab: LabCluster
) -> None:
    host = lab.hosts[0]
    site.add_host(host, reported=False)
    site.start("monitor", **MONITOR)
    site.start("workers")
    eventually(lambda: health(site, host.name) == HostHealth.UP)
    site.request(host, count=2)
    eventually(site.all_run)
    kept, gone = site.vms()

    lab.fault(1, "power-off")
    eventually(lambda: health(site, host.name) == HostHealth.DOWN)
    lab.restore()
    eventually(lambda: [event.event for event in power_events(site)].count("start") >= 2)
    eventually(site.all_run)
    eventually(lambda: set(domain_states(host.uri).values()) == {"running"})

    virsh(host.uri, "undefine", str(gone.id))
    virsh(host.uri, "destroy", str(gone.id))  # in this order it is gone at once
    eventually(lambda: differences(site) == [("vm_missing", str(gone.id))])
    site.registry.differences.repair(host.name, Difference.VM_MISSING, str(gone.id), actor="ops")
    eventually(lambda: site.sweep() or site.registry.vms.get(gone.id).host is None)
    site.place_again(gone.request_id, host)
    eventually(site.all_run)

    assert domain_states(host.uri) == {str(kept.id): "running", str(gone.id): "running"}
    eventually(lambda: differences(site) == [])
    site.delete_all_and_wait()


def differences(site: Site) -> list[tuple[str, str]]:
    return [(each.difference, each.subject) for each in site.registry.differences.list()]


def power_events(site: Site) -> tuple[Event, ...]:
    return site.registry.events.list(kind="vm_power", limit=500)
