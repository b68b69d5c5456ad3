"""Strict checks of the values in a parsed JSON document that somebody else may have written."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final

_LARGEST: Final = 2**63
_HEX: Final = re.compile(r"[0-9a-f]*\Z")


class ProofError(ValueError):
    """A row differs from what was committed, or has no proof."""


def expect_object(value: Any, keys: Sequence[str], where: str) -> dict[str, Any]:
    """Return an object with exactly these keys."""
    if not isinstance(value, dict) or set(value) != set(keys):
        found = sorted(value) if isinstance(value, dict) else type(value).__name__
        raise ProofError(f"{where}: expected are {', '.join(keys)}; found: {str(found)[:200]}")
    return value


def expect_str(value: Any, where: str) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise ProofError(f"{where}: a text is expected, found {short_text(value)}")
    return value


def expect_bool(value: Any, where: str) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        raise ProofError(f"{where}: true or false is expected, found {short_text(value)}")
    return value


def expect_int(value: Any, where: str) -> int:
    """Return a whole number of 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LARGEST:
        raise ProofError(f"{where}: a whole number is expected, found {short_text(value)}")
    return value


def expect_list(value: Any, where: str) -> list[Any]:
    """Return a list."""
    if not isinstance(value, list):
        raise ProofError(f"{where}: a list is expected, found {short_text(value)}")
    return value


def float_hex(value: Any, where: str) -> str:
    """Return a number in hexadecimal, the form in which it is digested.

    Other programs may write 1.0 as 1 in JSON.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ProofError(f"{where}: a number is expected, found {short_text(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ProofError(f"{where}: a finite number is expected, found {short_text(value)}")
    return number.hex()


def parse_hex(value: Any, length: int, where: str) -> bytes:
    """Return the bytes of a number of hexadecimal digits."""
    if not (isinstance(value, str) and len(value) == length and _HEX.match(value)):
        raise ProofError(
            f"{where}: {length} hexadecimal digits are expected, found {short_text(value)}"
        )
    return bytes.fromhex(value)


def parse_digest(value: Any, where: str) -> bytes:
    """Return the bytes of a SHA-256 digest."""
    return parse_hex(value, 64, where)


def short_text(value: Any) -> str:
    """Return the beginning of a value, for messages."""
    try:
        return repr(value)[:60]
    except ValueError:  # an int of too many digits
        return "a number too long to print"
