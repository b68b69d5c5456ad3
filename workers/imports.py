"""Downloads of images from allowed URLs into the store.

Also checks images that were uploaded to an API without QEMU.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Final
from uuid import UUID

import structlog

from registry import (
    ClaimLostError,
    ImageRefusedError,
    ImageStoreError,
    ImageTooLargeError,
    ImageUrlRefusedError,
)
from registry.images import MAX_SIGNATURE_BYTES, SIGNATURE_SUFFIXES, IncomingFile, StoredFile
from registry.tasks import Import
from workers.context import TaskOutcome, WorkerContext
from workers.errors import FetchFailedError, RemoteFileMissingError, StoppingError
from workers.http_download import DownloadTimeouts, download

log: Final = structlog.get_logger(__name__)

_REPORT_EVERY_S: Final = 1.0


def import_image(image_id: UUID, context: WorkerContext) -> TaskOutcome:
    """Download an image into the store, if the claim succeeds and a thread is free.

    One download at a time, so that a slow mirror does not block uploads to hosts.
    """
    with ExitStack() as held:
        for threads in (context.import_threads, context.upload_threads):
            if context.stopping.is_set() or not threads.acquire(blocking=False):
                return TaskOutcome.NOT_OURS
            held.callback(threads.release)
        claimed = context.registry.image_imports.claim(
            image_id, context.owner, context.upload_lease_s
        )
        return TaskOutcome.NOT_OURS if claimed is None else _import_claimed_image(claimed, context)


def _import_claimed_image(claimed: Import, context: WorkerContext) -> TaskOutcome:
    """Import an image whose import is claimed, and record the outcome."""
    imports, image = context.registry.image_imports, claimed.image
    bound = log.bind(image=image.reference, url=claimed.url)
    try:
        try:
            stored = _store_image(claimed, context)
            context.checkpoint("import.before_end")
            imports.finish(claimed.claim, stored)
        except StoppingError:
            imports.yield_claim(claimed.claim)
            return TaskOutcome.HANDED_BACK
        except (
            FetchFailedError,
            ImageRefusedError,
            ImageStoreError,
            ImageTooLargeError,
            ImageUrlRefusedError,
        ) as error:
            bound.warning("import_failed", error=str(error))
            imports.record_failure(claimed.claim, str(error))
            context.store.discard(image.id, image.format)  # remove the refused upload
            return TaskOutcome.FAILED
    except ClaimLostError:
        # The image was removed, or another worker has fetched it.
        if context.registry.images.is_removed(image.id):
            context.store.discard(image.id, image.format)
        return TaskOutcome.CLAIM_LOST
    bound.info("imported", bytes=stored.size_bytes)
    return TaskOutcome.DONE


def _store_image(claimed: Import, context: WorkerContext) -> StoredFile:
    """Put the complete, checked image into the store; return its size, digest and signer."""
    image, store = claimed.image, context.store
    if image.size_bytes is None:
        signature = _image_signature(claimed, context)
        with store.receive(image.id, image.format, signature) as incoming:
            _download_image(claimed, incoming, context)
            stored = incoming.store(image.sha256)
    else:
        found = store.examine(image.id, image.format, image.sha256)
        if found is None:
            raise ImageRefusedError(f"it was uploaded, but worker {context.owner} does not find it")
        stored = found
    if not stored.opened:
        raise ImageRefusedError(
            f"worker {context.owner} has no qemu-img to check it with: install"
            " qemu-utils there, and add it again"
        )
    return stored


def _download_image(claimed: Import, incoming: IncomingFile, context: WorkerContext) -> None:
    """Download an image into a file of the store."""

    def store_piece(piece: bytes) -> None:
        incoming.write(piece)
        context.checkpoint("import.piece")

    download(
        claimed.url,
        context.image_urls,
        store_piece,
        _download_timeouts(claimed, context, incoming.announce),
    )


def _image_signature(claimed: Import, context: WorkerContext) -> bytes | None:
    """Return an image's given signature, or download it; None if none is needed."""
    if claimed.signature is not None:
        return claimed.signature.encode()
    if not context.store.keys:
        return None
    for suffix in SIGNATURE_SUFFIXES:
        gathered = bytearray()

        def gather_piece(piece: bytes, gathered: bytearray = gathered) -> None:
            gathered.extend(piece)
            _check_signature_size(len(gathered))

        with suppress(RemoteFileMissingError):
            url = claimed.url + suffix
            patience = _download_timeouts(claimed, context, _check_signature_size)
            download(url, context.image_urls, gather_piece, patience)
            return bytes(gathered)
    return None


def _check_signature_size(size_bytes: int) -> None:
    """Raise `ImageRefusedError` if a downloaded signature is too long for one."""
    if size_bytes > MAX_SIGNATURE_BYTES:
        raise ImageRefusedError(f"its signature has more than {MAX_SIGNATURE_BYTES} bytes")


def _download_timeouts(
    claimed: Import, context: WorkerContext, announce: Callable[[int], None]
) -> DownloadTimeouts:
    """Return the limits of an image's download, which also report its progress."""
    noted_at = time.monotonic()

    def report_progress(received_bytes: int) -> None:
        nonlocal noted_at
        if context.stopping.is_set():
            raise StoppingError
        now = time.monotonic()
        if now - noted_at >= _REPORT_EVERY_S:
            noted_at = now
            context.registry.image_imports.record_progress(
                claimed.claim, received_bytes, context.upload_lease_s
            )

    return DownloadTimeouts(
        piece_s=context.piece_deadline_s,
        whole_s=context.upload_deadline_s,
        announce=announce,
        check=report_progress,
    )
