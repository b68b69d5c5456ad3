"""Errors that a caller can act on."""

from __future__ import annotations

from hypervisor.move_model import MigrationObstacle


def in_words(operation: str) -> str:
    """Return an operation's name as people read it: ``console_tail`` is a console tail."""
    return operation.replace("_", " ")


class HypervisorError(Exception):
    """Base of all errors of this package."""


class HostUnreachableError(HypervisorError):
    """The host did not answer, or not in time. It says nothing about what it did."""

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__(f"{uri} does not answer: {reason}")
        self.uri = uri
        self.reason = reason


class HostSilentError(HostUnreachableError):
    """The process that was to ask it gave no answer: it waited too long, or died of what came.

    ``signal`` is the signal that ended it, if one did.
    """

    def __init__(self, uri: str, reason: str, signal: int | None = None) -> None:
        super().__init__(uri, reason)
        self.signal = signal


class OperationFailedError(HypervisorError):
    """The host answered, and refused."""

    def __init__(self, operation: str, reason: str, code: int | None = None) -> None:
        super().__init__(f"{in_words(operation)} failed: {reason}")
        self.operation = operation
        self.reason = reason
        self.code = code


class MoveHangsError(OperationFailedError):
    """A move hangs between its hosts; the process that led it was killed.

    ``begun`` says whether anything was sent.
    """

    def __init__(self, operation: str, reason: str, *, begun: bool) -> None:
        super().__init__(operation, reason)
        self.begun = begun


class MigrationRefusedError(HypervisorError):
    """A move is impossible as requested, and was not begun."""

    def __init__(self, obstacle: MigrationObstacle, detail: str) -> None:
        super().__init__(f"the VM cannot be moved ({obstacle}): {detail}")
        self.obstacle = obstacle
        self.detail = detail
