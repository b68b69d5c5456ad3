"""A real worker process on hosts of libvirt's test driver: many VMs, one sweep."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.cluster import LabHost
from registry import AssignmentState
from tests.integration.workers.site import Site, domain_states, open_site
from tests.servers.lab_hosts import driver_hosts  # noqa: F401
from tests.servers.running import eventually

pytestmark = [pytest.mark.sqlite, pytest.mark.test_driver]


#: The worker is new, and other work may be on the machine.
PATIENCE_S = 300.0


@pytest.fixture
def hosts(driver_hosts: Callable[[int], list[LabHost]]) -> list[LabHost]:  # noqa: F811
    return driver_hosts(2)


@pytest.fixture
def site(tmp_path: Path, hosts: list[LabHost]) -> Iterator[Site]:
    with open_site(tmp_path) as site:
        for host in hosts:
            site.add_host(host)
        yield site


@contextmanager
def frozen(host: LabHost) -> Iterator[None]:
    """Stop a host's libvirtd: it takes connections, and answers nothing."""
    pid = int((host.log_dir / "libvirtd.pid").read_text())
    os.kill(pid, signal.SIGSTOP)
    try:
        stat = Path(f"/proc/{pid}/stat")
        eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_one_sweep_is_enough_for_many_vms_where_no_message_is_lost(
    site: Site, hosts: list[LabHost]
) -> None:
    """A host builds few at a time; each that ends brings the next."""
    site.start("workers")
    for host in hosts:
        site.request(host, count=10)
    site.sweep()

    eventually(lambda: all(vm.observed == "running" for vm in site.vms()))

    for host in hosts:
        expected = {str(vm.id): "running" for vm in site.vms() if vm.host == host.name}
        assert domain_states(host.uri) == expected
        assert len(expected) == 10
    site.delete_all()
    site.sweep()
    eventually(lambda: site.vms() == [])
    assert [domain_states(host.uri) for host in hosts] == [{}, {}]
    assert site.registry.check() == []


def test_a_host_that_hangs_costs_no_other_host_a_build_and_its_own_are_decided_again(
    site: Site, hosts: list[LabHost]
) -> None:
    hung, well = hosts
    # One thread for each host: were the hung one to take both, nothing else would be built.
    worker = site.start(
        "workers",
        FUGA_CONCURRENCY="2",
        FUGA_THREADS_PER_HOST="1",
        FUGA_THREAD_WAIT_S="0.1",
        FUGA_SILENT_HOST_PAUSE_S="1",
    )
    [stuck] = site.request(hung)
    with frozen(hung):
        site.request(well, count=6)
        eventually(
            lambda: (
                site.sweep()
                or all(vm.observed == "running" for vm in site.vms() if vm.host == well.name)
            ),
            within_s=PATIENCE_S,
        )
        eventually(
            lambda: site.sweep() or worker.logged("build_failed", host=hung.name),
            within_s=PATIENCE_S,
        )
        assert "no answer within" in worker.logged("build_failed", host=hung.name)[0]["error"]

        site.let_builds_last(1000)
        assert site.registry.assignments.end_overdue(900) == (stuck,)
        assert site.registry.assignments.state(stuck) == AssignmentState.QUARANTINED
        assert site.committed(hung) == 1

    # It answers: its host is asked, and does not have the VM.
    eventually(lambda: site.sweep() or site.committed(hung) == 0, within_s=PATIENCE_S)
    assert domain_states(hung.uri) == {}
    [waits] = [vm for vm in site.vms() if vm.host is None]
    site.place_again(waits.request_id, well)
    eventually(site.all_run, within_s=PATIENCE_S)
    assert domain_states(well.uri) == {str(vm.id): "running" for vm in site.vms()}
    site.delete_all()
    eventually(site.all_gone, within_s=PATIENCE_S)
    assert site.registry.check() == []


def test_a_service_without_a_database_says_what_to_do(tmp_path: Path, site: Site) -> None:
    for module in ("workers", "monitor"):
        service = site.start(module, FUGA_STATE_DIR=str(tmp_path / "nowhere"))

        assert service.process.wait(60) == 1

        assert "fuga db upgrade" in service.log.read_text()
        assert "Traceback" not in service.log.read_text()
