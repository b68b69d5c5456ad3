"""Tracebacks for debugging, shown when `FUGA_DEBUG` is set."""

from __future__ import annotations

import os
import traceback
from typing import Final

VARIABLE: Final = "FUGA_DEBUG"


def tracebacks_enabled() -> bool:
    """Return whether the environment requests tracebacks."""
    return os.environ.get(VARIABLE, "") not in ("", "0")


def trace_or_hint(error: BaseException) -> str:
    """Return the traceback of an error's cause, or a hint that `FUGA_DEBUG` shows it."""
    if not tracebacks_enabled():
        return f"\n{VARIABLE}=1 shows the traceback"
    return "\n" + "".join(traceback.format_exception(error.__cause__ or error)).rstrip()
