"""The folder in which images lie, each once; workers bring them to hosts from there.

A file becomes an image by a rename, when all of it is here and was checked. What a
process that was killed left half received is cleared away by the next who receives.
"""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final
from uuid import UUID, uuid4

from registry.errors import ImageRefusedError, ImageStoreError, ImageTooLargeError
from registry.image_header import virtual_size_of
from registry.records import ImageFormat

_PART: Final = ".part"
#: A file that nobody wrote to for so long is nobody's.
_STALE_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What is known of a file once it is in the store."""

    sha256: str
    size_bytes: int
    virtual_size_bytes: int


class ImageStore:
    """Images by id. Several processes may use one folder, also over a shared file system."""

    def __init__(self, folder: Path, *, max_bytes: int) -> None:
        self._folder = folder
        self.max_bytes = max_bytes

    def path(self, image_id: UUID, image_format: ImageFormat) -> Path:
        """Return where an image lies, or would."""
        return self._folder / f"{image_id}.{image_format}"

    @contextmanager
    def receive(self, image_id: UUID, image_format: ImageFormat) -> Iterator[Incoming]:
        """Hand out a file to write to; unless `Incoming.keep` is called nothing stays of it.

        Raises
        ------
        ImageStoreError
            If the folder cannot be written to.
        """
        path = self.path(image_id, image_format)
        part = path.with_name(f"{path.name}.{uuid4().hex}{_PART}")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._clear_stale()
            file = part.open("xb")
        except OSError as error:
            raise ImageStoreError(self._folder, _said(error)) from error
        try:
            with file:
                yield Incoming(file, part, path, image_format, self.max_bytes)
        finally:
            part.unlink(missing_ok=True)

    def put_in_place(self, image_id: UUID, of: UUID, image_format: ImageFormat) -> None:
        """Have a file be that of another image, whose content is the very same."""
        try:
            self.path(image_id, image_format).replace(self.path(of, image_format))
        except OSError as error:
            raise ImageStoreError(self._folder, _said(error)) from error

    def discard(self, image_id: UUID, image_format: ImageFormat) -> None:
        """Delete an image's file; it may be gone. Whoever reads it reads it to its end."""
        with suppress(OSError):
            self.path(image_id, image_format).unlink(missing_ok=True)

    def _clear_stale(self) -> None:
        oldest = time.time() - _STALE_S
        for part in self._folder.glob(f"*{_PART}"):
            with suppress(OSError):
                if part.stat().st_mtime < oldest:
                    part.unlink()


class Incoming:
    """A file on its way into the store."""

    def __init__(
        self, file: BinaryIO, part: Path, path: Path, image_format: ImageFormat, max_bytes: int
    ) -> None:
        self._file = file
        self._part = part
        self._path = path
        self._format = image_format
        self._max_bytes = max_bytes
        self._digest = hashlib.sha256()
        self.size_bytes = 0

    def write(self, piece: bytes) -> None:
        """Append. Raises `ImageTooLargeError`, or `ImageStoreError` if the disk is full."""
        self.size_bytes += len(piece)
        if self.size_bytes > self._max_bytes:
            raise ImageTooLargeError(self._max_bytes)
        self._digest.update(piece)
        try:
            self._file.write(piece)
        except OSError as error:
            raise ImageStoreError(self._part.parent, _said(error)) from error

    def keep(self, sha256: str | None) -> Stored:
        """Check what came and put it in its place, for good.

        Raises
        ------
        ImageRefusedError
            If its hash is not the one given, or it must not become an image.
        """
        found = self._digest.hexdigest()
        if sha256 is not None and found != sha256:
            raise ImageRefusedError(
                f"its SHA-256 is {found} over {self.size_bytes} bytes, expected was {sha256}"
            )
        try:
            self._file.flush()
            virtual_size_bytes = virtual_size_of(self._part, self._format)
            os.fsync(self._file.fileno())
            self._part.rename(self._path)
            _sync_folder(self._path.parent)
        except OSError as error:
            raise ImageStoreError(self._path.parent, _said(error)) from error
        return Stored(
            sha256=found, size_bytes=self.size_bytes, virtual_size_bytes=virtual_size_bytes
        )


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _said(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "its disk is full"
    return error.strerror or str(error)
