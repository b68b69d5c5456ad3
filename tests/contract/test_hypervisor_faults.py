"""Hosts and guests that die or freeze: calls stay bounded, others are not touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hypervisor import (
    DomainState,
    HostConnection,
    HostEndpoint,
    HostPairMigrator,
    HostUnreachableError,
    MoveSpec,
)
from lab.cluster import LabHost
from tests.contract.conftest import DEADLINE_S, Ground
from tests.servers.lab_hosts import LabCluster

GENEROUS_S = 60.0
SHORT_S = 3.0


def eventually(look: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + GENEROUS_S
    while not look():
        assert time.monotonic() < deadline, f"still not: {what}"
        time.sleep(0.05)


def children_for(uri: str) -> set[int]:
    """Pids of the processes that talk to a host for somebody."""
    found = set()
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"hypervisor.child.single_host_child" in words and uri.encode() in words:
                found.add(int(process.name))
    return found


@pytest.fixture
def two_hosts(lab_cluster: Callable[[int], LabCluster]) -> LabCluster:
    return lab_cluster(2)


@pytest.fixture
def first(two_hosts: LabCluster) -> Iterator[Ground]:
    """Host 1 of a lab of two, left without what the test made."""
    host = two_hosts.hosts[0]
    with HostConnection(host.uri, deadline_s=DEADLINE_S) as connection:
        ground = Ground("qemu", connection, host.domain_type, host.pool, host.base_volume)
        yield ground
        ground.empty()


@pytest.mark.qemu
def test_a_guest_boots_from_its_overlay_and_its_console_is_read_from_afar(
    first: Ground, two_hosts: LabCluster
) -> None:
    spec = first.spec()
    vm_id = spec.mark.vm_id
    assert first.host.console_tail(vm_id).content == b""
    first.create_volume(spec, capacity_gib=60)
    first.host.define(spec)
    first.host.start_paused(vm_id)

    first.host.resume(vm_id)

    def has_booted() -> bool:
        written = first.host.console_tail(vm_id).content
        return b"LAB-GUEST-READY" in written and written.endswith(b"\n")  # the whole line

    eventually(has_booted, "booted")
    words = first.host.console_tail(vm_id).content.decode()
    assert f"uuid={vm_id} disk={60 * 2**21} nets=1" in words
    assert two_hosts.serial_log(1, spec.name).read_bytes() == first.host.console_tail(vm_id).content
    tail = first.host.console_tail(vm_id)
    assert first.host.console_tail(vm_id, 10).content == tail.content[-10:]
    assert first.host.console_tail(vm_id, after=tail.end - 7).content == tail.content[-7:]
    assert first.host.console_tail(vm_id, after=tail.end).content == b""
    assert first.host.console_tail(vm_id, after=tail.end + 1) == tail  # of another log
    seen = {d.uuid: d for d in first.host.report("default").domains}[vm_id]
    assert seen.cpu_time_ns
    assert seen.memory_used_mib
    assert first.remove(spec)
    assert not two_hosts.serial_log(1, spec.name).exists()
    assert spec.volume not in two_hosts.images(1)


@pytest.mark.qemu
def test_a_volume_without_a_domain_is_removed_though_libvirt_does_not_know_it(
    first: Ground, two_hosts: LabCluster
) -> None:
    spec = first.spec()
    images_dir = two_hosts.hosts[0].images_dir
    assert images_dir is not None
    (images_dir / spec.volume).write_bytes(b"half of a disk")

    assert first.remove(spec)

    assert spec.volume not in two_hosts.images(1)


@pytest.mark.qemu
def test_a_paused_start_outlives_whoever_asked_for_it(first: Ground, two_hosts: LabCluster) -> None:
    spec = first.spec()
    first.define(spec)
    with HostConnection(two_hosts.uris[0], deadline_s=DEADLINE_S) as hasty:
        hasty.find(spec.mark.vm_id)
        # Starting takes a quarter of a second at least: its child is killed in the middle.
        with pytest.raises(HostUnreachableError):
            hasty.start_paused(spec.mark.vm_id, deadline_s=0.1)

    first.host.start_paused(spec.mark.vm_id)
    first.host.resume(spec.mark.vm_id)

    assert first.find(spec).state is DomainState.RUNNING


@pytest.mark.qemu
def test_a_machine_that_is_not_the_one_meant_is_asked_nothing(
    first: Ground, two_hosts: LabCluster
) -> None:
    spec = first.spec()
    first.run(spec)
    uri, vm_id = two_hosts.uris[0], spec.mark.vm_id
    report = first.host.report("default")
    own, name = report.machine_uuid, report.hostname
    another = "4c4c4544-0044-4b10-8051-b4c04f4e5931"

    for machine in (own, f"{own}/{name}"):
        with HostConnection(uri, machine=machine, deadline_s=DEADLINE_S) as known:
            assert known.find(vm_id) is not None
    for machine in (another, f"{another}/{name}", f"{own}/kvm-elsewhere"):
        with HostConnection(uri, machine=machine, deadline_s=DEADLINE_S) as mistaken:
            said = machine if machine.startswith(str(own)) else another
            for act in (mistaken.find, mistaken.destroy):
                with pytest.raises(HostUnreachableError, match=f"machine {own}.* answers.*{said}:"):
                    act(vm_id)
    ends = [HostEndpoint(each, machine=another) for each in two_hosts.uris]
    with (
        HostPairMigrator(*ends, deadline_s=DEADLINE_S) as mover,
        pytest.raises(HostUnreachableError, match=f"machine {own} answers"),
    ):
        mover.check(
            MoveSpec(
                vm_id=vm_id,
                mark=spec.mark,
                pool=first.pool,
                volume=spec.volume,
                seed_volume=None,
                network="default",
                network_kind="network",
            )
        )

    assert first.find(spec).state is DomainState.RUNNING


@pytest.mark.qemu
def test_a_killed_libvirtd_is_an_unreachable_host_and_is_found_again(
    first: Ground, two_hosts: LabCluster
) -> None:
    spec = first.spec()
    first.run(spec)

    with two_hosts.faulty(1, "kill-daemon", until="restart-daemon"):
        with pytest.raises(HostUnreachableError, match=r"labhost|10\.213|refused|closed|socket"):
            first.host.report("default")
        with HostConnection(two_hosts.uris[1], deadline_s=DEADLINE_S) as second:
            assert second.report("default").hostname == "labhost2"

    assert first.find(spec).state is DomainState.RUNNING


@pytest.mark.qemu
def test_a_host_that_lost_its_power_comes_back_with_its_domains_off(
    first: Ground, two_hosts: LabCluster
) -> None:
    spec = first.spec()
    first.run(spec)

    two_hosts.fault(1, "power-off")
    try:
        with pytest.raises(HostUnreachableError):
            first.host.report("default", deadline_s=SHORT_S)
    finally:
        two_hosts.restore()

    assert first.find(spec).state is DomainState.STOPPED
    assert first.find(spec).mark == spec.mark


@pytest.mark.qemu
def test_a_hung_libvirtd_costs_its_caller_the_deadline_and_nobody_else_anything(
    first: Ground, two_hosts: LabCluster
) -> None:
    first.host.report("default")
    failed: list[HostUnreachableError] = []
    done = threading.Event()

    def ask_the_hung_one() -> None:
        try:
            first.host.report("default", deadline_s=8.0)
        except HostUnreachableError as error:
            failed.append(error)
        done.set()

    with two_hosts.faulty(1, "hang-daemon", until="resume-daemon"):
        asking = threading.Thread(target=ask_the_hung_one)
        asking.start()
        with HostConnection(two_hosts.uris[1], deadline_s=DEADLINE_S) as second:
            for _ in range(5):
                assert second.report("default").hostname == "labhost2"
        assert not done.is_set(), "the other host answered while this one was waited for"
        assert done.wait(GENEROUS_S)
        asking.join()
        assert "no answer within 8" in str(failed[0])
        assert children_for(two_hosts.uris[0]) == set()

        # A new connection hangs in its handshake, where libvirt has no timeout at all.
        with pytest.raises(HostUnreachableError, match="no answer within"):
            first.host.report("default", deadline_s=SHORT_S)

    assert first.host.report("default").hostname == "labhost1"


@pytest.mark.qemu
def test_a_frozen_guest_delays_no_report(first: Ground, two_hosts: LabCluster) -> None:
    frozen, other = first.spec(), first.spec()
    first.run(frozen)
    first.run(other)

    with two_hosts.faulty(1, "freeze-guest", frozen.name, until="thaw-guest"):
        # Far below the half minute after which libvirt gives a frozen guest up.
        for _ in range(3):
            report = first.host.report("default", deadline_s=10.0)
        seen = {domain.uuid: domain for domain in report.domains}
        assert seen[frozen.mark.vm_id].state is DomainState.RUNNING
        assert seen[frozen.mark.vm_id].mark == frozen.mark
        assert seen[other.mark.vm_id].cpu_time_ns
        assert first.find(frozen).state is DomainState.RUNNING


@pytest.mark.qemu
@pytest.mark.slow
def test_a_frozen_guest_is_removed_all_the_same(first: Ground, two_hosts: LabCluster) -> None:
    spec = first.spec()
    first.run(spec)
    two_hosts.fault(1, "freeze-guest", spec.name)

    assert first.remove(spec, generation=1)

    assert first.host.find(spec.mark.vm_id) is None


@pytest.mark.qemu
def test_a_stale_caller_that_wakes_up_defines_and_destroys_nothing(first: Ground) -> None:
    stale = first.spec()
    current = first.next_generation(stale)
    first.run(current)

    with pytest.raises(Exception, match="generation 2"):
        first.host.define(stale)
    first.host.destroy(stale.mark.vm_id, mark=stale.mark)
    assert not first.remove(stale, generation=stale.mark.generation)

    assert first.find(current).state is DomainState.RUNNING


@pytest.mark.qemu
def test_a_domain_that_lost_its_mark_is_neither_touched_nor_called_absent(
    first: Ground, two_hosts: LabCluster
) -> None:
    spec = first.spec()
    first.run(spec)
    uri, namespace = two_hosts.uris[0], "https://fuga.invalid/domain/1"
    virsh("-c", uri, "metadata", spec.name, namespace, "--remove", "--live", "--config")

    assert not first.remove(spec)

    assert first.find(spec).state is DomainState.RUNNING
    assert first.find(spec).mark is None
    assert spec.volume in first.volumes()


@pytest.mark.qemu
def test_strangers_are_seen_with_what_they_hold(first: Ground, two_hosts: LabCluster) -> None:
    spec = replace(first.spec(), vcpus=2, memory_mib=128)
    first.create_volume(spec, capacity_gib=7)
    first.host.define(spec)
    uri, namespace = two_hosts.uris[0], "https://fuga.invalid/domain/1"
    virsh("-c", uri, "metadata", spec.name, namespace, "--remove", "--config")

    seen = {d.uuid: d for d in first.host.report("default").domains}[spec.mark.vm_id]

    assert seen.mark is None
    assert (seen.vcpus, seen.memory_mib, seen.disk_gib) == (2, 128, 7)


@pytest.mark.qemu
def test_a_hung_child_ends_with_the_process_that_asked(two_hosts: LabCluster) -> None:
    uri = two_hosts.uris[1]
    script = (
        "import sys; from hypervisor import HostConnection\n"
        "c = HostConnection(sys.argv[1], deadline_s=600)\n"
        "c.report('default'); print('ready', flush=True); sys.stdin.readline()\n"
        "print('asking', flush=True); c.report('default')\n"
    )
    with two_hosts.faulty(2, "restart-daemon", until="resume-daemon"):
        parent = subprocess.Popen(
            [sys.executable, "-c", script, uri], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert parent.stdin
        assert parent.stdout
        assert parent.stdout.readline() == b"ready\n"
        assert len(children_for(uri)) == 1
        two_hosts.fault(2, "hang-daemon")
        parent.stdin.write(b"\n")
        parent.stdin.flush()
        assert parent.stdout.readline() == b"asking\n"

        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()

        eventually(lambda: not children_for(uri), "the child ended")
        parent.stdin.close()
        parent.stdout.close()


@pytest.mark.test_driver
def test_two_connections_and_two_processes_see_one_test_driver_world(
    driver_hosts: Callable[[int], list[LabHost]],
) -> None:
    host = driver_hosts(1)[0]
    with (
        HostConnection(host.uri, deadline_s=DEADLINE_S) as one,
        HostConnection(host.uri, deadline_s=DEADLINE_S) as other,
    ):
        ground = Ground("test_driver", one, host.domain_type, host.pool, host.base_volume)
        spec = ground.spec()
        ground.run(spec)
        one.close()

        seen = other.find(spec.mark.vm_id)

        assert seen is not None
        assert seen.state is DomainState.RUNNING
        assert "test" not in {domain.name for domain in other.report(host.pool).domains}
        ground.empty()


def virsh(*arguments: str) -> None:
    subprocess.run(["virsh", "-q", *arguments], check=True, timeout=GENEROUS_S)
