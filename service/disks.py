"""Disks that processes write to, and what has to stay free on them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from service.settings import SharedSettings

#: Of each disk this much, or a twentieth of a small one.
_MARGIN_BYTES: Final = 256 << 20
_SMALL: Final = 20
_SQLITE: Final = "sqlite:///"


def short_of_room(settings: SharedSettings) -> list[str]:
    """Return a sentence about each disk of a process whose margin is used up."""
    found: dict[int, str] = {}
    for name, folder in _folders(settings):
        try:
            device, disk = folder.stat().st_dev, os.statvfs(folder)
        except OSError:  # not there yet; who writes there says what is wrong
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


def _folders(settings: SharedSettings) -> Iterator[tuple[str, Path]]:
    url = settings.resolved_database_url()
    if url.startswith(_SQLITE):
        yield "the database", Path(url.removeprefix(_SQLITE)).parent
    yield "the state folder (FUGA_STATE_DIR)", settings.state_dir
    if settings.image_store is not None:
        yield "the image store (FUGA_IMAGE_STORE)", settings.image_store
