"""A register center restored from an old backup, and a host that went on since."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hypervisor import domain_name
from lab.cluster import LabHost
from registry import ConflictError
from registry.admin.backup import backup
from registry.differences import Difference
from tests.integration.workers.site import Site, domain_states, open_site, virsh
from tests.servers.lab_hosts import driver_hosts  # noqa: F401
from tests.servers.running import eventually

pytestmark = [pytest.mark.sqlite, pytest.mark.test_driver]

#: Two workers start, on a machine with other work.
PATIENCE_S = 600.0


@pytest.fixture
def host(driver_hosts: Callable[[int], list[LabHost]]) -> LabHost:  # noqa: F811
    return driver_hosts(1)[0]


def test_what_differs_is_reported_and_after_its_repair_ledger_and_host_agree(
    tmp_path: Path, host: LabHost
) -> None:
    with open_site(tmp_path / "before") as site:
        site.add_host(host)
        site.start("workers")
        site.request(host, count=2)
        eventually(site.all_run, within_s=PATIENCE_S)
        kept, gone = site.vms()
        backup(site.url, tmp_path / "backup")
        site.registry.vms.delete(gone.id, actor="cli")
        site.request(host)
        eventually(lambda: site.all_run() and len(site.vms()) == 2, within_s=PATIENCE_S)
        [later] = [vm for vm in site.vms() if vm.id != kept.id]
    there = {str(kept.id): "running", str(later.id): "running"}
    assert domain_states(host.uri) == there

    with open_site(tmp_path / "after", backup=tmp_path / "backup") as site:
        site.report(host)

        # Nothing is touched before somebody says so, and nobody is promised what is taken.
        assert domain_states(host.uri) == there
        assert (site.committed(host), foreign(site, host)) == (2, 1)
        assert site.registry.vms.get(gone.id).observed == "lost"
        assert site.registry.vms.get(kept.id).observed == "running"
        assert site.registry.check() == []
        shown = site.registry.differences.list()
        assert {each.difference for each in shown} == {
            Difference.VM_MISSING,
            Difference.UNKNOWN_MARK,
        }
        assert str(gone.id) in {each.subject for each in shown}
        assert domain_name(str(later.id)) in {each.subject for each in shown}
        assert str(kept.id) not in {each.subject for each in shown}

        # What runs is switched off by hand before: no repair does that.
        running = domain_name(str(later.id))
        with pytest.raises(ConflictError, match=f"virsh destroy {running}"):
            site.registry.differences.repair(
                host.name, Difference.UNKNOWN_MARK, running, actor="cli"
            )
        virsh(host.uri, "destroy", running)
        site.report(host)
        shown = site.registry.differences.list()
        for each in (each for each in shown if each.on_confirmation is not None):
            site.registry.differences.repair(host.name, each.difference, each.subject, actor="cli")
        site.start("workers")
        eventually(lambda: site.sweep() or site.committed(host) == 1, within_s=PATIENCE_S)
        site.place_again(gone.request_id, host)
        eventually(site.all_run, within_s=PATIENCE_S)
        # Another site may have that disk open, so it goes by hand.
        eventually(lambda: has_left_disks_alone(site, host), within_s=PATIENCE_S)
        pool = site.registry.hosts.get(host.name).pool
        for each in site.registry.differences.list():
            assert f"virsh vol-delete {each.subject} {pool}`" in each.action
            virsh(host.uri, "vol-delete", each.subject, pool)
        eventually(lambda: agrees(site, host), within_s=PATIENCE_S)

        assert {vm.id for vm in site.vms()} == {kept.id, gone.id}
        assert domain_states(host.uri) == {str(vm.id): "running" for vm in site.vms()}
        assert (site.committed(host), foreign(site, host)) == (2, 0)
        assert site.registry.check() == []
        site.delete_all()
        eventually(site.all_gone, within_s=PATIENCE_S)
    assert domain_states(host.uri) == {}


def has_left_disks_alone(site: Site, host: LabHost) -> bool:
    site.sweep()
    site.report(host)
    shown = site.registry.differences.list()
    return bool(shown) and all(each.what.startswith("volume ") for each in shown)


def agrees(site: Site, host: LabHost) -> bool:
    site.sweep()
    site.report(host)
    return site.registry.differences.list() == ()


def foreign(site: Site, host: LabHost) -> int:
    [vcpus] = [
        each.foreign
        for each in site.registry.hosts.get(host.name).inventories
        if each.resource == "vcpus"
    ]
    return vcpus
