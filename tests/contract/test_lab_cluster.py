"""Starting, losing and stopping the hosts of a lab."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import libvirt
import pytest

from controller.embedded.lab_hosts import TEST, LabHosts
from controller.embedded.lab_watch import LabWatch
from hypervisor import HostConnection
from lab import cluster, processes
from lab.errors import LabError
from tests.servers.lab_hosts import guest_dir, start_real


def links(tag: str) -> list[str]:
    """Network links of the lab with this tag; other labs may come and go meanwhile."""
    return [link.name for link in Path("/sys/class/net").glob(f"vl{tag}*")]


@pytest.fixture
def test_lab(tmp_path: Path) -> Iterator[Path]:
    # A folder far too deep for a Unix socket.
    directory = tmp_path / ("deep" * 20) / "lab"
    yield directory
    cluster.stop_hosts(directory, purge=True)


@pytest.fixture
def real_lab(tmp_path: Path) -> Iterator[Path]:
    if reason := cluster.real_hosts_obstacle():
        pytest.skip(f"no real hosts here: {reason}")
    yield tmp_path / "lab"
    cluster.stop_hosts(tmp_path / "lab", purge=True)


@pytest.mark.test_driver
def test_test_hosts_start_where_they_run_already(test_lab: Path) -> None:
    first = cluster.start_test_hosts(2, test_lab)
    pids = [path.read_text() for path in sorted(test_lab.rglob("*.pid"))]

    assert cluster.start_test_hosts(2, test_lab) == first
    assert [path.read_text() for path in sorted(test_lab.rglob("*.pid"))] == pids
    assert [status.running for status in cluster.host_statuses(test_lab)] == [True, True]
    assert all(len(host.uri) < 150 for host in first)


@pytest.mark.test_driver
def test_a_test_host_that_died_starts_again_at_its_uri(test_lab: Path) -> None:
    hosts = cluster.start_test_hosts(2, test_lab)
    daemon = processes.running_pid(test_lab / "test-hosts" / "1" / "daemon.pid")
    assert daemon
    os.kill(daemon, signal.SIGKILL)
    wait_until(lambda: [s.running for s in cluster.host_statuses(test_lab)] == [False, True])

    assert cluster.start_test_hosts(2, test_lab) == hosts

    with HostConnection(hosts[0].uri, deadline_s=60) as connection:
        assert connection.report(hosts[0].pool).domains == ()


@pytest.mark.test_driver
def test_fuga_up_starts_a_test_host_again_whose_libvirtd_ended(test_lab: Path) -> None:
    hosts = cluster.start_test_hosts(2, test_lab)
    said: list[str] = []
    lab = LabHosts(driver=TEST, hosts=tuple(hosts))
    watch = LabWatch(test_lab, lab, ["host-1", "host-2"], said.append)
    watch.check()
    pid = processes.running_pid(test_lab / "test-hosts" / "2" / "daemon.pid")
    assert pid
    os.kill(pid, signal.SIGILL)
    wait_until(lambda: processes.start_time(pid) is None)

    def back() -> bool:
        watch.check()
        return [each.running for each in cluster.host_statuses(test_lab)] == [True, True]

    wait_until(back)

    assert said == [
        "host-2: its libvirtd ended, and all that was on it is gone; it starts again in 1 s"
    ]
    with HostConnection(hosts[1].uri, deadline_s=60) as connection:
        assert connection.report(hosts[1].pool).domains == ()


@pytest.mark.test_driver
def test_stopped_test_hosts_leave_no_process_and_no_file(test_lab: Path) -> None:
    host = cluster.start_test_hosts(1, test_lab)[0]
    pids = [processes.running_pid(path) for path in test_lab.rglob("*.pid")]

    cluster.stop_hosts(test_lab, purge=True)

    assert all(pid and processes.start_time(pid) is None for pid in pids)
    assert not host.log_dir.exists()
    assert cluster.host_statuses(test_lab) == []
    cluster.stop_hosts(test_lab, purge=True)


@pytest.mark.qemu
def test_two_labs_run_side_by_side(real_lab: Path, tmp_path: Path) -> None:
    try:
        one = start_real(1, real_lab)
        two = start_real(1, tmp_path / "other")

        assert set(one.uris).isdisjoint(two.uris)
        for lab in (one, two):
            with HostConnection(lab.uris[0], deadline_s=60) as connection:
                volumes = connection.report("default").volumes
                assert [volume.name for volume in volumes] == ["base.qcow2"]
    finally:
        cluster.stop_hosts(tmp_path / "other", purge=True)


def daemon(lab: Path, program: str = "libvirtd") -> int | None:
    """Pid, as seen from here, of the first host's libvirtd or virtlogd, if it runs."""
    first = processes.running_pid(lab / "hosts" / "1" / "pid")
    assert first
    inside = Path(f"/proc/{first}/ns/pid").readlink()
    for each in Path("/proc").glob("[0-9]*"):
        try:
            same = (each / "ns" / "pid").readlink() == inside
            if same and (each / "comm").read_text().strip() == program:
                return int(each.name) if processes.start_time(int(each.name)) else None
        except OSError:
            continue
    return None


def kill(lab: Path, program: str, number: signal.Signals) -> int:
    pid = daemon(lab, program)
    assert pid
    os.kill(pid, number)
    wait_until(lambda: processes.start_time(pid) is None)
    return pid


def boot(uri: str, name: str) -> None:
    """Start a guest that has nothing to boot from, which is no matter here."""
    connection = libvirt.open(uri)
    connection.createXML(
        f"<domain type='qemu'><name>{name}</name><memory unit='MiB'>16</memory>"
        "<os><type>hvm</type></os><devices><serial type='pty'><log file="
        f"'/var/log/libvirt/qemu/{name}.serial'/></serial></devices></domain>"
    )
    connection.close()


def running(uri: str) -> list[str]:
    try:
        connection = libvirt.open(uri)
    except libvirt.libvirtError:
        return []
    names = sorted(each.name() for each in connection.listAllDomains() if each.isActive())
    connection.close()
    return names


@pytest.mark.qemu
def test_daemons_that_crash_start_again_and_guests_run_on(real_lab: Path) -> None:
    [uri] = start_real(1, real_lab, transport="unix").uris
    host = real_lab / "hosts" / "1"
    boot(uri, "one")
    guest = (host / "run" / "qemu" / "one.pid").read_text()

    for _ in range(2):
        before = kill(real_lab, "libvirtd", signal.SIGILL)
        wait_until(lambda: running(uri) == ["one"])
        assert daemon(real_lab) != before
    kill(real_lab, "virtlogd", signal.SIGKILL)
    wait_until(lambda: daemon(real_lab, "virtlogd") is not None)
    time.sleep(0.5)
    boot(uri, "two")

    assert running(uri) == ["one", "two"]
    assert (host / "run" / "qemu" / "one.pid").read_text() == guest
    shown = [
        line.split(maxsplit=2)[2] for line in (host / "log/daemons.log").read_text().splitlines()
    ]
    assert shown == [
        "libvirtd ended (SIGILL); it starts again in 1 s",
        "libvirtd ended (SIGILL); it starts again in 2 s",
        "virtlogd ended (SIGKILL); it starts again in 1 s",
    ]
    assert [status.running for status in cluster.host_statuses(real_lab)] == [True]


@pytest.mark.qemu
def test_a_killed_libvirtd_stays_so_until_hosts_are_started_and_guests_run_on(
    real_lab: Path,
) -> None:
    lab = start_real(1, real_lab, transport="unix")
    [uri] = lab.uris
    boot(uri, "one")
    guest = (real_lab / "hosts/1/run/qemu/one.pid").read_text()
    lab.fault(1, "kill-daemon")
    time.sleep(1.5)  # longer than one that crashed would stay away
    assert [status.running for status in cluster.host_statuses(real_lab)] == [False]

    assert start_real(1, real_lab, transport="unix").uris == lab.uris

    assert running(uri) == ["one"]
    assert (real_lab / "hosts/1/run/qemu/one.pid").read_text() == guest


@pytest.mark.qemu
def test_a_lab_comes_back_at_its_addresses(real_lab: Path) -> None:
    uris = start_real(2, real_lab).uris
    cluster.stop_hosts(real_lab)
    assert [status.running for status in cluster.host_statuses(real_lab)] == []

    assert start_real(2, real_lab).uris == uris
    assert [status.running for status in cluster.host_statuses(real_lab)] == [True, True]


@pytest.mark.qemu
def test_a_host_starts_beside_one_whose_network_is_cut(real_lab: Path) -> None:
    first, second = cluster.start_real_hosts(2, real_lab, guest_dir(), transport="tls")
    cluster.inject_fault(real_lab, 1, "cut-network")
    cluster.inject_fault(real_lab, 2, "power-off")

    started = cluster.start_real_hosts(
        2, real_lab, guest_dir(), timeout_s=30, transport="tls", await_all=False
    )

    assert started == [first, second]
    assert running(second.uri) == []


@pytest.mark.qemu
def test_hosts_answer_at_sockets_of_roots_alone_and_on_no_network(real_lab: Path) -> None:
    lab = start_real(1, real_lab, transport="unix")

    [uri] = lab.uris
    folder = Path(uri.partition("socket=")[2]).parents[1]
    assert uri.startswith("qemu+unix:///system?socket=/run/fuga-hosts-")
    assert [path.stat().st_mode & 0o777 for path in (folder, real_lab)] == [0o700, 0o700]
    assert links((real_lab / "tag").read_text()) == []
    with pytest.raises(LabError, match="have no network"):
        lab.fault(1, "cut-network")
    cluster.stop_hosts(real_lab)
    assert not folder.exists()


@pytest.mark.qemu
def test_hosts_that_everybody_could_reach_are_taken_over_while_they_run(real_lab: Path) -> None:
    before = start_real(2, real_lab, transport="tcp")
    first = {path: path.read_text() for path in real_lab.glob("hosts/*/pid")}
    ports = [uri.removeprefix("qemu+tcp://").removesuffix("/system") for uri in before.uris]

    after = start_real(2, real_lab, transport="unix")

    assert {path: path.read_text() for path in real_lab.glob("hosts/*/pid")} == first
    assert links((real_lab / "tag").read_text()) == []
    for address in ports:
        with pytest.raises(OSError):  # noqa: PT011 - unreachable, refused or timed out
            socket.create_connection((address, 16509), timeout=5)
    for uri in after.uris:
        with HostConnection(uri, deadline_s=60) as connection:
            volumes = connection.report("default").volumes
            assert [volume.name for volume in volumes] == ["base.qcow2"]


@pytest.mark.qemu
def test_guests_start_on_hosts_of_an_older_version_that_were_taken_over(real_lab: Path) -> None:
    start_real(1, real_lab, transport="tcp")
    host = real_lab / "hosts" / "1"
    end_virtlogd(host)  # there was none, and QEMU itself wrote logs

    [uri] = start_real(1, real_lab, transport="unix").uris

    guest = """
        <domain type='qemu'><name>guest</name><memory unit='MiB'>64</memory>
          <os><type arch='x86_64' machine='pc'>hvm</type></os>
          <devices><serial type='pty'>
            <log file='/var/log/libvirt/qemu/guest.serial' append='on'/>
          </serial></devices>
        </domain>"""
    connection = libvirt.open(uri)
    try:
        connection.createXML(guest, 0).destroy()
    finally:
        connection.close()
    assert (host / "log" / "qemu" / "guest.serial").exists()


def end_virtlogd(host: Path) -> None:
    """End what writes guests' logs of a host, and what is left of it."""
    first = (host / "pid").read_text().split()[0]
    for child in Path(f"/proc/{first}/task/{first}/children").read_text().split():
        if Path(f"/proc/{child}/comm").read_text().strip() == "virtlogd":
            os.kill(int(child), signal.SIGKILL)
            wait_until(lambda: not processes.start_time(int(child)))  # noqa: B023 - waited for
    for left in (host / "run").glob("virtlogd*"):
        left.unlink()


@pytest.mark.qemu
def test_a_start_that_fails_midway_leaves_nothing(real_lab: Path) -> None:
    # Host 2's settings cannot be written.
    obstacle = real_lab / "hosts" / "2" / "etc" / "libvirtd.conf"
    obstacle.mkdir(parents=True)
    tag = secrets.token_hex(3)
    (real_lab / "tag").write_text(tag)

    with pytest.raises(LabError, match="Is a directory"):
        cluster.start_real_hosts(3, real_lab, guest_dir())

    assert links(tag) == []
    assert not (real_lab / "hosts" / "1").exists()
    assert cluster.host_statuses(real_lab) == []


@pytest.mark.qemu
def test_an_interrupted_start_leaves_nothing(real_lab: Path) -> None:
    script = str(cluster.SCRIPTS / "start-hosts")  # type: ignore[attr-defined]
    starting = subprocess.Popen(
        ["bash", script, "40", str(real_lab)],
        env={**os.environ, "LAB_TRANSPORT": "tls"},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    wait_until((real_lab / "hosts" / "2" / "pid").exists)
    tag = (real_lab / "tag").read_text()
    assert links(tag)

    starting.send_signal(signal.SIGTERM)

    assert starting.wait(60) != 0
    wait_until(lambda: not links(tag))
    assert list(real_lab.rglob("pid")) == []


def test_a_process_is_not_mistaken_for_another_with_its_pid(tmp_path: Path) -> None:
    sleeper = subprocess.Popen(["sleep", "600"])
    try:
        processes.record_process(sleeper.pid, tmp_path / "pid")
        assert processes.running_pid(tmp_path / "pid") == sleeper.pid

        (tmp_path / "pid").write_text(f"{sleeper.pid} 1\n")

        assert processes.running_pid(tmp_path / "pid") is None
        processes.end_process(tmp_path / "pid")
        assert sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_stopped_process_is_ended_too(tmp_path: Path) -> None:
    sleeper = subprocess.Popen(["sleep", "600"])
    processes.record_process(sleeper.pid, tmp_path / "pid")
    sleeper.send_signal(signal.SIGSTOP)

    processes.end_process(tmp_path / "pid")

    sleeper.wait(10)
    assert not (tmp_path / "pid").exists()


def test_a_machine_without_root_says_that_root_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    assert "root" in (cluster.real_hosts_obstacle() or "")


def test_a_machine_without_qemu_says_which_packages_are_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(cluster, "_search_path", lambda: "/nonexistent")

    assert "qemu-system-x86" in (cluster.real_hosts_obstacle() or "")


def wait_until(look: object, within_s: float = 60.0) -> None:
    assert callable(look)
    deadline = time.monotonic() + within_s
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.02)
