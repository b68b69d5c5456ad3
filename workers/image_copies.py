"""Upload images to hosts and delete them there, so that no partial image is ever used.

1. The claim is a lease on the copy's row, extended with each piece.
2. Every attempt has its own volume. Its name is recorded before the volume is made, so the
   successor of a killed worker deletes the remains.
3. Only `uploaded`, a compare-and-set on the claim, makes builds use the volume. A worker that lost
   the claim deletes its own volume, to which no other worker writes.

Uploads are long, so they get only a part of a worker's threads. An upload that is refused or too
slow is abandoned.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final
from uuid import UUID

import structlog

from hypervisor import HostUnreachableError, OperationFailedError
from registry import ClaimLostError, ImageRefusedError, ImageStoreError
from registry.tasks import Upload
from workers import removals
from workers.context import TaskOutcome, WorkerContext
from workers.errors import HostBusyError, StoppingError, UploadTooSlowError

log: Final = structlog.get_logger(__name__)

_REPORT_EVERY_S: Final = 1.0  #: interval of progress reports


def upload_image(copy_id: UUID, context: WorkerContext) -> TaskOutcome:
    """Upload an image to a host, if the claim succeeds and a thread is free."""
    if context.stopping.is_set() or not context.upload_threads.acquire(blocking=False):
        return TaskOutcome.NOT_OURS
    try:
        return _upload_claimed_copy(copy_id, context)
    finally:
        context.upload_threads.release()


def _upload_claimed_copy(copy_id: UUID, context: WorkerContext) -> TaskOutcome:
    """Upload a claimed image copy to its host; log the outcome."""
    copies = context.registry.image_copies
    claimed = copies.claim_upload(copy_id, context.owner, context.upload_lease_s)
    if claimed is None:
        return TaskOutcome.NOT_OURS
    bound = log.bind(image=claimed.image.reference, host=claimed.host.name)
    began = time.monotonic()
    try:
        outcome = _upload_and_record(claimed, context)
    except ClaimLostError:
        _delete_own_volume(claimed, context)
        outcome = TaskOutcome.CLAIM_LOST
    bound.info("upload_ended", outcome=outcome, duration_s=round(time.monotonic() - began, 3))
    context.send_next_on_host(claimed.host.id)
    return outcome


def _upload_and_record(claimed: Upload, context: WorkerContext) -> TaskOutcome:
    """Upload an image and record the result; raise `ClaimLostError` if the claim is lost."""
    copies, image = context.registry.image_copies, claimed.image
    try:
        head = context.store.head(image.id, image.format)
        with context.hosts.use(claimed.host, pool=True) as host:
            if claimed.left_volume is not None:
                host.delete_volume(claimed.host.pool, claimed.left_volume)
            copies.record_volume(claimed.claim, claimed.volume)
            context.checkpoint("upload.after_begin")
            host.upload(
                pool=claimed.host.pool,
                name=claimed.volume,
                path=str(context.store.path(image.id, image.format)),
                size_bytes=image.size_bytes or 0,
                sha256=image.sha256,
                head=head,
                margin_bytes=context.store.margin_bytes,
                on_progress=_UploadMeter(claimed, context).record_progress,
                deadline_s=context.piece_deadline_s,
            )
        context.checkpoint("upload.before_end")
        copies.finish_upload(claimed.claim)
    except (HostBusyError, StoppingError):
        copies.retry_upload(claimed.claim, None)
        return TaskOutcome.HANDED_BACK
    except (HostUnreachableError, UploadTooSlowError) as error:
        _log_upload_failure(claimed, error)
        copies.retry_upload(claimed.claim, str(error))
        return TaskOutcome.HANDED_BACK
    except OperationFailedError as error:
        _log_upload_failure(claimed, error)
        copies.fail_upload(claimed.claim, error.reason)
        return TaskOutcome.FAILED
    except (ImageRefusedError, ImageStoreError) as error:
        _log_upload_failure(claimed, error)
        copies.fail_upload(claimed.claim, str(error))
        return TaskOutcome.FAILED
    return TaskOutcome.DONE


class _UploadMeter:
    """Reports the progress of an upload regularly, and ends it at its deadline."""

    def __init__(self, claimed: Upload, context: WorkerContext) -> None:
        self._claimed = claimed
        self._context = context
        self._began = self._noted_at = time.monotonic()

    def record_progress(self, sent_bytes: int) -> None:
        """Record the progress of an image upload; an error that it raises ends the upload."""
        if self._context.stopping.is_set():
            raise StoppingError
        self._context.checkpoint("upload.piece")
        now = time.monotonic()
        if now - self._began > self._context.upload_deadline_s:
            raise UploadTooSlowError(
                self._claimed.host.name, sent_bytes, self._context.upload_deadline_s
            )
        if now - self._noted_at >= _REPORT_EVERY_S:
            self._context.registry.image_copies.record_progress(
                self._claimed.claim, sent_bytes, self._context.upload_lease_s
            )
            self._noted_at = now


def remove_image_copy(copy_id: UUID, context: WorkerContext) -> TaskOutcome:
    """Delete a removed image's copy from its host, if the claim succeeds."""
    if context.stopping.is_set():
        return TaskOutcome.NOT_OURS
    copies = context.registry.image_copies
    removal = copies.claim_removal(copy_id, context.owner, context.lease_s)
    if removal is None:
        return TaskOutcome.NOT_OURS
    try:
        try:
            if removal.volume is not None:
                removals.check_hosts_sharing_pool(
                    removal.neighbours,
                    [removal.volume],
                    context,
                    keep=lambda: copies.extend_removal(removal.claim, context.lease_s),
                )
                copies.extend_removal(removal.claim, context.lease_s)
                with context.hosts.use(removal.host, pool=True) as host:
                    host.delete_volume(removal.host.pool, removal.volume)
            copies.finish_removal(removal.claim)
        except HostBusyError:
            copies.yield_removal(removal.claim, None)
            return TaskOutcome.HANDED_BACK
        except (HostUnreachableError, OperationFailedError) as error:
            copies.yield_removal(removal.claim, str(error))
            return TaskOutcome.HANDED_BACK
    except ClaimLostError:
        return TaskOutcome.CLAIM_LOST
    log.info("image_copy_removed", image=removal.image, host=removal.host.name)
    return TaskOutcome.DONE


def _delete_own_volume(claimed: Upload, context: WorkerContext) -> None:
    """Delete the volume of an image upload that lost its claim, as far as possible."""
    with (
        suppress(HostBusyError, HostUnreachableError, OperationFailedError),
        context.hosts.use(claimed.host, pool=True) as host,
    ):
        host.delete_volume(claimed.host.pool, claimed.volume)


def _log_upload_failure(claimed: Upload, error: Exception) -> None:
    """Log that the upload of an image to a host failed, and why."""
    log.warning(
        "upload_failed", image=claimed.image.reference, host=claimed.host.name, error=str(error)
    )
