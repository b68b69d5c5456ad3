"""Masks secrets in log lines."""

from __future__ import annotations

import re
from typing import Any, Final

MASK: Final = "***"
_PASSWORD: Final = re.compile(r"(\w://[^\s/:@'\"\\]*:)[^\s@'\"\\]+(?=@)")
_TOKEN: Final = re.compile(r"\bfuga_[A-Za-z0-9_-]{16,}")
_BEARER: Final = re.compile(r"((?i:bearer|basic) +)[A-Za-z0-9._~+/=-]{8,}")
#: Passwords as libpq and others write them: password=..., sslpassword=...
_ASSIGNED: Final = re.compile(r"(?i)(password\s*[=:]\s*)[^\s&,;'\"\\]+")


#: A line without these words, in any case, has nothing to mask; most lines have none.
#: Not all of "basic": an expression that ignores case also matches a dotless i.
_SIGNS: Final = ("://", "fuga_", "bearer", "bas", "password")


def mask_secrets(text: str) -> str:
    """Return a text of the log without passwords of URLs, and without tokens."""
    folded = text.casefold()
    if not any(sign in folded for sign in _SIGNS):
        return text
    text = _PASSWORD.sub(rf"\1{MASK}", text)
    text = _BEARER.sub(rf"\1{MASK}", text)
    text = _TOKEN.sub(f"fuga_{MASK}", text)
    return _ASSIGNED.sub(rf"\1{MASK}", text)


def mask_line(_logger: Any, _method: str, line: str) -> str:
    """Mask a whole line of the log, as structlog's last processor."""
    return mask_secrets(line)
