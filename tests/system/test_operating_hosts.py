"""The operations guide's chapters about hosts and the VMs on them, typed against real hosts.

Shared pools, and failover with the disk. Where the guide has names and addresses of its example,
the lab's stand; the lab's hosts share a folder as others share NFS.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hypervisor import HostConnection
from tests.kill_nine import hosts_file, virsh, volumes
from tests.servers.lab_guests import run_in_guest
from tests.servers.lab_hosts import LETS_TCP_IN
from tests.servers.running import eventually, running_fuga
from tests.system.guide import Shell, chapter, program
from tests.system.test_first_steps import READY

pytestmark = [pytest.mark.qemu, pytest.mark.sqlite, pytest.mark.slow]
HOSTS = ("kvm-1", "kvm-2", "kvm-3")
SLOW_S = 600  #: for what emulated guests and polls take on a busy machine
#: Switches a lab host off, unless its BMC is said to be dead.
FENCE = """#!/bin/sh
host=${{1%-bmc}}
if [ -e {lab}/$host-bmc-is-dead ]; then echo "$1 does not answer" >&2; exit 1; fi
exec {scripts}/host-fault {lab} "${{host#kvm-}}" power-off
"""
#: What a lab host is told besides what the guide says.
OF_THE_LAB = (
    "--domain-type qemu --base-volume base.qcow2 --memory-backing-mib 96"
    " --override vcpus=4 --override memory_mib=8192 --override disk_gib=200"
)


class Typist(Shell):
    """Types commands of the guide against this lab."""

    def ask_doctor(self, line: str) -> None:
        """Type what asks the doctor; hosts of the lab listen without TLS, and else all is well."""
        wrong = [each for each in self.type(line, ends=1).splitlines() if "WRONG" in each]
        assert len(wrong) == len(HOSTS), wrong
        assert all("plain TCP" in each for each in wrong), wrong


@pytest.fixture(scope="module")
def lab(lab_cluster):
    return lab_cluster(len(HOSTS))


@pytest.fixture(scope="module")
def fuga(lab, tmp_path_factory):
    state_dir = tmp_path_factory.mktemp("operating") / "state"
    state_dir.mkdir()
    file = hosts_file(state_dir / "hosts.toml", list(lab.hosts))
    fence = program(state_dir / "fence", FENCE, lab.directory)
    settings = {
        "FUGA_FENCE_COMMAND": f'["{fence}", "{{target}}"]',
        "FUGA_UNREACHABLE_AFTER": "2",
        "FUGA_DOWN_AFTER": "4",
    }
    with running_fuga(state_dir, "--hosts", str(file), **LETS_TCP_IN, **settings) as fuga:
        yield fuga


@pytest.fixture
def shell(fuga, tmp_path):
    return Typist(fuga, tmp_path)


@pytest.fixture
def folder(lab, tmp_path):
    """What two hosts share; the pools that the guide makes of it are gone afterwards."""
    folder = tmp_path / "nfs1"
    folder.mkdir()
    images = lab.hosts[0].images_dir
    assert images is not None
    (folder / "base.qcow2").write_bytes((images / "base.qcow2").read_bytes())
    yield folder
    lab.restore()
    for host in lab.hosts[:2]:
        virsh(host.uri, "pool-destroy", "nfs1")
        virsh(host.uri, "pool-undefine", "nfs1")


@pytest.mark.long
def test_hosts_come_to_share_a_pool_and_a_vm_outlives_each_of_them(lab, fuga, shell, folder):
    fuga.cli("request", "tiny", "--name", "web", "--tenant", "a", "--wait")
    vm = the_vm(fuga)
    eventually(lambda: booted(lab, vm["id"], vm["host"]), within_s=SLOW_S)
    in_guest(lab, vm, "echo written | dd of=/dev/vda bs=1M seek=900 conv=fsync")

    *changing, moving, looking = chapter("Shared pools")
    assert [line.split()[2] for line in changing] == ["drain", "remove", "add"]
    for host, name in zip(lab.hosts[:2], HOSTS, strict=False):
        for line in chapter("Shared pools", prompt="#"):
            typed = line.replace("/srv/nfs1", str(folder))
            shell.type(typed, VIRSH_DEFAULT_CONNECT_URI=host.uri)
        for line in changing:
            typed = line.replace("kvm-1", name).replace("--credential site", OF_THE_LAB)
            typed = typed.replace(f"qemu+tls://{name}.example.org/system", host.uri)
            shell.type(typed.replace("nfs1 --wait", f"nfs1 --wait --timeout {SLOW_S}"))
    if the_vm(fuga)["host"] != "kvm-1":
        fuga.cli("move", "web-1", "--to", "kvm-1", "--wait")
    [disk] = disks(folder)
    assert "moved from kvm-1 to kvm-2" in shell.type(moving)
    assert disks(folder) == {disk}
    shell.ask_doctor(looking)

    first, second, doctor, *at_night = chapter("Failover with the disk")
    shell.type(first)
    shell.type(second)
    shell.ask_doctor(doctor)
    seeing, by_hand, returning = at_night[:4], at_night[4], at_night[5:]

    # By itself: the host is cut off, its guest runs on until the host is fenced.
    lab.fault(2, "cut-network")
    eventually(lambda: runs_on(fuga, "kvm-1"), within_s=SLOW_S)
    seen = [shell.type(line) for line in seeing]
    assert re.search(r"kvm-2 .*down", seen[0])
    assert "fenced" in seen[2]
    assert "kvm-1" in seen[3]
    assert said_by_its_disk(lab, fuga) == ["written"]
    returns(lab, fuga, "kvm-2")
    for line in returning:
        shell.type(line)

    # By hand, where the fencing command fails.
    (lab.directory / "kvm-1-bmc-is-dead").touch()
    lab.fault(1, "cut-network")
    showing = seeing[1].replace("kvm-2", "kvm-1")
    eventually(lambda: "kvm-1-bmc does not answer" in shell.type(showing), within_s=SLOW_S)
    assert the_vm(fuga)["host"] == "kvm-1"
    lab.fault(1, "power-off")
    shell.type(by_hand.replace("kvm-2", "kvm-1"))
    eventually(lambda: runs_on(fuga, "kvm-2"), within_s=SLOW_S)
    assert said_by_its_disk(lab, fuga) == ["written"]
    returns(lab, fuga, "kvm-1")

    assert disks(folder) == {disk}
    assert volumes(lab.hosts[0].uri) == volumes(lab.hosts[1].uri) == set()
    fuga.cli("rm", "web", "--wait")
    eventually(lambda: disks(folder) == set(), within_s=SLOW_S)


def returns(lab, fuga, name: str) -> None:
    """Start a host again that was switched off, and wait until fuga has it back."""
    lab.restore()
    with fuga.client() as operator:
        there = f"/v1/hosts/{name}"
        eventually(lambda: operator.get(there).json()["health"] == "up", within_s=SLOW_S)


def the_vm(fuga) -> dict:
    with fuga.client() as operator:
        [vm] = operator.get("/v1/vms").json()["items"]
    return vm


def runs_on(fuga, host: str) -> bool:
    vm = the_vm(fuga)
    return (vm["host"], vm["observed"]) == (host, "running")


def said_by_its_disk(lab, fuga) -> list[str]:
    vm = the_vm(fuga)
    eventually(lambda: booted(lab, vm["id"], vm["host"]), within_s=SLOW_S)
    return in_guest(lab, vm, "dd if=/dev/vda bs=1M skip=900 count=1 2>/dev/null | head -n1")


def in_guest(lab, vm, words: str) -> list[str]:
    with HostConnection(lab.uris[HOSTS.index(vm["host"])], deadline_s=60.0) as connection:
        return run_in_guest(connection, vm["id"], words)


def disks(folder: Path) -> set[str]:
    return {each.name for each in folder.glob("fuga-*.qcow2")}


def booted(lab, vm: str, host: str) -> bool:
    """Whether a guest said on its serial console there that it is up."""
    log = lab.serial_log(HOSTS.index(host) + 1, f"fuga-{vm}")
    return log.exists() and vm in READY.findall(log.read_text(errors="replace"))
