"""Hosts that share a process: they tell what a host with its own tells, and hang alone."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from hypervisor import HostPoll, HostSilentError, HostUnreachableError, SharedHosts
from tests.contract.conftest import DEADLINE_S, Ground
from tests.servers.lab_hosts import LabCluster
from tests.servers.running import eventually

SHORT_S = 3.0


@contextmanager
def shared() -> Iterator[SharedHosts]:
    hosts = SharedHosts(deadline_s=DEADLINE_S)
    try:
        yield hosts
    finally:
        hosts.close()


@contextmanager
def hurried(hosts: SharedHosts) -> Iterator[None]:
    """Have looks that begin within end soon; others have time for a process to start."""
    hosts.deadline_s = SHORT_S
    yield
    hosts.deadline_s = DEADLINE_S


def processes() -> set[int]:
    """Return our processes that look at many hosts."""
    found = set()
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
                parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            except OSError:
                continue
            if b"hypervisor.child.multi_host_child" in words and int(parent) == os.getpid():
                found.add(int(process.name))
    return found


def lasting(report: HostPoll) -> HostPoll:
    """Return what is the same in two looks at a host."""
    domains = tuple(
        replace(each, cpu_time_ns=None, memory_used_mib=None) for each in report.domains
    )
    return replace(
        report,
        cpu_busy_percent=None,
        memory_used_mib=None,
        disk_used_gib=None,
        largest_console_bytes=0,
        domains=domains,
    )


def test_a_look_from_a_shared_process_tells_what_one_of_its_own_tells(ground: Ground) -> None:
    if ground.name == "fake":
        pytest.skip("it has no process")
    spec = ground.spec()
    ground.run(spec)
    uri = ground.host.uri

    with shared() as hosts:
        seen = hosts.host(uri).report(ground.pool)

    assert spec.mark in {domain.mark for domain in seen.domains}
    assert lasting(seen) == lasting(ground.host.report(ground.pool))


@pytest.mark.qemu
def test_a_frozen_libvirtd_delays_no_other_host_of_its_process_and_comes_back(
    lab_cluster: Callable[[int], LabCluster],
) -> None:
    lab = lab_cluster(2)
    with shared() as hosts:
        frozen, well = (hosts.host(uri) for uri in lab.uris)
        eventually(lambda: frozen.report("default").hostname == "labhost1")
        eventually(lambda: well.report("default").hostname == "labhost2")
        [process] = processes()

        with lab.faulty(1, "hang-daemon", until="resume-daemon"):
            for _ in range(2):  # on the connection that there was, and on a new one
                with hurried(hosts), pytest.raises(HostSilentError, match="no answer within"):
                    frozen.report("default")
                assert well.report("default").hostname == "labhost2"
            assert process in processes()

        eventually(lambda: answers(frozen))
        assert frozen.report("default").hostname == "labhost1"
        eventually(lambda: well.report("default") and processes() == {process})


def answers(host: object) -> bool:
    try:
        host.report("default")  # type: ignore[attr-defined]
    except HostUnreachableError:
        return False
    return True


def test_hosts_that_take_connections_and_never_speak_hang_apart() -> None:
    with socket.socket() as listener, shared() as hosts:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        uri = f"test+tcp://127.0.0.1:{listener.getsockname()[1]}/default"
        hung, well = hosts.host(uri), hosts.host("test:///default")
        eventually(lambda: well.report("default-pool"))

        for _ in range(2):
            with hurried(hosts), pytest.raises(HostSilentError):
                hung.report("default-pool")
            assert well.report("default-pool").domains

    assert not processes()
