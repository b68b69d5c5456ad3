"""The operations guide's chapters about hosts and the VMs on them, typed against real hosts.

Maintenance, balancing, shared pools, and failover with the disk. Where the guide has names and
addresses of its example, the lab's stand; the lab's hosts share a folder as others share NFS.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from hypervisor import HostConnection
from lab import SCRIPTS
from tests.docs.markdown import ROOT, split
from tests.kill_nine import hosts_file, virsh, volumes
from tests.servers.lab_guests import run_in_guest
from tests.servers.lab_hosts import LETS_TCP_IN
from tests.servers.running import FUGA, eventually, running_fuga
from tests.system.test_first_steps import READY

pytestmark = [
    pytest.mark.qemu,
    pytest.mark.sqlite,
    pytest.mark.slow,
]
HOSTS = ("kvm-1", "kvm-2", "kvm-3")
VMS = 5
SLOW_S = 600  #: for what emulated guests and polls take on a busy machine
#: In place of the guide's program, which logs in to hosts: it restarts a lab host's libvirtd. That
#: is tried again where the machine is so slow that the daemon does not answer in time.
UPDATE = """#!/bin/sh
echo "$1" >>ran
for try in 1 2 3; do
  {scripts}/host-fault {lab} "${{1#kvm-}}" restart-daemon && exit 0
done
exit 1
"""
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


def chapter(title: str, prompt: str = "$") -> list[str]:
    """Return what a chapter has people type at a prompt; hosts are named as the lab's."""
    text = (ROOT / "docs" / "operations.md").read_text("utf-8")
    section = text.split(f"\n## {title}\n")[1].split("\n## ")[0]
    blocks = [block.text for block in split(section)[0] if block.info == "console"]
    lines = [line for block in blocks for line in block.splitlines()]
    typed = [line[2:] for line in lines if line.startswith(f"{prompt} ")]
    return [line.replace("kvm-0", "kvm-") for line in typed]


class Shell:
    """Types commands in a folder."""

    def __init__(self, fuga, folder: Path) -> None:
        self.folder = folder
        path = f"{Path(FUGA).parent}:{os.environ['PATH']}"
        self.environment = {**fuga.environment(), "PATH": path}

    def type(self, line: str, *, ends: int = 0, **environment: str) -> str:
        done = subprocess.run(
            ["bash", "-c", line],
            env={**self.environment, **environment},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == ends, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout

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
    fence = program(state_dir / "fence", FENCE, lab)
    settings = {
        "FUGA_FENCE_COMMAND": f'["{fence}", "{{target}}"]',
        "FUGA_UNREACHABLE_AFTER": "2",
        "FUGA_DOWN_AFTER": "4",
        "FUGA_PLAN_REST_S": "0",  # so that balancing ends by itself
    }
    with running_fuga(state_dir, "--hosts", str(file), **LETS_TCP_IN, **settings) as fuga:
        yield fuga


@pytest.fixture
def shell(fuga, tmp_path):
    return Shell(fuga, tmp_path)


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


def test_each_host_is_worked_on_and_no_guest_notices(lab, fuga, shell):
    fuga.cli("request", "tiny", "-n", str(VMS), "--name", "stay", "--tenant", "a", "--wait")
    with fuga.client() as operator:
        first = {vm["id"]: vm["host"] for vm in operator.get("/v1/vms").json()["items"]}
    eventually(lambda: all(booted(lab, *each) for each in first.items()), within_s=SLOW_S)
    program(shell.folder / "update-host", UPDATE, lab)
    commands = chapter("Maintenance of hosts")
    assert [line.split()[1] for line in commands] == ["host", "vms", "host", "roll", "roll"]

    told = [shell.type(line) for line in commands]

    assert "is done" in told[0]
    assert "stay" not in told[1]
    assert "is done: 3 hosts" in told[3]
    assert (shell.folder / "ran").read_text().split() == list(HOSTS)
    assert "done" in told[4]
    with fuga.client() as operator:
        hosts = operator.get("/v1/hosts").json()["items"]
        assert {(host["admin"], host["health"]) for host in hosts} == {("active", "up")}
        moves = operator.get("/v1/moves", params={"limit": 500}).json()["items"]
    assert {move["vm_id"] for move in moves} == first.keys()  # each was on a host in its turn

    # The host that was worked on last is empty now.
    proposing, approving, again = chapter("Balancing")
    proposed = shell.type(proposing)
    plan = re.match(r"plan (\S+): balance, proposed", proposed)[1]
    approved = shell.type(approving.replace("ID", plan))
    moved = int(re.search(rf"plan {plan} is done: (\d+) VM", approved)[1])
    assert moved > 0
    assert "no useful move" in shell.type(again)

    with fuga.client() as operator:
        vms = operator.get("/v1/vms").json()["items"]
        moves = operator.get("/v1/moves", params={"limit": 500}).json()["items"]
    assert {vm["observed"] for vm in vms} == {"running"}
    assert {move["state"] for move in moves} == {"moved"}
    now = {vm["id"]: vm["host"] for vm in vms}
    assert now.keys() == first.keys()
    # It said so where it booted; had it begun anew, it would have said so where it is.
    assert [vm for vm, host in now.items() if host != first[vm] and booted(lab, vm, host)] == []
    fuga.cli("rm", "stay", "--wait")


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


def program(path: Path, script: str, lab) -> Path:
    path.write_text(script.format(scripts=SCRIPTS, lab=lab.directory))
    path.chmod(0o755)
    return path


def booted(lab, vm: str, host: str) -> bool:
    """Whether a guest said on its serial console there that it is up."""
    log = lab.serial_log(HOSTS.index(host) + 1, f"fuga-{vm}")
    return log.exists() and vm in READY.findall(log.read_text(errors="replace"))
