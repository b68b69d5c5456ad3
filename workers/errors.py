"""Why an infrastructure manager hands work back."""

from __future__ import annotations


class WorkersError(Exception):
    """Base of all errors of this package."""


class HostBusyError(WorkersError):
    """The host gets no further thread of this process now; the sweep sends the work again."""

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__(f"{uri} gets no thread now: {reason}")
        self.uri = uri
        self.reason = reason


class StoppingError(WorkersError):
    """The process was asked to stop between two steps of the work."""

    def __init__(self) -> None:
        super().__init__("this worker is stopping")


class FetchFailedError(WorkersError):
    """An image could not be had from where it was said to be."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url} cannot be downloaded: {reason}")
        self.url = url
        self.reason = reason


class NotThereError(FetchFailedError):
    """The server answers, and has no such file."""

    def __init__(self, url: str, status: int) -> None:
        super().__init__(url, f"it answers {status}")


class UploadTooSlowError(WorkersError):
    """A host takes an image so slowly that the thread is needed for others."""

    def __init__(self, host: str, sent_bytes: int, deadline_s: float) -> None:
        super().__init__(
            f"host {host} took {sent_bytes} bytes in {deadline_s:g} s, the whole time for an upload"
        )
        self.host = host
        self.sent_bytes = sent_bytes


class DomainConflictError(WorkersError):
    """The VM's UUID is taken on its host by something that is not this assignment."""

    def __init__(self, uri: str, vm_id: str, found: str) -> None:
        super().__init__(f"{uri} already has a domain with UUID {vm_id}: {found}")
        self.uri = uri
        self.vm_id = vm_id
        self.found = found
