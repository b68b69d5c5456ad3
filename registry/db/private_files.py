"""Folders and files that only their owner can access, independent of the umask."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from registry.errors import RegistryError

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
#: The files that SQLite keeps next to a database; it makes them with the database's mode.
_SUFFIXES: Final = ("-wal", "-shm", "-journal")


class ForeignOwnerError(RegistryError):
    """Another user owns a file or folder that must be private to this process."""

    def __init__(self, path: Path, whose: str) -> None:
        super().__init__(f"{path} {whose}")
        self.path = path


def sync_to_disk(path: Path) -> None:
    """Have the kernel write a file, or a folder's entries, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def private_folder(folder: Path) -> Path:
    """Create a folder that only its owner can enter, or tighten the mode of an existing one.

    Raises
    ------
    ForeignOwnerError
        If another user owns the folder and could change its contents.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.stat()
        if found.st_uid != os.geteuid():
            raise ForeignOwnerError(
                folder,
                f"belongs to user {found.st_uid}, and this process runs as {os.geteuid()}: run it"
                " as that user, or let FUGA_STATE_DIR name a folder of its own",
            ) from None
        if stat.S_IMODE(found.st_mode) & _OTHERS:
            folder.chmod(0o700)
    return folder


def private_database(file: Path) -> None:
    """Create SQLite's file for its owner alone, as SQLite would create it readable by all.

    An existing file of ours gets a stricter mode; group access stays where the group may write.
    """
    try:
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        for each in (file, *(file.with_name(file.name + ending) for ending in _SUFFIXES)):
            _restrict_mode(each)


def _restrict_mode(file: Path) -> None:
    """Take the access of others, and of a group that may not write, from a file of ours."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return
    mode = stat.S_IMODE(found.st_mode)
    keep = 0o660 if mode & stat.S_IWGRP else 0o600
    if found.st_uid == os.geteuid() and mode & ~keep:
        file.chmod(mode & keep)
