"""A real worker process on hosts of libvirt's test driver: many VMs, one sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.cluster import LabHost
from tests.integration.worker_site import Site, domain_states, open_site
from tests.lab_hosts import driver_hosts  # noqa: F401
from tests.running import eventually

pytestmark = [pytest.mark.sqlite, pytest.mark.test_driver]


@pytest.fixture
def hosts(driver_hosts: Callable[[int], list[LabHost]]) -> list[LabHost]:  # noqa: F811
    return driver_hosts(2)


@pytest.fixture
def site(tmp_path: Path, hosts: list[LabHost]) -> Iterator[Site]:
    with open_site(tmp_path) as site:
        for host in hosts:
            site.add_host(host)
        yield site


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


def test_a_service_without_a_database_says_what_to_do(tmp_path: Path, site: Site) -> None:
    for module in ("workers", "monitor"):
        service = site.start(module, FUGA_STATE_DIR=str(tmp_path / "nowhere"))

        assert service.process.wait(60) == 1

        assert "fuga db upgrade" in service.log.read_text()
        assert "Traceback" not in service.log.read_text()
