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

    def getType(self) -> str:  # noqa: N802 - libvirt's name
        return "QEMU"

    def newStream(self, _: int) -> Any:  # noqa: N802 - libvirt's name
        return SimpleNamespace(send=self._send, recv=self._recv, finish=lambda: 0, abort=lambda: 0)

    def storagePoolLookupByName(self, _: str) -> Any:  # noqa: N802 - libvirt's name
        return SimpleNamespace(createXML=lambda *_: self._volume(), refresh=lambda _: 0)

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
