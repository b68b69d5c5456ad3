"""The folder in which images lie, each once; workers bring them to hosts from there.

A file becomes an image by a rename, when all of it is here and was checked. What a
process that was killed left half received is cleared away by the next who receives.
Whoever receives a file holds it (flock) until its row is written: a file of no image
that nobody holds is one that a killed process left.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final
from uuid import UUID, uuid4

from registry.errors import ImageRefusedError, ImageStoreError, ImageTooLargeError
from registry.image_header import virtual_size_of
from registry.records import ImageFormat

PART: Final = ".part"
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
        self.folder = folder
        self.max_bytes = max_bytes

    def path(self, image_id: UUID, image_format: ImageFormat) -> Path:
        """Return where an image lies, or would."""
        return self.folder / f"{image_id}.{image_format}"

    @contextmanager
    def receive(self, image_id: UUID, image_format: ImageFormat) -> Iterator[Incoming]:
        """Hand out a file to write to; unless `Incoming.keep` is called nothing stays of it.

        Others take it for one that is being added until the block ends: the register
        center is told inside.

        Raises
        ------
        ImageStoreError
            If the folder cannot be written to.
        """
        path = self.path(image_id, image_format)
        part = path.with_name(f"{path.name}.{uuid4().hex}{PART}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._clear_stale()
            file = part.open("xb")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            raise ImageStoreError(self.folder, _said(error)) from error
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
            raise ImageStoreError(self.folder, _said(error)) from error

    def discard(self, image_id: UUID, image_format: ImageFormat) -> None:
        """Delete an image's file; it may be gone. Whoever reads it reads it to its end."""
        with suppress(OSError):
            self.path(image_id, image_format).unlink(missing_ok=True)

    def files(self) -> list[Path]:
        """Return every file of an image, whole or not; none without a folder."""
        try:
            found = sorted(self.folder.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ImageStoreError(self.folder, _said(error)) from error
        return [path for path in found if image_of(path) is not None]

    @contextmanager
    def held(self, path: Path) -> Iterator[bool]:
        """Hold a file that nobody adds; False: somebody may be adding it, or it is gone."""
        with ExitStack() as stack:
            try:
                # To write: over a shared file system nobody else may hold it alone.
                file = stack.enter_context(path.open("r+b"))
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                mine = path.suffix != PART or _is_stale(path)
            except OSError:
                mine = False
            yield mine

    def _clear_stale(self) -> None:
        for part in self.folder.glob(f"*{PART}"):
            with suppress(OSError):
                if _is_stale(part):
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


def image_of(path: Path) -> UUID | None:
    """Return whose file it is by its name; None: no image's."""
    try:
        return UUID(path.name.partition(".")[0])
    except ValueError:
        return None


def _is_stale(part: Path) -> bool:
    return part.stat().st_mtime < time.time() - _STALE_S


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
