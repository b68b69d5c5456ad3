"""An image from a file on an operator's desk to guests that boot from it, and off the hosts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.cluster import BASE_VOLUME
from tests.lab_hosts import LabCluster, guest_dir
from tests.running import RunningFuga, eventually, running_fuga

pytestmark = [pytest.mark.qemu, pytest.mark.sqlite, pytest.mark.slow]

HOSTS = """
[[host]]
name = "kvm-1"
uri = "{uri}"
domain_type = "qemu"
memory_backing_mib = 96
overrides = {{ vcpus = 8, memory_mib = 16384, disk_gib = 100 }}
"""


@pytest.fixture(scope="module")
def lab(lab_cluster) -> LabCluster:
    return lab_cluster(1)


@pytest.fixture(scope="module")
def fuga(lab, tmp_path_factory):
    """`fuga up` with one host that names no base volume: a guest boots from an image or not."""
    state_dir = tmp_path_factory.mktemp("images") / "state"
    state_dir.mkdir()
    file = state_dir / "hosts.toml"
    file.write_text(HOSTS.format(uri=lab.uris[0]))
    with running_fuga(state_dir, "--hosts", str(file)) as fuga:
        yield fuga


def test_guests_boot_from_an_image_that_was_added_and_it_goes_when_they_are_gone(
    lab: LabCluster, fuga: RunningFuga
) -> None:
    before = lab.images(1)
    added = fuga.cli("image", "add", "tiny-linux", str(guest_dir() / BASE_VOLUME))
    assert "image tiny-linux:1 is on offer" in added.stdout

    asked = ("request", "tiny", "-n", "2", "--tenant", "a", "--name", "web", "--wait")
    fuga.cli(*asked, "--image", "tiny-linux")

    vms = json.loads(fuga.cli("vms", "-o", "json").stdout)
    assert len(vms) == 2
    for vm in vms:
        log = lab.serial_log(1, f"fuga-{vm['id']}")
        eventually(lambda log=log, vm=vm: f"LAB-GUEST-READY uuid={vm['id']}" in read(log))
    [copy] = json.loads(fuga.cli("image", "show", "tiny-linux", "-o", "json").stdout)["copies"]
    assert (copy["host"], copy["state"], copy["attempts"]) == ("kvm-1", "present", 1)
    assert copy["uploaded_bytes"] == (guest_dir() / BASE_VOLUME).stat().st_size
    [brought] = {name for name in lab.images(1) - before if name.startswith("fuga-image-")}
    host = json.loads(fuga.cli("host", "show", "kvm-1", "-o", "json").stdout)
    [disk] = [each for each in host["inventories"] if each["resource"] == "disk_gib"]
    assert (disk["foreign"], disk["committed"]) == (1, 10)

    refused = fuga.cli("image", "remove", "tiny-linux", check=False)
    assert refused.returncode == 2
    assert "2 VMs of 1 requests rest on it" in refused.stderr
    fuga.cli("rm", "web", "--wait")
    fuga.cli("image", "remove", "tiny-linux")

    eventually(lambda: brought not in lab.images(1))
    eventually(lambda: lab.images(1) == before)
    assert list((fuga.state_dir / "images").iterdir()) == []


def test_an_image_whose_file_is_lost_holds_nobody_up_and_says_why(
    lab: LabCluster, fuga: RunningFuga
) -> None:
    fuga.cli("image", "add", "poison", str(guest_dir() / BASE_VOLUME))
    fuga.cli("image", "add", "good", str(guest_dir() / BASE_VOLUME), "--min-memory", "64")
    poison = json.loads(fuga.cli("image", "show", "poison", "-o", "json").stdout)
    (fuga.state_dir / "images" / f"{poison['id']}.qcow2").write_bytes(b"no image")

    fuga.cli("request", "tiny", "-n", "3", "--tenant", "a", "--name", "bad", "--image", "poison")
    eventually(lambda: "poison:1 could not be brought" in fuga.cli("vms").stdout)
    fuga.cli("request", "tiny", "--tenant", "b", "--name", "ok", "--image", "good", "--wait")

    [host] = json.loads(fuga.cli("host", "list", "-o", "json").stdout)
    assert host["held_back_until"] is None
    fuga.cli("rm", "bad", "ok", "--wait")
    for name in ("poison", "good"):
        fuga.cli("image", "remove", name)


def read(log: Path) -> str:
    return log.read_text(errors="replace") if log.exists() else ""
