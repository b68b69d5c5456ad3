"""Disks of a few MiB that can be filled up: a tmpfs of its own for each."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_FILLER: Final = ".filler"
_PIECE: Final = bytes(1 << 16)


class SmallDisk:
    """A folder with a disk of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self, *, but_bytes: int = 0) -> None:
        """Leave no more than that free."""
        with (self.path / _FILLER).open("ab", buffering=0) as file, suppress(OSError):
            while (free := self.free_bytes - but_bytes) > 0:
                file.write(_PIECE[:free])

    def free(self) -> None:
        """Give back what `fill` took."""
        (self.path / _FILLER).unlink()

    @property
    def free_bytes(self) -> int:
        disk = os.statvfs(self.path)
        return disk.f_bavail * disk.f_frsize

    def files(self) -> list[str]:
        """Return what others wrote here."""
        return sorted(each.name for each in self.path.rglob("*") if each.name != _FILLER)


@contextmanager
def small_disk(path: Path, *, mib: int) -> Iterator[SmallDisk]:
    path.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=700", "fuga-small", str(path)], check=True
    )
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
