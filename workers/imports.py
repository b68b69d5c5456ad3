"""Fetch images from where the operator allows it, into the store.

The list is looked at again for every address that is opened: a redirect leads on only
within it. No proxy of the environment is asked, no credentials are sent.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urljoin
from uuid import UUID

import httpx
import structlog

from registry import (
    ClaimLostError,
    ImageRefusedError,
    ImageStoreError,
    ImageTooLargeError,
    ImageUrlRefusedError,
    Import,
    Incoming,
    Stored,
    check_image_url,
)
from workers.context import Outcome, WorkerContext
from workers.errors import FetchFailedError, StoppingError

log: Final = structlog.get_logger(__name__)

_MAX_REDIRECTS: Final = 5
_PIECE_BYTES: Final = 1 << 20
_TELL_EVERY_S: Final = 1.0


def fetch(image_id: UUID, context: WorkerContext) -> Outcome:
    """Fetch an image, if that is ours to do and a thread is free for it."""
    if context.stopping.is_set() or not context.upload_threads.acquire(blocking=False):
        return Outcome.NOT_OURS
    try:
        claimed = context.registry.image_imports.claim(
            image_id, context.owner, context.upload_lease_s
        )
        return Outcome.NOT_OURS if claimed is None else _fetch(claimed, context)
    finally:
        context.upload_threads.release()


def _fetch(claimed: Import, context: WorkerContext) -> Outcome:
    imports, image = context.registry.image_imports, claimed.image
    bound = log.bind(image=image.reference, url=claimed.url)
    try:
        try:
            with context.store.receive(image.id, image.format) as incoming:
                stored = _receive(claimed, incoming, context)
            context.checkpoint("import.before_end")
            imports.imported(claimed.claim, stored)
        except StoppingError:
            imports.yielded(claimed.claim)
            return Outcome.HANDED_BACK
        except (
            FetchFailedError,
            ImageRefusedError,
            ImageStoreError,
            ImageTooLargeError,
            ImageUrlRefusedError,
        ) as error:
            bound.warning("import_failed", error=str(error))
            imports.failed(claimed.claim, str(error))
            return Outcome.FAILED
    except ClaimLostError:
        # Removed, so nobody has it; or fetched by another, whose file is where ours was.
        if context.registry.images.is_removed(image.id):
            context.store.discard(image.id, image.format)
        return Outcome.CLAIM_LOST
    bound.info("imported", bytes=stored.size_bytes)
    return Outcome.DONE


def _receive(claimed: Import, incoming: Incoming, context: WorkerContext) -> Stored:
    began = told_at = time.monotonic()
    try:
        with _opened(claimed.url, context) as response:
            for piece in response.iter_bytes(_PIECE_BYTES):
                if context.stopping.is_set():
                    raise StoppingError
                context.checkpoint("import.piece")
                incoming.write(piece)
                now = time.monotonic()
                if now - began > context.upload_deadline_s:
                    raise FetchFailedError(
                        claimed.url,
                        f"{incoming.size_bytes} bytes came in {context.upload_deadline_s:g} s,"
                        " the whole time for it",
                    )
                if now - told_at >= _TELL_EVERY_S:
                    context.registry.image_imports.progress(
                        claimed.claim, incoming.size_bytes, context.upload_lease_s
                    )
                    told_at = now
    except httpx.HTTPError as error:
        raise FetchFailedError(claimed.url, str(error) or repr(error)) from error
    return incoming.keep(claimed.image.sha256)


@contextmanager
def _opened(url: str, context: WorkerContext) -> Iterator[httpx.Response]:
    """Open the content that a URL leads to."""
    with httpx.Client(trust_env=False, timeout=context.piece_deadline_s) as client:
        for _ in range(_MAX_REDIRECTS + 1):
            check_image_url(url, context.image_urls)
            # As it lies there: what unpacks itself could be much more than was said.
            headers = {"Accept-Encoding": "identity"}
            with client.stream("GET", url, headers=headers) as response:
                if response.is_success:
                    announced = response.headers.get("Content-Length", "")
                    if announced.isdecimal() and int(announced[:20]) > context.store.max_bytes:
                        raise ImageTooLargeError(context.store.max_bytes)
                    yield response
                    return
                if not response.has_redirect_location:
                    raise FetchFailedError(url, f"it answers {response.status_code}")
                url = urljoin(url, response.headers["Location"])
        raise FetchFailedError(url, f"more than {_MAX_REDIRECTS} redirects")
