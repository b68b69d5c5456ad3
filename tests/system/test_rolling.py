"""Maintenance as the operations guide has it: one host, then a command for all of them in turn."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lab import SCRIPTS
from tests.docs.markdown import ROOT, split
from tests.kill_nine import hosts_file
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
#: In place of the guide's program, which logs in to hosts: it restarts a lab host's libvirtd. That
#: is tried again where the machine is so slow that the daemon does not answer in time.
UPDATE = """#!/bin/sh
echo "$1" >>ran
for try in 1 2 3; do
  {scripts}/host-fault {lab} "${{1#kvm-}}" restart-daemon && exit 0
done
exit 1
"""


def typed() -> list[str]:
    """What the guide's section has people type, on hosts that are named as the guide's are not."""
    text = (ROOT / "docs" / "operations.md").read_text("utf-8")
    section = text.split("\n## Maintenance of hosts\n")[1].split("\n## ")[0]
    blocks = [block.text for block in split(section)[0] if block.info == "console"]
    lines = [line for block in blocks for line in block.splitlines()]
    return [line.removeprefix("$ ").replace("kvm-01", "kvm-1") for line in lines]


@pytest.fixture(scope="module")
def lab(lab_cluster):
    return lab_cluster(len(HOSTS))


@pytest.fixture(scope="module")
def fuga(lab, tmp_path_factory):
    state_dir = tmp_path_factory.mktemp("rolling") / "state"
    state_dir.mkdir()
    file = hosts_file(state_dir / "hosts.toml", list(lab.hosts))
    with running_fuga(state_dir, "--hosts", str(file), **LETS_TCP_IN) as fuga:
        yield fuga


def test_each_host_is_worked_on_and_no_guest_notices(lab, fuga, tmp_path):
    fuga.cli("request", "tiny", "-n", str(VMS), "--name", "stay", "--tenant", "a", "--wait")
    with fuga.client() as operator:
        first = {vm["id"]: vm["host"] for vm in operator.get("/v1/vms").json()["items"]}
    eventually(lambda: all(booted(lab, *each) for each in first.items()), within_s=600)
    program = tmp_path / "update-host"
    program.write_text(UPDATE.format(scripts=SCRIPTS, lab=lab.directory))
    program.chmod(0o755)
    commands = typed()
    assert [line.split()[1] for line in commands] == ["host", "vms", "host", "roll", "roll"]

    told = [run(fuga, line, tmp_path) for line in commands]

    assert "is done" in told[0]
    assert "stay" not in told[1]
    assert "is done: 3 hosts" in told[3]
    assert (tmp_path / "ran").read_text().split() == list(HOSTS)
    assert "done" in told[4]
    with fuga.client() as operator:
        hosts = operator.get("/v1/hosts").json()["items"]
        assert {(host["admin"], host["health"]) for host in hosts} == {("active", "up")}
        vms = operator.get("/v1/vms").json()["items"]
        moves = operator.get("/v1/moves", params={"limit": 500}).json()["items"]
    assert {vm["observed"] for vm in vms} == {"running"}
    assert {move["state"] for move in moves} == {"moved"}
    assert {move["vm_id"] for move in moves} == first.keys()  # each was on a host in its turn
    now = {vm["id"]: vm["host"] for vm in vms}
    assert now.keys() == first.keys()
    # It said so where it booted; had it begun anew, it would have said so where it is.
    assert [vm for vm, host in now.items() if host != first[vm] and booted(lab, vm, host)] == []
    fuga.cli("rm", "stay", "--wait")


def run(fuga, line: str, folder: Path) -> str:
    path = f"{Path(FUGA).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", line],
        env={**fuga.environment(), "PATH": path},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
    return done.stdout


def booted(lab, vm: str, host: str) -> bool:
    """Whether a guest said on its serial console there that it is up."""
    log = lab.serial_log(HOSTS.index(host) + 1, f"fuga-{vm}")
    return log.exists() and vm in READY.findall(log.read_text(errors="replace"))
