"""Which paths need a token."""

from __future__ import annotations

from typing import Final

from controller.rest.metrics import METRICS_PATH

PROTECTED_PREFIX: Final = "/v1"
#: Whoever restarts the process asks there.
HEALTH_PATHS: Final = frozenset({"/healthz", "/readyz"})


def is_protected(path: str) -> bool:
    """Return whether a path needs a token."""
    return path in (PROTECTED_PREFIX, METRICS_PATH) or path.startswith(PROTECTED_PREFIX + "/")
