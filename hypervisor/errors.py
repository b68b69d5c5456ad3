"""Errors that a caller can act on."""

from __future__ import annotations

from hypervisor.move_model import MigrationObstacle


def operation_words(operation: str) -> str:
    """Return a host operation's name with spaces: ``console_tail`` becomes ``console tail``."""
    return operation.replace("_", " ")


class HypervisorError(Exception):
    """Base of all errors of this package."""


class HostUnreachableError(HypervisorError):
    """The host did not answer in time. Whether it carried out the operation is unknown."""

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__(f"{uri} does not answer: {reason}")
        self.uri = uri
        self.reason = reason


class HostSilentError(HostUnreachableError):
    """The child process gave no answer: it waited too long, or died.

    ``signal`` is the signal that ended the child, if any.
    """

    def __init__(self, uri: str, reason: str, signal: int | None = None) -> None:
        super().__init__(uri, reason)
        self.signal = signal


class OperationFailedError(HypervisorError):
    """The host answered that the operation failed."""

    def __init__(self, operation: str, reason: str, code: int | None = None) -> None:
        super().__init__(f"{operation_words(operation)} failed: {reason}")
        self.operation = operation
        self.reason = reason
        self.code = code


class MoveHangsError(OperationFailedError):
    """A move made no progress; its process was killed.

    ``begun`` says whether anything was sent.
    """

    def __init__(self, operation: str, reason: str, *, begun: bool) -> None:
        super().__init__(operation, reason)
        self.begun = begun


class MigrationRefusedError(HypervisorError):
    """A move is impossible as requested. It was not begun."""

    def __init__(self, obstacle: MigrationObstacle, detail: str) -> None:
        super().__init__(f"the VM cannot be moved ({obstacle}): {detail}")
        self.obstacle = obstacle
        self.detail = detail
