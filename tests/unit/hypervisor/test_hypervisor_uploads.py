"""What a host has is compared with what it was sent."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hypervisor import OperationFailedError
from hypervisor.child import uploads

CONTENT = b"a disk" * 100


class HostOfOneVolume:
    """As much of a libvirt connection as an upload needs; reads may give other bytes back."""

    def __init__(self, *reads: bytes) -> None:
        self.reads = list(reads)
        self.written = b""
        self.holes: list[int] = []
        self.free_bytes = 1 << 40

    def getType(self) -> str:  # noqa: N802 - libvirt's name
        return "QEMU"

    def newStream(self, _: int) -> Any:  # noqa: N802 - libvirt's name
        return SimpleNamespace(
            send=self._send,
            sendHole=lambda length, _: self._send_hole(length),
            recv=self._recv,
            finish=lambda: 0,
            abort=lambda: 0,
        )

    def storagePoolLookupByName(self, _: str) -> Any:  # noqa: N802 - libvirt's name
        return SimpleNamespace(
            name=lambda: "p",
            createXML=lambda *_: self._volume(),
            refresh=lambda _: 0,
            info=lambda: [0, 0, 0, self.free_bytes],
        )

    def _volume(self) -> Any:
        return SimpleNamespace(
            name=lambda: "disk", upload=lambda *_: 0, download=lambda *_: self._open()
        )

    def _open(self) -> int:
        self.rest = self.reads.pop(0)
        return 0

    def _send(self, piece: bytes) -> int:
        self.written += piece
        return len(piece)

    def _send_hole(self, length: int) -> None:
        self.written += bytes(length)
        self.holes.append(length)

    def _recv(self, most: int) -> bytes:
        piece, self.rest = self.rest[:most], self.rest[most:]
        return piece


@pytest.fixture
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function: upload to a host that reads so, up to the reading back."""
    monkeypatch.setattr(uploads, "_PAUSE_S", 0.0)
    path = tmp_path / "disk"
    path.write_bytes(CONTENT)

    def upload(host: HostOfOneVolume) -> uploads.Uploads:
        upload = uploads.Uploads("x:///")
        upload.begin(host, pool="p", name="disk", path=str(path), size_bytes=len(CONTENT), head="")
        assert upload.send(host, max_bytes=1 << 20) == len(CONTENT)
        upload.end(host, sha256=hashlib.sha256(CONTENT).hexdigest())
        assert host.written == CONTENT
        return upload

    return upload


def test_bytes_that_are_not_there_at_once_are_read_again(sent: Any) -> None:
    host = HostOfOneVolume(b"", bytes(len(CONTENT)), CONTENT)
    upload = sent(host)

    looks = [upload.read_back(host, max_bytes=1 << 20) for _ in range(3)]

    assert looks == [0, 0, len(CONTENT)]


def test_a_volume_of_other_bytes_is_refused(sent: Any) -> None:
    host = HostOfOneVolume(*[bytes(len(CONTENT))] * 3)
    upload = sent(host)
    upload.read_back(host, max_bytes=1 << 20)
    upload.read_back(host, max_bytes=1 << 20)

    with pytest.raises(OperationFailedError, match="disk differs from the uploaded bytes"):
        upload.read_back(host, max_bytes=1 << 20)


@pytest.mark.parametrize(
    ("content", "holes"),
    [
        (bytes(1 << 20), [1 << 20]),
        (b"x" + bytes((1 << 20) - 1), [15 << 16]),
        (bytes(1 << 18) + b"x" + bytes(1 << 16), [1 << 18, 1]),
        (bytes(5), [5]),
        (b"x" * 100_000, []),
    ],
)
def test_zeros_are_sent_as_holes(tmp_path: Path, content: bytes, holes: list[int]) -> None:
    host, path, upload = HostOfOneVolume(content), tmp_path / "disk", uploads.Uploads("x:///")
    path.write_bytes(content)
    size = {"path": str(path), "size_bytes": len(content)}
    upload.begin(host, pool="p", name="disk", head="", **size)

    while upload.send(host, max_bytes=1 << 20) < len(content):
        pass
    upload.end(host, sha256=hashlib.sha256(content).hexdigest())

    assert host.written == content
    assert host.holes == holes
    assert upload.read_back(host, max_bytes=1 << 21) == len(content)


@pytest.mark.parametrize(("free_bytes", "fits"), [(5 << 20, True), ((5 << 20) - 1, False)])
def test_a_pool_keeps_its_margin_and_holes_need_none(
    tmp_path: Path, free_bytes: int, fits: bool
) -> None:
    host, path, upload = HostOfOneVolume(), tmp_path / "disk", uploads.Uploads("x:///")
    with path.open("wb") as sparse:
        sparse.write(b"x" * (1 << 20))
        sparse.truncate(1 << 30)
    host.free_bytes = free_bytes
    how = {"pool": "p", "name": "disk", "path": str(path), "size_bytes": 1 << 30, "head": ""}

    if fits:
        upload.begin(host, **how, margin_bytes=4 << 20)
    else:
        with pytest.raises(OperationFailedError, match="FUGA_IMAGE_MARGIN_GIB"):
            upload.begin(host, **how, margin_bytes=4 << 20)
