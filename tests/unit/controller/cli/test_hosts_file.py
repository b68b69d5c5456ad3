from __future__ import annotations

from pathlib import Path

import pytest

from controller.embedded.hosts_file import read_hosts_file
from controller.terminal.errors import BadInputError

EXAMPLE = Path(__file__).parents[4] / "deploy" / "hosts.example.toml"


def a_file(folder: Path, text: str) -> Path:
    path = folder / "hosts.toml"
    path.write_text(text)
    return path


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(BadInputError) as refused:
        read_hosts_file(a_file(folder, text))
    return str(refused.value)


def test_a_host_may_say_everything(tmp_path: Path) -> None:
    path = a_file(
        tmp_path,
        """
        [[host]]
        name = "kvm-1"
        uri = "qemu+tls://kvm-1.example.org/system"
        labels = ["ssd", "zone:a"]
        overrides = { vcpus = 64 }
        reserved = { memory_mib = 4096 }
        ratios = { vcpus = 2.5, memory_mib = 1 }
        pool = "vms"
        network = "lan"
        domain_type = "kvm"
        base_volume = "debian-12.qcow2"
        max_builds = 4
        """,
    )

    (host,) = read_hosts_file(path)

    assert host["ratios"] == {"vcpus": 2500, "memory_mib": 1000}
    assert host["labels"] == ["ssd", "zone:a"]
    assert host["overrides"] == {"vcpus": 64}


def test_the_example_is_valid() -> None:
    assert read_hosts_file(EXAMPLE)


HOST = '[[host]]\nname = "h1"\nuri = "qemu+tls://h1/system"\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ["no [[host]] table"]),
        ("host = 3", ["no [[host]] table"]),
        ("[[host]\n", ["not TOML", "line 1"]),
        ("[[hosts]]\n", ["hosts: unknown"]),
        ('[[host]]\nname = "h1"\n', ["host[0].uri", "missing"]),
        (HOST + "memory = 3\n", ["host[0].memory", "unknown", "overrides"]),
        (HOST + 'labels = "ssd"\n', ["host[0].labels", "'ssd'", "list"]),
        (HOST + 'domain_type = "xen"\n', ["host[0].domain_type", "'xen'", "kvm"]),
        (HOST + "overrides = { vcpus = -1 }\n", ["host[0].overrides.vcpus", "-1", "≥ 0"]),
        (HOST + "overrides = { vcpus = 1.5 }\n", ["host[0].overrides.vcpus", "1.5"]),
        (HOST + "overrides = { vcpus = true }\n", ["host[0].overrides.vcpus", "True"]),
        (HOST + "overrides = 5\n", ["host[0].overrides", "table"]),
        (HOST + "ratios = { vcpus = 0 }\n", ["host[0].ratios.vcpus", "above 0"]),
        (HOST + "ratios = { vcpus = nan }\n", ["host[0].ratios.vcpus", "nan"]),
        (HOST + "max_builds = 0\n", ["host[0].max_builds", "≥ 1"]),
        (HOST + HOST, ["host[1].name", "host[0]"]),
        (HOST + HOST.replace('"h1"', '"h2"'), ["host[1].uri", "host[0]"]),
    ],
)
def test_a_fault_is_named_with_file_place_and_what_is_allowed(
    tmp_path: Path, text: str, told: list[str]
) -> None:
    message = refusal(tmp_path, text)

    assert "hosts.toml" in message
    for part in told:
        assert part in message


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"nowhere\.toml: cannot be read"):
        read_hosts_file(tmp_path / "nowhere.toml")


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hosts.toml"
    path.write_bytes(b"\xff\xfe\x00")

    with pytest.raises(BadInputError, match="not TOML"):
        read_hosts_file(path)
