"""Storage that hangs: libvirtd's calls to one pool block for ever, all others answer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hypervisor import DomainState, HostConnection, HostUnreachableError
from lab import cluster
from tests.contract.conftest import Ground
from tests.contract.test_hostile_consoles import FIFO, qcow2_header
from tests.servers.lab_hosts import LabCluster, start_real
from tests.servers.running import eventually

pytestmark = pytest.mark.qemu

DEADLINE_S = 20.0
SHORT_S = 3.0


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[LabCluster]:
    yield start_real(1, tmp_path / "lab")
    cluster.stop_hosts(tmp_path / "lab", purge=True)


def hang_pool(lab: LabCluster) -> Path:
    """Put into the pool what blocks libvirtd that looks into it; return what it waits for."""
    fifo = lab.hosts[0].log_dir.parent / "run" / Path(FIFO).name
    os.mkfifo(fifo)
    images = lab.hosts[0].images_dir
    assert images is not None
    (images / "an-image.img").write_bytes(qcow2_header(size=1 << 30, backing=FIFO))
    return fifo


def let_go(lab: LabCluster, fifo: Path) -> None:
    """End the hang: what libvirtd waits for has a writer, once for each look."""
    images = lab.hosts[0].images_dir
    assert images is not None
    (images / "an-image.img").unlink()
    for _ in range(3):
        try:
            os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:  # nobody reads it any more
            return


def test_a_look_at_a_host_whose_pool_hangs_tells_of_its_guests(lab: LabCluster) -> None:
    host = lab.hosts[0]
    with HostConnection(host.uri, deadline_s=DEADLINE_S) as connection:
        ground = Ground("qemu", connection, host.domain_type, host.pool, host.base_volume)
        first, second = ground.spec(), ground.spec()
        ground.run(first)
        ground.run(second)
        eventually(lambda: b"READY" in connection.console_tail(first.mark.vm_id).content)
        before = connection.report(host.pool)
        fifo = hang_pool(lab)

        looks = [connection.report(host.pool, deadline_s=SHORT_S) for _ in range(3)]

        waited = [look.pool_silent_s for look in looks]
        assert None not in waited
        assert waited == sorted(waited, key=lambda each: each or 0.0)
        for look in looks:
            assert {seen.uuid for seen in look.domains} == {seen.uuid for seen in before.domains}
            assert (look.vcpus, look.memory_mib) == (before.vcpus, before.memory_mib)
            assert look.disk_gib is None
            assert look.volumes == ()
        with HostConnection(host.uri, deadline_s=SHORT_S) as other:
            seen = other.find(first.mark.vm_id)
            assert seen is not None
            assert seen.run is not None
            assert b"READY" in other.console_tail(first.mark.vm_id).content
            other.open_console(first.mark.vm_id, force=True)
            other.release_console()
            other.power_off(first.mark.vm_id, run=seen.run)
            assert ground.find(first).state is DomainState.STOPPED
            other.undefine(first.mark.vm_id)
            with pytest.raises(HostUnreachableError, match="no answer within"):
                other.put_volume(host.pool, "more.img", b"x")
        let_go(lab, fifo)
        back = eventually(
            lambda: (look := connection.report(host.pool)).pool_silent_s is None and look
        )
        assert back
        assert back.disk_gib == before.disk_gib
        assert [seen.uuid for seen in back.domains] == [second.mark.vm_id]
        ground.empty()


def test_the_pool_over_consoles_of_earlier_versions_goes_and_deletes_no_log(
    lab: LabCluster,
) -> None:
    import libvirt

    host = lab.hosts[0]
    log = lab.serial_log(1, "of-earlier")
    log.write_bytes(b"said\n")
    conn = libvirt.open(host.uri)
    conn.storagePoolCreateXML(
        "<pool type='dir'><name>fuga-serial-logs</name>"
        "<target><path>/var/log/libvirt/qemu</path></target></pool>",
        0,
    )

    with HostConnection(host.uri, deadline_s=DEADLINE_S) as connection:
        connection.report(host.pool)

    assert [pool.name() for pool in conn.listAllStoragePools(0)] == [host.pool]
    conn.close()
    assert log.read_bytes() == b"said\n"
