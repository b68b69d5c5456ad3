"""The folder of image files, from which workers copy them to hosts.

A complete and checked file becomes an image by a rename. A partial file of a
killed process is deleted by the next upload.
The receiver of a file locks it (flock) until its row is written: an unlocked file without
an image was left by a killed process.
"""

from __future__ import annotations

import fcntl
import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

from registry.errors import ImageRefusedError, ImageStoreError
from registry.images.header import checked_head, read_virtual_size
from registry.images.incoming_file import (
    IncomingFile,
    StoredFile,
    check_image_digest,
    store_error_message,
)
from registry.images.qemu_img import check_opens
from registry.images.signatures import ImageKey
from registry.records.images import ImageFormat

PART: Final = ".part"
#: Seconds without a write after which a partial file belongs to no upload.
_STALE_S: Final = 3600.0


class ImageStore:
    """Images by id. Several processes may use one folder, also over a shared file system.

    With ``keys``, an image must be signed by one of them. Images
    leave ``margin_bytes`` of the folder's disk free, which a database may share.
    """

    def __init__(
        self, folder: Path, *, max_bytes: int, margin_bytes: int = 0, keys: Sequence[ImageKey] = ()
    ) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self.margin_bytes = margin_bytes
        self.keys = keys

    def path(self, image_id: UUID, image_format: ImageFormat) -> Path:
        """Return the path of an image's file, which may not exist."""
        return self.folder / f"{image_id}.{image_format}"

    @contextmanager
    def receive(
        self, image_id: UUID, image_format: ImageFormat, signature: bytes | None = None
    ) -> Iterator[IncomingFile]:
        """Yield a file for an upload, which is deleted unless `IncomingFile.store` is called.

        The file is locked until the block ends, so the caller registers the image
        inside the block.

        Raises
        ------
        ImageStoreError
            If the folder cannot be written to.
        ImageRefusedError
            If a signature is missing, or there is no key to verify it.
        """
        self._check_signature_given(signature)
        path = self.path(image_id, image_format)
        part = path.with_name(f"{path.name}.{uuid4().hex}{PART}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._delete_stale_files()
            file = part.open("x+b")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            raise ImageStoreError(self.folder, store_error_message(error)) from error
        try:
            with file:
                yield IncomingFile(
                    file,
                    part,
                    path,
                    image_format=image_format,
                    max_bytes=self.max_bytes,
                    margin_bytes=self.margin_bytes,
                    keys=self.keys,
                    signature=signature,
                )
        finally:
            part.unlink(missing_ok=True)

    def examine(self, image_id: UUID, image_format: ImageFormat, sha256: str) -> StoredFile | None:
        """Check a stored file that was not checked when it was written; None if it does not exist.

        Raises
        ------
        ImageRefusedError
            If the file differs from its announcement, or must not become an image.
        ImageStoreError
            If it cannot be read.
        """
        try:
            with self.path(image_id, image_format).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
                size_bytes = file.tell()
                check_image_digest(found, sha256, size_bytes)
                return StoredFile(
                    sha256=found,
                    size_bytes=size_bytes,
                    virtual_size_bytes=read_virtual_size(file, image_format),
                    opened=image_format != "qcow2" or check_opens(file),
                    signed_by=None,
                )
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ImageStoreError(self.folder, store_error_message(error)) from error

    def head(self, image_id: UUID, image_format: ImageFormat) -> bytes:
        """Return the head of an image's file, checked again, as hosts probe it first.

        Raises
        ------
        ImageRefusedError
            If the file must not reach a host, as an older release accepted it or it changed.
        ImageStoreError
            If it cannot be read.
        """
        path = self.path(image_id, image_format)
        try:
            with path.open("rb") as file:
                return checked_head(file, image_format)
        except OSError as error:
            raise ImageStoreError(path, store_error_message(error)) from error

    def _check_signature_given(self, signature: bytes | None) -> None:
        """Raise `ImageRefusedError` if a signature is missing, or no key could verify it."""
        if self.keys and signature is None:
            trusted = ", ".join(map(str, self.keys))
            raise ImageRefusedError(
                f"it is not signed, and images here are: by one of {trusted} (FUGA_IMAGE_KEYS);"
                " `fuga image add … --signature FILE` gives its signature"
            )
        if signature is not None and not self.keys:
            raise ImageRefusedError(
                "it has a signature, and no trusted key is configured to verify whether it is"
                " good: FUGA_IMAGE_KEYS is empty"
            )

    def rename_file(self, image_id: UUID, of: UUID, image_format: ImageFormat) -> None:
        """Rename a file to that of another image with identical content."""
        try:
            self.path(image_id, image_format).replace(self.path(of, image_format))
        except OSError as error:
            raise ImageStoreError(self.folder, store_error_message(error)) from error

    def discard(self, image_id: UUID, image_format: ImageFormat) -> None:
        """Delete an image's file; it may be gone. Open readers can still read it to its end."""
        with suppress(OSError):
            self.path(image_id, image_format).unlink(missing_ok=True)

    def files(self) -> list[Path]:
        """Return all image files in the store, complete or partial; [] without a folder."""
        try:
            found = sorted(self.folder.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ImageStoreError(self.folder, store_error_message(error)) from error
        return [path for path in found if image_id_of(path) is not None]

    @contextmanager
    def lock_file(self, path: Path) -> Iterator[bool]:
        """Lock a file of the image store; yield False if it is gone, or may be being added."""
        with ExitStack() as stack:
            try:
                # To write: over a shared file system no other process may lock it exclusively.
                file = stack.enter_context(path.open("r+b"))
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                mine = path.suffix != PART or _is_stale_file(path)
            except OSError:
                mine = False
            yield mine

    def _delete_stale_files(self) -> None:
        """Delete old partial files of uploads that no process writes."""
        for part in self.folder.glob(f"*{PART}"):
            # By its time alone, a file that receives only zeros seems stale, as they become holes.
            with self.lock_file(part) as no_writer, suppress(OSError):
                if no_writer:
                    part.unlink()


def image_id_of(path: Path) -> UUID | None:
    """Return the image id in the name of a file of the store, or None."""
    try:
        return UUID(path.name.partition(".")[0])
    except ValueError:
        return None


def _is_stale_file(part: Path) -> bool:
    """Return whether a partial upload was not written to for a long time."""
    return part.stat().st_mtime < time.time() - _STALE_S
