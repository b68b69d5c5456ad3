"""Disks of their own, small enough to be filled: of pools, of PostgreSQL, of logs and state."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MIB = 1 << 20


@contextmanager
def memory_disk(folder: Path, mib: int) -> Iterator[None]:
    """Mount a disk in memory at a folder."""
    with _mounted(folder, "-t", "tmpfs", "-o", f"size={mib}m", "fuga-chaos"):
        yield


@contextmanager
def real_disk(folder: Path, mib: int) -> Iterator[None]:
    """Mount a file with a file system of its own at a folder: `fsync` means what it says."""
    image = folder.with_name(f"{folder.name}.ext4")
    with image.open("wb") as file:
        file.truncate(mib * _MIB)
    try:
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", image], check=True)
        with _mounted(folder, "-o", "loop", str(image)):
            (folder / "lost+found").rmdir()
            yield
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


def fill(folder: Path) -> None:
    """Leave no byte on the disk of a folder."""
    with contextlib.suppress(OSError), _filler(folder).open("wb", buffering=0) as file:
        for size in (_MIB, 4096, 512):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))


def free(folder: Path) -> None:
    """End that."""
    _filler(folder).unlink(missing_ok=True)


def _filler(folder: Path) -> Path:
    return folder / "filler"
