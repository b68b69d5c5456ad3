"""`fuga up` and `fuga down` as a person meets them, on hosts of libvirt's test driver."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from controller.embedded.processes import ProcessId
from lab import cluster
from tests.servers.running import RunningFuga, eventually, running_fuga

pytestmark = [pytest.mark.test_driver, pytest.mark.sqlite, pytest.mark.slow]


@pytest.fixture(scope="module")
def fuga(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFuga]:
    state_dir = tmp_path_factory.mktemp("up") / "state"
    with running_fuga(state_dir, "--driver", "test") as fuga:
        yield fuga


def children(fuga: RunningFuga) -> dict[str, ProcessId]:
    noted = json.loads((fuga.state_dir / "processes.json").read_text())
    return {name: ProcessId(it["pid"], it["started"]) for name, it in noted.items()}


def hosts_run(state_dir: Path) -> list[bool]:
    return [host.running for host in cluster.host_statuses(state_dir / "lab")]


def test_the_papers_cluster_types_and_tenants_are_there(fuga: RunningFuga) -> None:
    hosts = json.loads(fuga.cli("-o", "json", "host", "list").stdout)
    types = json.loads(fuga.cli("-o", "json", "type", "list").stdout)
    tenants = json.loads(fuga.cli("-o", "json", "tenant", "list").stdout)

    capacities = [tuple(it["capacity"] for it in host["inventories"]) for host in hosts]
    assert capacities == [(16, 32768, 300)] + [(4, 8192, 500)] * 3 + [(4, 4096, 200)] * 4
    assert {host["health"] for host in hosts} == {"up"}
    assert {it["name"] for it in types} == {"tiny", "small", "medium", "large", "xlarge"}
    assert {it["name"] for it in tenants} == {"a", "b"}


def test_it_says_which_hosts_it_took(fuga: RunningFuga) -> None:
    assert "8 hosts of libvirt's test driver" in fuga.output()


def test_the_link_that_it_leaves_in_a_file_logs_an_operator_in_once(fuga: RunningFuga) -> None:
    lines = fuga.output().splitlines()
    file = fuga.state_dir / "login-link"
    assert "#login=" not in fuga.output()  # no terminal: others may read it
    assert str(file) in {each.strip() for each in lines}
    assert file.stat().st_mode & 0o777 == 0o600
    page, code = file.read_text().strip().split("#login=")
    assert page == f"{fuga.credentials()['url']}/web/"

    first, second = (
        httpx.post(f"{fuga.credentials()['url']}/v1/login", json={"code": code}) for _ in range(2)
    )

    assert (first.status_code, first.json()["role"], second.status_code) == (201, "operator", 401)
    again = fuga.cli("login", "--link", "--read-only").stdout
    assert f"{page}#login=" in again
    assert "once, within 10 m" in again
    assert code not in (fuga.state_dir / "logs" / "api.log").read_text()


def test_tokens_are_for_their_owner_alone(fuga: RunningFuga) -> None:
    path = fuga.state_dir / "credentials.json"

    assert path.stat().st_mode & 0o777 == 0o600
    assert set(fuga.credentials()["tenants"]) == {"a", "b"}
    assert fuga.cli("--as", "b", "requests").returncode == 0
    assert fuga.cli("--as", "b", "host", "list", check=False).returncode == 2


def test_a_second_up_is_refused_and_disturbs_nothing(fuga: RunningFuga) -> None:
    before = children(fuga)

    second = fuga.cli("up", "--port", "0", check=False)

    assert second.returncode == 1
    assert "already runs" in second.stderr
    assert children(fuga) == before
    assert all(each.alive for each in before.values())


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["api", "control", "monitor", "worker"])
def test_a_process_that_dies_is_started_again(fuga: RunningFuga, name: str) -> None:
    before = children(fuga)[name]

    before.signal(signal.SIGKILL)
    eventually(lambda: children(fuga)[name] != before and children(fuga)[name].alive)

    assert f"{name} ended unexpectedly (SIGKILL)" in fuga.output()
    eventually(lambda: fuga.cli("requests", check=False).returncode == 0)
    requested = fuga.cli("request", "tiny", "--tenant", "a", "--wait", "--timeout", "90")
    request = re.findall(r"VMs of (\S+) run", requested.stdout)[0]
    fuga.cli("rm", request, "--wait")


def test_what_does_not_fit_ends_a_wait_with_3_and_the_reason(fuga: RunningFuga) -> None:
    ended = fuga.cli(
        "request", "xlarge", "-n", "9", "--tenant", "b", "--name", "much", "--wait",
        "--timeout", "12", check=False,
    )  # fmt: skip
    explained = fuga.cli("explain", "much")
    fuga.cli("rm", "much")

    assert ended.returncode == 3
    assert "no_room" in ended.stderr
    assert "hosts" in explained.stdout


@pytest.mark.long
def test_room_is_reserved_and_drawn_on(fuga: RunningFuga) -> None:
    requested = ("reserve", "small", "-n", "2", "--for", "2h", "--name", "launch", "--tenant", "a")
    assert "there will be room" in fuga.cli(*requested).stdout

    def launch() -> dict[str, Any]:
        return json.loads(fuga.cli("-o", "json", "reservation", "show", "launch").stdout)

    eventually(lambda: launch()["held"] == 2)
    drawing = ("request", "small", "--name", "drawn", "--tenant", "a", "--reservation", "launch")
    fuga.cli(*drawing, "--wait", "--timeout", "90")
    shown = launch()
    assert (shown["state"], shown["used"], shown["left"]) == ("in_force", 1, 1)
    assert "the reservation that its request draws on" in fuga.cli("explain", "drawn-1").stdout
    assert (
        "1 VM is left of it" in fuga.cli(*drawing[:2], "-n", "2", *drawing[4:], check=False).stderr
    )
    fuga.cli("reservation", "cancel", "launch")
    fuga.cli("rm", "drawn", "--wait")
    refused = fuga.cli("reserve", "xlarge", "-n", "99", "--for", "1h", "--tenant", "b", check=False)
    assert refused.returncode == 1
    assert "would be accepted" in refused.stderr


def test_doctor_finds_all_well_and_shows_what_is_in_force(fuga: RunningFuga) -> None:
    body = json.loads(fuga.cli("-o", "json", "doctor").stdout)

    settings = {each["setting"]: each for each in body["settings"]}
    assert settings["slot_length_s"]["value"] == "5"
    assert settings["slot_length_s"]["from"] == "fuga up"
    assert {each["well"] for each in body["findings"]} == {True}
    assert fuga.credentials()["operator"] not in json.dumps(body)


@pytest.mark.long
def test_doctor_deletes_what_is_no_images_file_when_it_is_told_to(fuga: RunningFuga) -> None:
    stray = fuga.state_dir / "images" / "00000000-0000-7000-8000-000000000000.qcow2"
    stray.parent.mkdir(exist_ok=True)
    stray.touch()

    found = fuga.cli("doctor", check=False)
    mended = fuga.cli("doctor", "--repair", "--hashes")

    assert (found.returncode, stray.exists()) == (1, False)
    assert f"{stray}: no image has this file; `fuga doctor --repair` deletes it" in found.stdout
    assert f"deleted: {stray}: no image has this file" in mended.stdout
    assert fuga.cli("doctor", "--hosts", "--hashes", check=False).returncode == 2


@pytest.mark.long
def test_it_goes_on_where_it_was_and_down_ends_it_honestly(tmp_path: Path) -> None:
    fuga = RunningFuga(tmp_path / "state", arguments=("--driver", "test"))
    try:
        fuga.start()
        fuga.wait_until_served()
        fuga.cli("request", "small", "-n", "3", "--tenant", "a", "--name", "web", "--wait")
        tokens = fuga.credentials()["tenants"], fuga.credentials()["operator"]
        first = children(fuga)

        status = fuga.interrupt()

        assert status == 0
        assert "hosts and guests keep running" in fuga.output()
        assert not any(each.alive for each in first.values())
        assert hosts_run(fuga.state_dir) == [True] * 8

        fuga.start()
        fuga.wait_until_served()

        assert (fuga.credentials()["tenants"], fuga.credentials()["operator"]) == tokens
        assert fuga.sql("select count(*) from hosts") == [(8,)]
        assert fuga.sql("select max(generation), count(*) from vms") == [(1, 3)]
        eventually(lambda: fuga.cli("vms").stdout.count("running") == 3)
        for volume, vm in (("data", "web-1"), ("more", "web-2")):
            fuga.cli("volume", "create", volume, "--size", "1", "--tenant", "a")
            fuga.cli("volume", "attach", volume, vm, "--tenant", "a", "--wait")
        fuga.cli("volume", "detach", "more", "--tenant", "a", "--wait")

        fuga.down(purge=False)

        assert hosts_run(fuga.state_dir) == []
        assert fuga.sql("select distinct admin from hosts") == [("retired",)]
        assert fuga.sql("select sum(committed) from inventories") == [(0,)]
        assert fuga.sql("select distinct desired, observed from vms") == [("deleted", "absent")]
        assert fuga.sql("select distinct state from volumes") == [("removed",)]

        fuga.start()
        fuga.wait_until_served()

        assert fuga.cli("-o", "json", "vms").stdout.strip() == "[]"
        fuga.cli("request", "small", "--tenant", "a", "--name", "web", "--wait")
    finally:
        fuga.down()
    assert not (fuga.state_dir / "fuga.db").exists()
    assert not (fuga.state_dir / "credentials.json").exists()


@pytest.mark.long
def test_hosts_that_are_found_elsewhere_after_an_upgrade_keep_their_vms(tmp_path: Path) -> None:
    fuga = RunningFuga(tmp_path / "state", arguments=("--driver", "test"))
    try:
        fuga.start()
        fuga.wait_until_served()
        fuga.cli("request", "small", "-n", "3", "--tenant", "a", "--name", "web", "--wait")
        now = fuga.sql("select name, uri from hosts order by name")
        fuga.interrupt()
        with closing(sqlite3.connect(fuga.database)) as raw, raw:  # as an older version left it
            raw.execute("update hosts set uri = 'test+tcp://10.213.0.' || substr(name, 6) || '/'")
        memory = fuga.state_dir / "embedded.json"
        kept = json.loads(memory.read_text())
        kept["lab_uris"] = [f"test+tcp://10.213.0.{number}/" for number in range(1, 9)]
        memory.write_text(json.dumps(kept))

        fuga.start()
        fuga.wait_until_served()

        assert "8 have new addresses, by test+unix" in fuga.output_since_start()
        assert fuga.sql("select name, uri from hosts order by name") == now
        assert fuga.sql("select max(generation), count(*) from vms") == [(1, 3)]
        eventually(lambda: fuga.cli("vms").stdout.count("running") == 3)
        eventually(lambda: fuga.cli("host", "list").stdout.count(" up ") == 8)
    finally:
        fuga.down()


def test_processes_end_when_up_is_killed_and_up_goes_on(tmp_path: Path) -> None:
    fuga = RunningFuga(tmp_path / "state", arguments=("--driver", "test"))
    try:
        fuga.start()
        fuga.wait_until_served()
        first = children(fuga)
        holder = int((fuga.state_dir / "up.lock").read_text().split()[0])

        os.kill(holder, signal.SIGKILL)

        eventually(lambda: not any(each.alive for each in first.values()))
        fuga.start()
        fuga.wait_until_served()
        assert fuga.sql("select count(*) from hosts") == [(8,)]
    finally:
        fuga.down()


@pytest.mark.long
def test_own_hosts_that_do_not_answer_stay_enrolling_with_their_error(tmp_path: Path) -> None:
    file = tmp_path / "hosts.toml"
    file.write_text('[[host]]\nname = "kvm-1"\nuri = "qemu+tls://127.0.0.1:9/system"\n')

    with running_fuga(tmp_path / "state", "--hosts", str(file)) as fuga:
        (host,) = json.loads(fuga.cli("-o", "json", "host", "list").stdout)

    assert host["health"] == "enrolling"
    assert host["last_error"]
    assert "kvm-1 is starting:" in fuga_output(tmp_path)


def test_a_forbidden_uri_is_refused_before_anything_runs_on(tmp_path: Path) -> None:
    file = tmp_path / "hosts.toml"
    uri = "qemu+ssh://kvm-1/system?command=/bin/sh"
    file.write_text(f'[[host]]\nname = "kvm-1"\nuri = "{uri}"\n')
    fuga = RunningFuga(tmp_path / "state")

    refused = fuga.cli("up", "--port", "0", "--hosts", str(file), check=False)

    assert refused.returncode == 2
    assert "host kvm-1 cannot be registered" in refused.stderr
    assert "command" in refused.stderr
    assert not (fuga.state_dir / "processes.json").exists()


def test_detached_it_returns_once_all_runs_and_down_ends_it(tmp_path: Path) -> None:
    fuga = RunningFuga(tmp_path / "state")
    try:
        up = fuga.cli("up", "--port", "0", "--driver", "test", "--detach")
        running = children(fuga)

        assert "Try in another terminal" in up.stdout
        assert fuga.cli("host", "list").stdout.count(" up ") == 8
    finally:
        fuga.cli("down", "--purge")
    assert not any(each.alive for each in running.values())
    assert not fuga.state_dir.exists()


def fuga_output(folder: Path) -> str:
    return (folder / "state" / "up.out").read_text()
