"""No program that a process of ours starts inherits what opens the database or the broker."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from controller.fork_server.children import start_interpreter
from controller.fork_server.client import ForkServer
from controller.rounds.policy_process import PolicyProcess
from hypervisor import HostConnection, SharedHosts
from lab import cluster, driver_hosts
from registry.admin import backup
from registry.db.engine import parse_database_url
from tests.contract.test_hypervisor_faults import children_for
from tests.contract.test_shared_hosts import processes
from tests.servers.lab_hosts import start_real

SECRET = "s3cret-of-a-service"


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUGA_DATABASE_URL", f"postgresql+psycopg://fuga:{SECRET}@db/fuga")
    monkeypatch.setenv("FUGA_BROKER_URL", f"rediss://fuga:{SECRET}@broker/0")
    monkeypatch.setenv("FUGA_TOKEN", SECRET)
    monkeypatch.setenv("SOMETHING_OF_THE_SITES", SECRET)


def environ(pid: int) -> list[str]:
    """The environment that a process was started with."""
    found = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    assert any(variable.startswith("PATH=") for variable in found)
    return found


def tells(found: list[str]) -> list[str]:
    """Which variables of an environment are secret, or may be; the folder tells whose it is."""
    ours = (each for each in found if each.startswith("FUGA_"))
    return [each for each in found if SECRET in each] + [
        each for each in ours if not each.startswith("FUGA_STATE_DIR=")
    ]


def recorded(file: Path) -> int:
    return int(file.read_text().split()[0])


def test_the_child_that_reads_a_hosts_bytes() -> None:
    uri = "test:///default"
    before = children_for(uri)

    with HostConnection(uri, deadline_s=60) as connection:
        connection.report("default-pool")
        [pid] = children_for(uri) - before

        assert tells(environ(pid)) == []


def test_the_child_that_reads_many_hosts_bytes() -> None:
    hosts = SharedHosts(deadline_s=60)
    try:
        hosts.host("test:///default").report("default-pool")
        [pid] = processes()

        assert tells(environ(pid)) == []
    finally:
        hosts.close()


@pytest.mark.parametrize("way", ["started", "forked"])
def test_the_process_that_policies_run_in(way: str) -> None:
    server = ForkServer([])
    process = PolicyProcess(start=start_interpreter if way == "started" else server.fork)
    process.warm_up()
    try:
        assert process._child is not None
        assert tells(environ(process._child.pid)) == []
        assert server.pid is None or tells(environ(server.pid)) == []
    finally:
        process.close()
        server.close()


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that is searched first."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def test_postgresqls_programs_get_the_one_password_that_they_need(
    tools: Path, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    program = tools / "pg_dump"
    program.write_text(
        f"#!{sys.executable}\nimport os\nopen({str(seen)!r}, 'w').write(str(os.environ))"
    )
    program.chmod(0o755)
    url = parse_database_url("postgresql+psycopg://fuga:its-own@db/fuga")

    backup._run_postgresql_program("pg_dump", url)

    assert "'PGPASSWORD': 'its-own'" in seen.read_text()
    assert SECRET not in seen.read_text()


@pytest.mark.test_driver
def test_the_daemon_and_the_keeper_of_a_driver_host(tmp_path: Path) -> None:
    cluster.start_test_hosts(1, tmp_path)
    try:
        [host] = driver_hosts.started_hosts(tmp_path)
        assert tells(environ(recorded(host.keeper_pid))) == []
        assert tells(environ(recorded(host.daemon_pid))) == []
    finally:
        cluster.stop_hosts(tmp_path, purge=True)


@pytest.mark.qemu
def test_what_lives_on_of_a_real_lab_host(tmp_path: Path) -> None:
    lab = start_real(1, tmp_path)
    try:
        assert tells(environ(recorded(lab.directory / "hosts" / "1" / "pid"))) == []
    finally:
        cluster.stop_hosts(tmp_path, purge=True)
