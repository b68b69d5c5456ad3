"""From a request over REST to guests that boot, are measured, and are gone again."""

from __future__ import annotations

import json
import re
import subprocess
import uuid
from hashlib import sha256

import pytest

from tests.builders import a_public_key
from tests.kill_nine import domains, hosts_file, volumes
from tests.servers.lab_hosts import LETS_TCP_IN
from tests.servers.running import eventually, running_fuga
from tests.servers.terminal import at_a_terminal

pytestmark = [pytest.mark.qemu, pytest.mark.sqlite, pytest.mark.slow]


@pytest.fixture(scope="module")
def lab(lab_cluster):
    return lab_cluster(3)


@pytest.fixture(scope="module")
def fuga(lab, tmp_path_factory):
    """`fuga up` with an operator's one host; the others are registered over REST."""
    state_dir = tmp_path_factory.mktemp("guests") / "state"
    state_dir.mkdir()
    file = hosts_file(state_dir / "hosts.toml", list(lab.hosts[:1]))
    with running_fuga(state_dir, "--hosts", str(file), **LETS_TCP_IN) as fuga:
        yield fuga


def test_requests_become_guests_that_boot_are_measured_and_are_deleted(lab, fuga):
    with fuga.client() as operator:
        for number, host in enumerate(lab.hosts[1:], start=2):
            answer = operator.post("/v1/hosts", json=new_host(number, host.uri))
            assert answer.status_code == 202, answer.text
        eventually(lambda: {host["health"] for host in hosts(operator)} == {"up"})

    with fuga.client("a") as a, fuga.client("b") as b:
        wanted = {}
        for client, body in (
            (a, {"vm_type": "tiny", "count": 3}),
            (b, {"vm_type": "small", "count": 2, "hostname": "db.example.org"}),
        ):
            answer = client.post("/v1/requests", json=body)
            assert answer.status_code == 201, answer.text
            wanted[answer.json()["id"]] = client
        for request, client in wanted.items():
            eventually(lambda r=request, c=client: all_run(c.get(f"/v1/requests/{r}").json()))
        with fuga.client() as operator:  # who alone knows hosts by their own names
            vms = operator.get("/v1/vms").json()["items"]
        assert {vm["tenant"] for vm in a.get("/v1/vms").json()["items"]} == {"a"}

    where = {vm["id"]: int(vm["host"].removeprefix("kvm-")) for vm in vms}
    for vm, number in where.items():
        log = lab.serial_log(number, f"fuga-{vm}")
        ready = f"LAB-GUEST-READY uuid={vm}"
        eventually(lambda log=log, ready=ready: ready in read(log), within_s=600)
    shown = {hostname_read(lab, vm) for vm in vms if vm["tenant"] == "b"}
    assert shown == {"db-1.example.org", "db-2.example.org"}
    running = {vm for host in lab.hosts for vm, state in domains(host.uri).items()}
    assert running == set(where)

    eventually(lambda: measured(fuga) >= set(where))

    for request in wanted:
        fuga.cli("rm", request)
    eventually(lambda: all(not domains(host.uri) for host in lab.hosts))
    eventually(lambda: all(not volumes(host.uri) for host in lab.hosts))
    eventually(lambda: fuga.sql("select sum(committed) from inventories") == [(0,)])
    assert [lab.images(number) for number in (1, 2, 3)] == [{"base.qcow2"}] * 3
    assert fuga.sql("select count(*) from assignments where state != 'released'") == [(0,)]


def test_a_guest_reads_its_seed(lab, fuga, tmp_path):
    own, with_request = a_public_key("own"), a_public_key("with request")
    (tmp_path / "own.pub").write_text(f"{own}\n")
    (tmp_path / "more.pub").write_text(f"{with_request}\n")
    (tmp_path / "boot.sh").write_bytes(b"#!/bin/sh\necho hello\n")
    fuga.cli("--as", "a", "key", "add", "laptop", str(tmp_path / "own.pub"))

    subnet = ["--cidr", "10.77.0.0/24", "--gateway", "10.77.0.1"]
    fuga.cli("network", "add", "lan", "--source", "default", *subnet)

    requested = ["request", "tiny", "--name", "my.web", "--ssh-key", str(tmp_path / "more.pub")]
    requested += ["--network", "lan"]
    fuga.cli("--as", "a", *requested, "--user-data", str(tmp_path / "boot.sh"), "--wait")
    with fuga.client() as operator:  # who alone knows hosts by their own names
        [vm] = operator.get("/v1/vms", params={"name": "my.web-1"}).json()["items"]
    log = lab.serial_log(int(vm["host"].removeprefix("kvm-")), f"fuga-{vm['id']}")
    seed = eventually(lambda: re.search(r"SEED (.*?)\r?\n", read(log)))[1]

    assert dict(each.split("=") for each in seed.split()) == {
        "instance-id": f"{vm['id']}-1",
        "hostname": "my-web-1",
        "key": sha256(f"{own}\n{with_request}\n".encode()).hexdigest(),
        "user-data": sha256((tmp_path / "boot.sh").read_bytes()).hexdigest(),
        "address": "10.77.0.2/24",
    }
    assert f"SEED {seed}" in fuga.cli("--as", "a", "console", "my.web-1", "--log").stdout
    with at_a_terminal("--as", "a", "console", "my.web-1", env=fuga.environment()) as terminal:
        terminal.until(b"[fuga: attached]")
        terminal.type(b"is anybody there?\r")
        terminal.until(b"LAB-GUEST-HEARD is anybody there?\r\n")
        terminal.type(b"\x1d")
        assert terminal.ended() == 0
        assert terminal.settings() == terminal.before
    assert vm["address"] == "10.77.0.2"
    domain = virsh(lab.hosts[int(vm["host"].removeprefix("kvm-")) - 1].uri, vm["id"])
    assert vm["mac"] in domain
    assert "<filterref filter='fuga-apart-" in domain
    assert "<parameter name='IP' value='10.77.0.2'/>" in domain
    assert "<port isolated='yes'/>" in domain
    fuga.cli("rm", "my.web", "--wait")
    fuga.cli("network", "remove", "lan")
    assert not any("seed" in name for number in (1, 2, 3) for name in lab.images(number))
    fuga.cli("key", "remove", "laptop")


@pytest.mark.long
def test_the_guests_of_a_drained_host_move_while_they_run(lab, fuga):
    fuga.cli("request", "tiny", "-n", "4", "--name", "stay", "--tenant", "a", "--wait")
    with fuga.client() as operator:
        vms = operator.get("/v1/vms", params={"limit": 100}).json()["items"]
    drained = vms[0]["host"]
    number = int(drained.removeprefix("kvm-"))

    output = fuga.cli("host", "drain", drained, "--move", "--wait").stdout

    assert "is done" in output
    assert domains(lab.hosts[number - 1].uri) == {}
    assert lab.images(number) == {"base.qcow2"}
    with fuga.client() as operator:
        moved = operator.get("/v1/vms", params={"limit": 100}).json()["items"]
        [plan] = operator.get("/v1/plans").json()["items"]
        assert operator.post(f"/v1/plans/{plan['id']}/replay").json()["identical"]
    assert drained not in {vm["host"] for vm in moved}
    assert {vm["observed"] for vm in moved} == {"running"}
    here = {vm["id"] for vm in vms if vm["host"] == drained}
    assert plan["moves"] == len(here)
    for vm in vms:
        logs = [lab.serial_log(each, f"fuga-{vm['id']}") for each in (1, 2, 3)]
        boots = sum(read(log).count(f"LAB-GUEST-READY uuid={vm['id']}") for log in logs)
        assert boots <= 1, vm["name"]

    fuga.cli("host", "activate", drained)
    fuga.cli("rm", "stay", "--wait")
    eventually(lambda: fuga.sql("select sum(committed) from inventories") == [(0,)])


def test_a_host_that_does_not_answer_stays_enrolling_and_says_why(fuga):
    with fuga.client() as operator:
        answer = operator.post("/v1/hosts", json=new_host(9, "qemu+tcp://127.0.0.1:1/system"))
        assert answer.status_code == 202, answer.text

        host = eventually(lambda: enrolling_with_error(operator, "kvm-9"))

    assert host["health"] == "enrolling"
    assert "127.0.0.1:1" in host["last_error"]


def test_a_request_too_large_for_any_host_waits_and_says_so(fuga):
    with fuga.client("a") as a:
        request = a.post("/v1/requests", json={"vm_type": "xlarge", "count": 1}).json()["id"]

        shown = eventually(lambda: decided(a, request))

    assert shown["waiting"]["reason"] == "no_host_large_enough"
    assert shown["state"] == "pending"
    fuga.cli("rm", request)


def new_host(number: int, uri: str) -> dict:
    return {
        "name": f"kvm-{number}",
        "uri": uri,
        "domain_type": "qemu",
        "base_volume": "base.qcow2",
        "memory_backing_mib": 96,
        "overrides": {"vcpus": 4, "memory_mib": 8192, "disk_gib": 200},
    }


def virsh(uri: str, vm: str) -> str:
    """The domain of a VM as libvirt describes it."""
    command = ["virsh", "-q", "-c", uri, "dumpxml", vm]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def hosts(operator) -> list[dict]:
    return operator.get("/v1/hosts").json()["items"]


def enrolling_with_error(operator, name: str) -> dict | None:
    host = operator.get(f"/v1/hosts/{name}").json()
    return host if host["last_error"] else None


def all_run(request: dict) -> bool:
    return request["vms_running"] == request["count"]


def decided(client, request: str) -> dict | None:
    body = client.get(f"/v1/requests/{request}/explanation").json()
    return body if body["waiting"]["reason"] != "not_decided_yet" else None


def read(log) -> str:
    return log.read_text(errors="replace") if log.exists() else ""


def hostname_read(lab, vm: dict) -> str:
    """The host name that a guest found in its seed, which it tells before it is ready."""
    log = lab.serial_log(int(vm["host"].removeprefix("kvm-")), f"fuga-{vm['id']}")
    return re.search(r"SEED .*hostname=(\S+)", read(log))[1]


def measured(fuga) -> set[str]:
    """VMs whose processor time and resident memory the monitor's latest reports carry."""
    found = set()
    for (report,) in fuga.sql("select report from host_reports"):
        found |= {
            str(uuid.UUID(each["uuid"]))
            for each in json.loads(report)["domains"]
            if each["cpu_time_ns"] and each["memory_used_mib"]
        }
    return found
