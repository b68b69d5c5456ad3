"""Free space of the disks that processes write to."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from service.settings import SharedSettings

#: Space to keep free on each disk, or a twentieth of a small disk.
_MARGIN_BYTES: Final = 256 << 20
_SMALL: Final = 20
#: Interval of checks, time limit of the first one, and time after which a check counts as hung.
_EVERY_S: Final = 5.0
_FIRST_S: Final = 0.5
_HANGS_S: Final = 10.0
_LOG: Final = 2  #: standard error, on which processes log
_LOG_FILE: Final = Path(f"/proc/self/fd/{_LOG}")
_SQLITE: Final = "sqlite:///"


class DiskWatch:
    """Checks a process's disks in a thread, so that a silent file server blocks no other thread."""

    def __init__(self, settings: SharedSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._found: list[str] = []
        self._look: threading.Thread | None = None
        self._began = float("-inf")

    def full_disk_messages(self) -> list[str]:
        """Return a sentence about each disk that is too full or does not answer.

        The first call waits a moment for the check; later calls return the latest result.
        """
        with self._lock:
            now = time.monotonic()
            if self._look is None or (not self._look.is_alive() and now - self._began >= _EVERY_S):
                first = self._look is None
                self._began = now
                self._look = threading.Thread(
                    target=self._check_disks_again, name="disks", daemon=True
                )
                self._look.start()
                if first:
                    self._look.join(_FIRST_S)
            hangs = self._look.is_alive() and now - self._began >= _HANGS_S
        return [*self._found, "a disk of this process does not answer"] if hangs else self._found

    def _check_disks_again(self) -> None:
        """Check the free space of the process's disks, in a thread."""
        self._found = full_disk_messages(self._settings)


def full_disk_messages(settings: SharedSettings) -> list[str]:
    """Return a sentence about each disk of a process that is too full."""
    found: dict[int, str] = {}
    for name, folder in _written_folders(settings):
        try:
            device, disk = folder.stat().st_dev, os.statvfs(folder)
        except OSError:  # missing; the writer reports that
            continue
        free = disk.f_bavail * disk.f_frsize
        margin = min(_MARGIN_BYTES, disk.f_blocks * disk.f_frsize // _SMALL)
        if free < margin:
            found.setdefault(
                device,
                f"the disk of {name} has {free >> 20} MiB free, less than its margin of"
                f" {margin >> 20} MiB",
            )
        elif disk.f_files and not disk.f_favail:
            found.setdefault(device, f"the disk of {name} has no room for another file (inodes)")
    return list(found.values())


def _written_folders(settings: SharedSettings) -> Iterator[tuple[str, Path]]:
    """Yield the folders that a process writes to, each with its purpose."""
    url = settings.resolved_database_url()
    if url.startswith(_SQLITE):
        yield "the database", Path(url.removeprefix(_SQLITE)).parent
    yield "the state folder (FUGA_STATE_DIR)", settings.state_dir
    images = settings.image_store or settings.state_dir / "images"
    yield "the image store (FUGA_IMAGE_STORE)", images
    with suppress(OSError):  # it is closed
        if stat.S_ISREG(os.fstat(_LOG).st_mode):
            yield f"the log {_LOG_FILE.readlink()}", _LOG_FILE
