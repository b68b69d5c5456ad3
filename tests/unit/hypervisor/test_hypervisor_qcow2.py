"""Another base in the header of a qcow2 file."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest

from hypervisor import qcow2


def a_cluster(name: bytes = b"/here/base", *, at: int = 200, bits: int = 9) -> bytes:
    header = struct.pack(">4sIQII", b"QFI\xfb", 3, at, len(name), bits)
    return (header.ljust(at, b"x") + name).ljust(1 << bits, b"\0")


@pytest.mark.parametrize("path", ["/there/base", "/b", "/a/much/longer/path/ö" * 5])
def test_the_path_is_another_and_the_rest_is_as_it_was(path: str) -> None:
    before = a_cluster()

    after = qcow2.replace_backing_path(before, path)

    name = path.encode()
    assert after == a_cluster(name)
    assert qcow2.replace_backing_path(after, "/here/base") == before


@pytest.mark.parametrize(
    "cluster",
    [
        b"",
        b"QFI\xfb",
        b"\0" * 512,
        a_cluster(b""),
        a_cluster(at=0),
        a_cluster()[:8] + struct.pack(">Q", 1 << 40) + a_cluster()[16:],
        a_cluster(bits=9)[:20] + struct.pack(">I", 63) + b"\0" * 488,
    ],
)
def test_what_names_no_base_is_refused(cluster: bytes) -> None:
    with pytest.raises(ValueError, match=r"qcow2|names no backing file"):
        qcow2.replace_backing_path(cluster, "/there/base")


def test_a_path_for_which_there_is_no_room_is_refused() -> None:
    for cluster, path in (
        (a_cluster(at=500), "/there/longer"),
        (a_cluster(bits=16), "/" * 1024),
        (a_cluster()[:210] + b"something else".ljust(302, b"\0"), "/there/longer"),
    ):
        with pytest.raises(ValueError, match="no room"):
            qcow2.replace_backing_path(cluster, path)


@pytest.mark.parametrize("options", ["compat=1.1", "compat=0.10", "cluster_size=512"])
def test_qemu_reads_what_was_written(tmp_path: Path, options: str) -> None:
    overlay, there = tmp_path / "overlay", tmp_path / "there" / "a name that is longer"
    here = tmp_path / "here"
    there.parent.mkdir()
    for path in (here, there):
        _run("qemu-img", "create", "-q", "-f", "qcow2", str(path), "1M")
    _run(*f"qemu-img create -q -f qcow2 -F qcow2 -o {options} -b {here} {overlay}".split())

    content = overlay.read_bytes()
    end = qcow2.cluster_bytes(content)
    overlay.write_bytes(qcow2.replace_backing_path(content[:end], str(there)) + content[end:])

    said = _run("qemu-img", "info", "--backing-chain", str(overlay))
    assert f"backing file: {there}\n" in said
    _run("qemu-img", "check", "-q", str(overlay))


def _run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=30).stdout
