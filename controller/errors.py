"""Errors of rounds and of messages to workers."""

from __future__ import annotations


class ControllerError(Exception):
    """Base of all errors of this package."""


class PolicyFailedError(ControllerError):
    """The policy overran its time, or its process ended."""

    def __init__(self, policy: str, reason: str) -> None:
        super().__init__(f"policy {policy} {reason}")
        self.policy = policy
        self.reason = reason


class SlotSkippedError(ControllerError):
    """Neither the policy nor the fallback returned a feasible allocation."""

    def __init__(self, reasons: tuple[str, ...]) -> None:
        super().__init__("the slot is skipped: " + "; ".join(reasons))
        self.reasons = reasons


class ConsoleUnreadError(ControllerError):
    """No worker read the VM's console in time."""

    def __init__(self, vm: object, reason: str) -> None:
        super().__init__(f"cannot read the console of VM {vm}: {reason}")
        self.reason = reason
