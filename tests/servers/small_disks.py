"""Disks of their own, small enough to be filled: of pools, of PostgreSQL, of logs and state."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_MIB: Final = 1 << 20
_FILLER: Final = ".filler"
_PIECE: Final = bytes(1 << 16)


class SmallDisk:
    """A folder with a disk of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self, *, but_bytes: int = 0) -> None:
        """Leave no more than that free."""
        with suppress(OSError), (self.path / _FILLER).open("ab", buffering=0) as file:
            while (free := self.free_bytes - but_bytes) > 0:
                file.write(_PIECE[:free])

    def free(self) -> None:
        """Give back what `fill` took."""
        (self.path / _FILLER).unlink(missing_ok=True)

    @property
    def free_bytes(self) -> int:
        disk = os.statvfs(self.path)
        return disk.f_bavail * disk.f_frsize

    def files(self) -> list[str]:
        """Return what others wrote here."""
        return sorted(each.name for each in self.path.rglob("*") if each.name != _FILLER)


@contextmanager
def memory_disk(folder: Path, *, mib: int) -> Iterator[SmallDisk]:
    """Mount a disk in memory at a folder."""
    with _mounted(folder, "-t", "tmpfs", "-o", f"size={mib}m", "fuga-small"):
        yield SmallDisk(folder)


@contextmanager
def real_disk(folder: Path, *, mib: int) -> Iterator[SmallDisk]:
    """Mount a file with a file system of its own at a folder: `fsync` means what it says."""
    image = folder.with_name(f"{folder.name}.ext4")
    with image.open("wb") as file:
        file.truncate(mib * _MIB)
    try:
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", image], check=True)
        with _mounted(folder, "-o", "loop", str(image)):
            (folder / "lost+found").rmdir()
            yield SmallDisk(folder)
    finally:
        image.unlink()


@contextmanager
def _mounted(folder: Path, *what: str) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", *what, folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=False)
