"""Errors that return work to the outbox."""

from __future__ import annotations


class WorkersError(Exception):
    """Base of all errors of this package."""


class HostBusyError(WorkersError):
    """The host has its maximum of this process's threads. The sweep sends the work again."""

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__(f"{uri} gets no thread now: {reason}")
        self.uri = uri
        self.reason = reason


class MoveStoppedError(Exception):
    """The move must stop and leave its VM on the source."""


class StoppingError(WorkersError):
    """The process is stopping, so the work ends between two steps."""

    def __init__(self) -> None:
        super().__init__("this worker is stopping")


class FetchFailedError(WorkersError):
    """An image could not be downloaded from its URL."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url} cannot be downloaded: {reason}")
        self.url = url
        self.reason = reason


class RemoteFileMissingError(FetchFailedError):
    """The server does not have the file."""

    def __init__(self, url: str, status: int) -> None:
        super().__init__(url, f"it answers {status}")


class UploadTooSlowError(WorkersError):
    """A host receives an image too slowly."""

    def __init__(self, host: str, sent_bytes: int, deadline_s: float) -> None:
        super().__init__(
            f"host {host} took {sent_bytes} bytes in {deadline_s:g} s, the whole time for an upload"
        )
        self.host = host
        self.sent_bytes = sent_bytes


class DomainConflictError(WorkersError):
    """Another domain on the host has the VM's UUID."""

    def __init__(self, uri: str, vm_id: str, found: str) -> None:
        super().__init__(f"{uri} already has a domain with UUID {vm_id}: {found}")
        self.uri = uri
        self.vm_id = vm_id
        self.found = found
