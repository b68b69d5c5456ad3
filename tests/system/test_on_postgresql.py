"""`fuga up --hosts FILE` with the register center on PostgreSQL: from a request to running VMs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.cluster import LabHost
from tests.postgres import PostgresServer
from tests.raw_sql import raw_sql
from tests.running import RunningFuga, eventually

pytestmark = [pytest.mark.test_driver, pytest.mark.postgresql, pytest.mark.slow]


def test_requests_become_running_vms_and_doctor_finds_all_well(
    postgres: PostgresServer, driver_hosts: Callable[[int], list[LabHost]], tmp_path: Path
) -> None:
    state_dir = tmp_path / "state"
    file = tmp_path / "hosts.toml"
    file.write_text(
        "\n".join(
            f'[[host]]\nname = "kvm-{number}"\nuri = "{host.uri}"\ndomain_type = "test"\n'
            for number, host in enumerate(driver_hosts(2), start=1)
        )
    )
    with postgres.database() as url:
        fuga = RunningFuga(
            state_dir,
            arguments=("--hosts", str(file)),
            env={
                "FUGA_DATABASE_URL": url,
                "FUGA_URI_SCHEMES": '["test+unix"]',
                "FUGA_URI_PARAMETERS": '["socket"]',
            },
        )
        try:
            assert "at revision" in fuga.cli("db", "upgrade").stdout
            fuga.start()
            fuga.wait_until_served()
            fuga.cli("request", "tiny", "-n", "3", "--tenant", "a", "--name", "web", "--wait")
            fuga.cli("request", "small", "-n", "2", "--tenant", "b", "--name", "db", "--wait")

            told = json.loads(fuga.cli("-o", "json", "doctor").stdout)
            explained = fuga.cli("explain", "web-1").stdout
            with raw_sql(url) as raw:
                running = raw.value("SELECT count(*) FROM vms WHERE observed = 'running'")
                committed = raw.value(
                    "SELECT sum(committed) FROM inventories WHERE resource = 'vcpus'"
                )
            fuga.cli("rm", "web", "--wait")
            fuga.cli("rm", "db", "--wait")
            eventually(lambda: json.loads(fuga.cli("-o", "json", "vms").stdout) == [])
        finally:
            fuga.down()

    assert running == 5
    assert committed >= 5
    assert {each["well"] for each in told["findings"]} == {True}
    assert "kvm-" in explained
    assert not (state_dir / "fuga.db").exists()
