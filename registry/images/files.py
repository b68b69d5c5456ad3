"""Comparison of the image folder with the register center: stray files and missing files.

A file is stored before its image is registered, and deleted after it: a process that is killed in
between leaves a stray file. Files of removed images are deleted by the
next API that starts, and all stray files by `fuga doctor --repair`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from registry.db.pages import MAX_LIMIT
from registry.errors import NotFoundError
from registry.images.images import Images
from registry.images.store import PART, ImageStore, image_id_of
from registry.lifecycle import ImageState
from registry.records.images import Image


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFinding:
    """A stray file, or an image whose file is missing or damaged."""

    message: str
    stray: Path | None = None  #: a file that belongs to no image and is not being added


def check_image_files(
    images: Images, store: ImageStore, *, hashes: bool = False
) -> Iterator[FileFinding]:
    """Yield stray, missing and damaged image files; with ``hashes`` each is read completely."""
    for path, why, _ in _stray_files(images, store):
        yield FileFinding(message=f"{path}: {why}", stray=path)
    for image in _all_images(images):
        if image.state is ImageState.READY:
            wrong = _content_fault(image, store.path(image.id, image.format), hashes=hashes)
            if wrong is not None:
                yield FileFinding(message=f"image {image.reference}: {wrong}")


def remove_strays(images: Images, store: ImageStore) -> list[FileFinding]:
    """Delete files of the store that belong to no image, and return them."""
    return [_remove_file(path, why) for path, why, _ in _stray_files(images, store)]


def remove_files_of_removed(images: Images, store: ImageStore) -> list[FileFinding]:
    """Delete files of removed images, and partial files of ended uploads.

    Unknown files stay: they may belong to another register center, or to a newer state of this one.
    """
    return [_remove_file(path, why) for path, why, known in _stray_files(images, store) if known]


def _remove_file(path: Path, why: str) -> FileFinding:
    """Delete a stray file of the image store, and return it with the reason."""
    path.unlink(missing_ok=True)
    return FileFinding(message=f"{path}: {why}", stray=path)


def _stray_files(images: Images, store: ImageStore) -> Iterator[tuple[Path, str, bool]]:
    """Yield stray files of the image store, each with its reason and whether its image is known.

    Each is locked until the next is requested. A process that adds an image unlocks its file after
    its row is committed, so a read while the file is locked is final.
    """
    for path in store.files():
        with store.lock_file(path) as mine:
            if mine and (found := _stray_reason(images, path)) is not None:
                yield path, *found


def _stray_reason(images: Images, path: Path) -> tuple[str, bool] | None:
    """Return why a file of the image store is stray, and whether its image is known, or None."""
    key = image_id_of(path)
    assert key is not None  # noqa: S101 - the store lists files of images alone
    if path.suffix == PART:
        return "it was received in part, and its upload has ended", True
    image = _find_image(images, key)
    if image is None:
        return "no image has this file", False
    if image.state in (ImageState.REMOVED, ImageState.FAILED):
        return f"its image {image.reference} is {image.state}", True
    return None if path.suffix == f".{image.format}" else (f"{image.reference} has another", False)


def _content_fault(image: Image, path: Path, *, hashes: bool) -> str | None:
    """Return what is wrong with the stored file of an image, or None."""
    try:
        size = path.stat().st_size
        if size != image.size_bytes:
            return f"{path} has {size} bytes, it should have {image.size_bytes}"
        if not hashes:
            return None
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return f"{path} is not there; add the same content again, and it is back"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    return None if found == image.sha256 else f"the SHA-256 of {path} is {found}, not its own"


def _find_image(images: Images, key: UUID) -> Image | None:
    """Return an image by its id, or None."""
    try:
        return images.by_id(key)
    except NotFoundError:
        return None


def _all_images(images: Images) -> Iterator[Image]:
    """Yield all images that are not removed, read in pages."""
    cursor = None
    while True:
        page = images.list(limit=MAX_LIMIT, cursor=cursor)
        yield from page.items
        if page.next is None:
            return
        cursor = page.next
