"""Into a VM of a real distribution by ssh and console, and what cloud-init made of its seed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.lab_hosts import LETS_TCP_IN, LabCluster
from tests.servers.running import RunningFuga, eventually, running_fuga
from tests.servers.terminal import at_a_terminal

pytestmark = [pytest.mark.qemu, pytest.mark.sqlite, pytest.mark.slow]

BOOT_S = 3600.0  #: emulated, on a machine with other work
HOSTS = """
[[host]]
name = "kvm-1"
uri = "{uri}"
domain_type = "qemu"
memory_backing_mib = 384
overrides = {{ vcpus = 4, memory_mib = 8192, disk_gib = 100 }}
"""
PASSWORD = "good-at-this-console-alone"
USER_DATA = f"""#cloud-config
password: {PASSWORD}
chpasswd: {{expire: false}}
write_files:
- path: /etc/told
  content: told by user-data
runcmd:
- echo once >> /var/lib/ran
"""


@pytest.fixture(scope="module")
def image() -> Path:
    return Path(os.environ["FUGA_TEST_DISTRIBUTION"]) / "debian.qcow2"


@pytest.fixture(scope="module")
def lab(lab_cluster) -> LabCluster:
    return lab_cluster(1)


@pytest.fixture(scope="module")
def fuga(lab, tmp_path_factory) -> Iterator[RunningFuga]:
    state_dir = tmp_path_factory.mktemp("logins") / "state"
    state_dir.mkdir()
    file = state_dir / "hosts.toml"
    file.write_text(HOSTS.format(uri=lab.uris[0]))
    with running_fuga(state_dir, "--hosts", str(file), **LETS_TCP_IN) as fuga:
        yield fuga


@pytest.fixture
def on_the_network(lab) -> list[str]:
    """What comes before a command that is to run where guests of the host are reached.

    The host itself is the gateway: guests' switch is a bridge of its own.
    """
    pid = (lab.directory / "hosts" / "1" / "pid").read_text().split()[0]
    there = ["nsenter", "-t", pid, "-n"]
    subprocess.run([*there, "ip", "address", "replace", "10.77.0.1/24", "dev", "br0"], check=True)
    return there


def test_a_tenant_logs_in_to_a_vm_of_a_distribution(fuga, image, on_the_network, tmp_path):
    key = new_key(tmp_path / "laptop")
    stranger = new_key(tmp_path / "stranger")
    (tmp_path / "setup.yaml").write_text(USER_DATA)
    fuga.cli("image", "add", "debian-12", str(image), "--seed", "nocloud", "--min-memory", "256")
    subnet = ["--cidr", "10.77.0.0/24", "--gateway", "10.77.0.1", "--dns", "10.77.0.1"]
    fuga.cli("network", "add", "lan", "--source", "default", *subnet)
    fuga.cli("--as", "a", "key", "add", "laptop", f"{key}.pub")

    requested = ["request", "tiny", "--name", "my.web", "--image", "debian-12", "--network", "lan"]
    requested += ["--hostname", "db.example.org", "--user-data", str(tmp_path / "setup.yaml")]
    fuga.cli("--as", "a", *requested, "--wait")

    [vm] = json.loads(fuga.cli("--as", "a", "vms", "-o", "json").stdout)
    assert vm["address"] == "10.77.0.2"

    def in_the_guest(command: str, key: Path = key) -> subprocess.CompletedProcess[str]:
        login = ["ssh", "-i", str(key), *SSH_OPTIONS, f"debian@{vm['address']}", command]
        return subprocess.run(
            [*on_the_network, *login], capture_output=True, text=True, check=False
        )

    def answers() -> bool:
        return in_the_guest("true").returncode == 0

    eventually(answers, within_s=BOOT_S, every_s=2)
    status = in_the_guest("cloud-init status --wait --long").stdout
    assert "status: done" in status, status
    assert in_the_guest("sudo grep -E 'WARNING|ERROR' /var/log/cloud-init.log").stdout == ""
    assert told(in_the_guest, "hostname") == "db"
    assert told(in_the_guest, "cloud-init query ds.meta_data.local-hostname") == "db.example.org"
    assert told(in_the_guest, "cloud-init query instance_id") == f"{vm['id']}-1"
    assert told(in_the_guest, "cat /etc/told /var/lib/ran") == "told by user-dataonce"
    assert "10.77.0.2/24" in told(in_the_guest, "ip -o -4 address show eth0")
    assert "default via 10.77.0.1 " in told(in_the_guest, "ip route")
    assert "10.77.0.1" in told(in_the_guest, "resolvectl dns eth0")
    assert vm["mac"] in told(in_the_guest, "ip link show eth0")
    disk_gib = int(told(in_the_guest, "lsblk -bdno SIZE /dev/vda")) // 2**30
    assert disk_gib == 5  # what a tiny has
    root_kib = int(told(in_the_guest, "df -k --output=size / | tail -1"))
    assert root_kib > 4 * 2**20  # grown to it
    refused = in_the_guest("true", stranger)
    assert "Permission denied" in refused.stderr

    assert "db login:" in fuga.cli("--as", "a", "console", "my.web-1", "--log").stdout
    with at_a_terminal("--as", "a", "console", "my.web-1", env=fuga.environment()) as terminal:
        for shown, keys in (
            (b"[fuga: attached]", b"\r"),
            (b"db login: ", b"debian\r"),
            (b"Password: ", PASSWORD.encode() + b"\r"),
            (b"debian@db:~$ ", b"sudo cat /var/lib/cloud/data/instance-id\r"),
            (f"{vm['id']}-1\r\n".encode(), b"\x1d"),
        ):
            terminal.until(shown, within_s=BOOT_S)
            terminal.type(keys)
        assert terminal.ended() == 0

    # It shuts down when it is told to, and is the same machine when it is back.
    fuga.cli("--as", "a", "stop", "my.web-1", "--timeout", "600", "--wait")
    assert "forced" not in fuga.cli("events", "--subject", vm["id"]).stdout
    fuga.cli("--as", "a", "start", "my.web-1", "--wait")
    eventually(answers, within_s=BOOT_S, every_s=2)
    assert told(in_the_guest, "cat /var/lib/ran") == "once"
    fuga.cli("rm", "my.web", "--wait")


SSH_OPTIONS = [
    word
    for option in (
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=/dev/null",
        "IdentitiesOnly=yes",
        "IdentityAgent=none",
        "BatchMode=yes",
        "ConnectTimeout=300",
        "LogLevel=ERROR",
    )
    for word in ("-o", option)
]


def new_key(file: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)], check=True)
    return file


def told(in_the_guest, command: str) -> str:
    done = in_the_guest(command)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout.strip()
