"""Errors for problems that a mechanism cannot divide."""

from __future__ import annotations

from placement.errors import PlacementError


class UnsupportedProblemError(PlacementError):
    """A problem uses a field that this mechanism does not support."""

    def __init__(self, mechanism: str, field: str, reason: str) -> None:
        super().__init__(f"{mechanism} cannot use {field}: {reason}")
        self.mechanism = mechanism
        self.field = field
        self.reason = reason
