"""`fuga up --hosts FILE` with the register center on PostgreSQL: from a request to real guests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from registry import upgrade
from tests.kill_nine import domains, hosts_file
from tests.raw_sql import raw_sql
from tests.servers.lab_hosts import LETS_TCP_IN, LabCluster
from tests.servers.postgres import RUN_ROLE, PostgresServer, as_run_role
from tests.servers.running import RunningFuga, eventually

pytestmark = [pytest.mark.qemu, pytest.mark.postgresql, pytest.mark.slow]


def test_requests_become_guests_that_boot_and_doctor_finds_all_well_but_their_open_host(
    postgres: PostgresServer, lab_cluster: Callable[[int], LabCluster], tmp_path: Path
) -> None:
    lab = lab_cluster(1)
    (host,) = lab.hosts
    state_dir = tmp_path / "state"
    file = hosts_file(tmp_path / "hosts.toml", [host])
    with postgres.database() as url:
        fuga = RunningFuga(
            state_dir,
            arguments=("--hosts", str(file)),
            env={"FUGA_DATABASE_URL": as_run_role(url), **LETS_TCP_IN},
        )
        try:
            database = url.partition("?")[0].rpartition("/")[2]
            postgres.run(RUN_ROLE, database)
            upgrade(url)
            postgres.run(RUN_ROLE, database)
            fuga.start()
            fuga.wait_until_served()
            fuga.cli("request", "tiny", "-n", "2", "--tenant", "a", "--name", "web", "--wait")

            body = json.loads(fuga.cli("-o", "json", "doctor", check=False).stdout)
            explained = fuga.cli("explain", "web-1").stdout
            with raw_sql(url) as raw:
                running = raw.rows("SELECT id FROM vms WHERE observed = 'running'")
                committed = raw.value(
                    "SELECT sum(committed) FROM inventories WHERE resource = 'vcpus'"
                )
            seen = domains(host.uri)
            for vm in running:
                log = lab.serial_log(1, f"fuga-{vm['id']}")
                ready = f"LAB-GUEST-READY uuid={vm['id']}"
                eventually(lambda log=log, ready=ready: log.exists() and ready in log.read_text())
            fuga.cli("rm", "web", "--wait")
            eventually(lambda: json.loads(fuga.cli("-o", "json", "vms").stdout) == [])
        finally:
            fuga.down()

    assert set(seen) == {str(vm["id"]) for vm in running}
    assert len(running) == 2
    assert committed == 2
    [wrong] = [each for each in body["findings"] if not each["well"]]
    assert wrong["about"] == "host kvm-1"
    assert "plain TCP" in wrong["message"]
    assert "fuga_run writes rows and no tables" in [each["message"] for each in body["findings"]]
    assert "kvm-1" in explained
    assert domains(host.uri) == {}
    assert not (state_dir / "fuga.db").exists()
