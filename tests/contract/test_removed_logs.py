"""Consoles' logs of VMs that leave a host together."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from hypervisor import HostConnection
from hypervisor.model import domain_name
from tests.contract.conftest import DEADLINE_S
from tests.servers.lab_hosts import LabCluster, lab_cluster  # noqa: F401

AT_ONCE, EACH = 4, 6

pytestmark = [pytest.mark.qemu]


def test_vms_that_are_removed_at_the_same_time_leave_no_log(
    lab_cluster: Callable[[int], LabCluster],  # noqa: F811
) -> None:
    lab = lab_cluster(1)
    [host] = lab.hosts
    vms = [[str(uuid4()) for _ in range(EACH)] for _ in range(AT_ONCE)]
    logs = [lab.serial_log(1, domain_name(vm)) for some in vms for vm in some]
    for log in logs:
        log.write_text("an earlier life\n")

    def remove(some: list[str]) -> list[bool]:
        with HostConnection(host.uri, deadline_s=DEADLINE_S) as connection:
            return [
                connection.remove(
                    vm, assignment_id=str(uuid4()), generation=1, pool=host.pool, volumes=[]
                )
                for vm in some
            ]

    with ThreadPoolExecutor(AT_ONCE) as threads:
        absent = [each for some in threads.map(remove, vms) for each in some]

    assert absent == [True] * AT_ONCE * EACH
    assert [log.name for log in logs if log.exists()] == []
