"""An upload into the image store, checked by its announced length and its content so far.

An upload that is too long, no image, or too large for the disk ends at the first byte that shows
it. Runs of zeros become holes of the file.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from registry.db.private_files import sync_to_disk
from registry.errors import (
    ImageRefusedError,
    ImageStoreError,
    ImageStoreFullError,
    ImageTooLargeError,
)
from registry.images.header import (
    HEAD_BYTES,
    check_image_length,
    check_image_start,
    read_virtual_size,
)
from registry.images.qemu_img import check_opens
from registry.images.signatures import ImageKey, check_signature
from registry.records.images import ImageFormat

#: Size of the aligned blocks in which zeros are detected.
_BLOCK_BYTES: Final = 1 << 16
_ZEROS: Final = bytes(_BLOCK_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """The size, digest and signer of a file in the store."""

    sha256: str
    size_bytes: int
    virtual_size_bytes: int
    opened: bool  #: QEMU opened it; False if this machine has no QEMU
    signed_by: str | None


class IncomingFile:
    """A file that is being uploaded into the store."""

    def __init__(
        self,
        file: BinaryIO,
        part: Path,
        path: Path,
        *,
        image_format: ImageFormat,
        max_bytes: int,
        margin_bytes: int,
        keys: Sequence[ImageKey],
        signature: bytes | None,
    ) -> None:
        self._file = file
        self._part = part
        self._path = path
        self._format = image_format
        self._max_bytes = max_bytes
        self._margin_bytes = margin_bytes
        self._keys = keys
        self._signature = signature
        self._digest = hashlib.sha256()
        self._signed_digest = hashlib.blake2b() if signature is not None else None
        self._head = b""
        self._judged = False
        self.size_bytes = 0

    def announce(self, size_bytes: int) -> None:
        """Check the announced length of an uploaded image file.

        Raises
        ------
        ImageTooLargeError
            If the file is longer than the operator allows.
        ImageRefusedError
            If no image of the format has that length.
        ImageStoreError
            If the store's disk has no room for the file.
        """
        if size_bytes > self._max_bytes:
            raise ImageTooLargeError(self._max_bytes, size_bytes)
        check_image_length(size_bytes, self._format)
        self._check_room(size_bytes)

    def write(self, piece: bytes) -> None:
        """Append a piece to an uploaded image file.

        Raises
        ------
        ImageTooLargeError
            If the file is longer than the operator allows.
        ImageRefusedError
            If the file does not begin like an image of its format.
        ImageStoreError
            If the store's disk has no room for the file.
        """
        if self.size_bytes + len(piece) > self._max_bytes:
            raise ImageTooLargeError(self._max_bytes)
        self._digest.update(piece)
        if self._signed_digest is not None:
            self._signed_digest.update(piece)
        self._check_start_once(piece)
        try:
            for start, data in _nonzero_parts(piece, self.size_bytes):
                self._check_room(len(data))
                _write_all(self._file.fileno(), data, start)
        except OSError as error:
            raise ImageStoreError(self._part.parent, store_error_message(error)) from error
        self.size_bytes += len(piece)

    def store(self, sha256: str | None) -> StoredFile:
        """Check the whole uploaded image file and move it to its place in the store.

        Raises
        ------
        ImageRefusedError
            If its hash is not the one given, its signature is invalid, or it must not
            become an image.
        """
        found = self._digest.hexdigest()
        if sha256 is not None:
            check_image_digest(found, sha256, self.size_bytes)
        signed_by = self._verify_signature()
        try:
            self._file.truncate(self.size_bytes)  # it may end in a hole
            virtual_size_bytes = read_virtual_size(self._file, self._format)
            opened = self._format != "qcow2" or check_opens(self._file)
            os.fsync(self._file.fileno())
            self._part.rename(self._path)
            sync_to_disk(self._path.parent)
        except OSError as error:
            raise ImageStoreError(self._path.parent, store_error_message(error)) from error
        return StoredFile(
            sha256=found,
            size_bytes=self.size_bytes,
            virtual_size_bytes=virtual_size_bytes,
            opened=opened,
            signed_by=signed_by,
        )

    def _check_start_once(self, piece: bytes) -> None:
        """Check the head of an uploaded image once enough of it has arrived."""
        if self._judged:
            return
        self._head += piece[: HEAD_BYTES - len(self._head)]
        if len(self._head) == HEAD_BYTES:
            self._judged = True
            check_image_start(self._head, self._format)

    def _check_room(self, needed_bytes: int) -> None:
        """Raise if an upload would use the disk's margin, as a database may share the disk."""
        try:
            disk = os.fstatvfs(self._file.fileno())
        except OSError as error:
            raise ImageStoreError(self._part.parent, store_error_message(error)) from error
        free_bytes = disk.f_bavail * disk.f_frsize
        if free_bytes - needed_bytes < self._margin_bytes:
            raise ImageStoreFullError(
                self._part.parent,
                needed_bytes=self.size_bytes + needed_bytes,
                free_bytes=free_bytes,
                margin_bytes=self._margin_bytes,
            )

    def _verify_signature(self) -> str | None:
        """Return the key that signed the uploaded image; None if no key is configured."""
        if self._signature is None or self._signed_digest is None:
            return None
        return check_signature(
            self._keys,
            self._signature,
            sha256=self._digest.digest(),
            blake2b=self._signed_digest.digest(),
        )


def check_image_digest(found: str, sha256: str, size_bytes: int) -> None:
    """Raise `ImageRefusedError` if an image file's hash is not the announced one."""
    if found != sha256:
        raise ImageRefusedError(
            f"its SHA-256 is {found} over {size_bytes} bytes, expected was {sha256}"
        )


def store_error_message(error: OSError) -> str:
    """Return the text of an error in the image store's folder."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "its disk is full"
    return error.strerror or str(error)


def _nonzero_parts(piece: bytes, at: int) -> Iterator[tuple[int, memoryview]]:
    """Yield the parts of an upload's piece that are not zeros, each with its offset in the file."""
    view, begun, start = memoryview(piece), 0, 0
    while start < len(piece):
        end = min(len(piece), start + _BLOCK_BYTES - (at + start) % _BLOCK_BYTES)
        if view[start:end] == _ZEROS[: end - start]:
            if begun < start:
                yield at + begun, view[begun:start]
            begun = end
        start = end
    if begun < start:
        yield at + begun, view[begun:start]


def _write_all(descriptor: int, data: memoryview, at: int) -> None:
    """Write data to a file at an offset, also if the kernel takes it in parts."""
    while data:
        written = os.pwrite(descriptor, data, at)
        data, at = data[written:], at + written
