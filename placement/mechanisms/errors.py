"""Problems that a mechanism has no answer to."""

from __future__ import annotations

from placement.errors import PlacementError


class UnsupportedProblemError(PlacementError):
    """A problem says something that means nothing to this mechanism."""

    def __init__(self, mechanism: str, field: str, reason: str) -> None:
        super().__init__(f"{mechanism} cannot use {field}: {reason}")
        self.mechanism = mechanism
        self.field = field
        self.reason = reason
