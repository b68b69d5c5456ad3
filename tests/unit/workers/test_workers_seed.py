"""The seed of a guest, read back by mtools: a reader that is not ours."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from registry import AssignmentState
from registry.hosts import HostAccess
from registry.networks import GuestNetwork
from registry.records.images import BuildImage, SeedKind
from registry.requests import GuestAccess
from registry.tasks import Build, Claim
from workers import vfat
from workers.seed import guest_hostname, reads_seed, seed_content

VM = UUID("0192f0c1-0000-7000-8000-000000000001")
HOST = HostAccess(
    id=VM,
    name="h1",
    uri="qemu+tcp://h1/system",
    domain_type="kvm",
    pool="default",
    network="default",
    base_volume="base.qcow2",
    memory_backing_mib=None,
)
BUILD = Build(
    claim=Claim(assignment_id=VM, token=VM),
    state=AssignmentState.CREATING,
    vm_id=VM,
    request_id=VM,
    vm_name="web-1",
    tenant="a",
    generation=4,
    disk_generation=3,
    disk_of=VM,
    round=1,
    resources={},
    host=HOST,
    access=GuestAccess(ssh_keys=("ssh-ed25519 AAAA jörg",), user_data=b"\x1f\x8b\x00 any bytes"),
    network=GuestNetwork(mac="02:00:00:00:00:01", kind="network", source="default"),
    failed_before=0,
)


def image(seed_kind: SeedKind) -> BuildImage:
    return BuildImage(reference="os:1", format="qcow2", seed_kind=seed_kind, volume="os.qcow2")


needs_mtools = pytest.mark.skipif(shutil.which("mtype") is None, reason="mtools is not installed")


def read(volume: bytes, name: str, tmp_path: Path) -> bytes:
    image = tmp_path / "seed.img"
    image.write_bytes(volume)
    return subprocess.run(
        ["mtype", "-i", str(image), f"::{name}"], check=True, capture_output=True
    ).stdout


@needs_mtools
def test_a_seed_is_a_volume_named_cidata_with_three_files(tmp_path):
    seed = seed_content(BUILD)

    assert json.loads(read(seed, "meta-data", tmp_path)) == {
        "instance-id": f"{VM}-3",
        "local-hostname": "web-1",
        "public-keys": ["ssh-ed25519 AAAA jörg"],
    }
    assert read(seed, "user-data", tmp_path) == BUILD.access.user_data
    assert json.loads(read(seed, "network-config", tmp_path))["version"] == 2
    label = subprocess.run(
        ["mlabel", "-s", "-i", str(tmp_path / "seed.img"), "::"], check=True, capture_output=True
    ).stdout
    assert label.split()[-1] == b"CIDATA"


@needs_mtools
def test_a_guest_without_an_address_asks_by_dhcp(tmp_path):
    config = json.loads(read(seed_content(BUILD), "network-config", tmp_path))

    assert config["ethernets"]["nic0"] == {
        "match": {"macaddress": "02:00:00:00:00:01"},
        "dhcp4": True,
    }


@needs_mtools
def test_a_guest_is_told_its_address_its_route_and_its_name_servers(tmp_path):
    network = replace(BUILD.network, address="10.0.0.4/24", gateway="10.0.0.1", dns=("192.0.2.53",))

    config = json.loads(
        read(seed_content(replace(BUILD, network=network)), "network-config", tmp_path)
    )

    assert config["ethernets"]["nic0"] == {
        "match": {"macaddress": "02:00:00:00:00:01"},
        "addresses": ["10.0.0.4/24"],
        "routes": [{"to": "0.0.0.0/0", "via": "10.0.0.1"}],
        "nameservers": {"addresses": ["192.0.2.53"]},
    }


@needs_mtools
def test_without_user_data_there_is_a_file_that_asks_for_nothing(tmp_path):
    seed = seed_content(replace(BUILD, access=GuestAccess(ssh_keys=(), user_data=None)))

    assert read(seed, "user-data", tmp_path) == b"#cloud-config\n{}\n"


@needs_mtools
@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 65_536, 1_000_000])
def test_files_of_any_size_come_back_whole_whatever_the_length_of_their_names(size, tmp_path):
    files = {
        "short": b"first",
        "thirteen-long": bytes(range(256)) * (size // 256 + 1),
        "a-name-of-more-than-two-entries": b"x" * size,
        "empty": b"",
        "last": b"last",
    }

    volume = vfat.vfat_volume("cidata", files)

    assert len(volume) % 512 == 0
    assert {name: read(volume, name, tmp_path) for name in files} == files


def test_the_same_files_give_the_same_bytes():
    assert seed_content(BUILD) == seed_content(BUILD)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="do not fit"):
        vfat.vfat_volume("cidata", {"large": bytes(3_000_000)})
    with pytest.raises(ValueError, match="10 files"):
        vfat.vfat_volume("cidata", {str(number): b"" for number in range(10)})


@needs_mtools
def test_a_host_name_that_was_asked_for_is_handed_over_as_it_is(tmp_path):
    seed = seed_content(replace(BUILD, hostname="db-2.example.org"))

    assert json.loads(read(seed, "meta-data", tmp_path))["local-hostname"] == "db-2.example.org"


@pytest.mark.parametrize(
    ("vm_name", "expected"),
    [
        ("web-1", "web-1"),
        ("my.web_server-12", "my-web-server-12"),
        ("x" * 63 + "-10000", "x" * 57 + "-10000"),
        ("x" * 70, "x" * 63),
    ],
)
def test_a_host_name_is_the_vms_name_as_far_as_one_may_be(vm_name, expected):
    assert guest_hostname(vm_name) == expected


def test_only_a_guest_with_a_system_takes_a_seed():
    assert reads_seed(BUILD)
    assert not reads_seed(replace(BUILD, host=replace(HOST, base_volume=None)))
    assert reads_seed(replace(BUILD, image=image("nocloud")))
    assert not reads_seed(replace(BUILD, image=image("none")))
    assert not reads_seed(replace(BUILD, host=replace(HOST, domain_type="test")))


def test_user_data_is_in_no_representation():
    assert "any bytes" not in repr(BUILD)
