"""Strict JSON: bytes to plain values, with exact numbers and no repairs.

The standard library's scanner does the work; this module closes what it leaves
open: duplicate keys, NaN and Infinity, numbers whose conversion would take
minutes, nesting that ends the stack, and files too large to be meant.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final, NoReturn

from placement.solve.problem.faults import ProblemFault, ProblemFileError

#: The largest file that is read at all.
MAX_BYTES: Final = 32 * 2**20
#: Numbers and objects together; beyond, a file costs gigabytes once it is read.
MAX_VALUES: Final = 3_000_000
#: Longer numbers are not converted: int() takes time quadratic in their length.
MAX_NUMBER_CHARACTERS: Final = 60

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_WORDING: Final = {
    "Extra data": "the file goes on after the end of its JSON value",
    "Expecting value": "expected a JSON value",
}


@dataclass(frozen=True, slots=True)
class NotANumber:
    """The value of a malformed number of the file, or of one out of bounds."""

    found: str

    def __str__(self) -> str:
        return self.found


class RepeatedKeys(dict[str, object]):
    """An object of the file in which keys stand more than once (the last one counts)."""

    __slots__ = ("repeated",)

    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        super().__init__(pairs)
        times = Counter(key for key, _ in pairs)
        self.repeated = tuple(key for key, found in times.items() if found > 1)


def decode_json(data: bytes) -> object:
    """Return the JSON value of a problem file: dict, list, str, bool, None, int, Decimal.

    Raises
    ------
    ProblemFileError
        If the syntax is broken (the error has line and column), or if the file exceeds a limit.
    """
    if len(data) > MAX_BYTES:
        _refuse_text("", f"is larger than {MAX_BYTES // 2**20} MiB, the most that is read")
    text = _decode_text(data)
    if not text.strip(" \t\r\n"):
        _refuse_text("", "is empty; expected one JSON object")
    scanner = _JsonScanner()
    try:
        return json.loads(
            text,
            parse_int=scanner.integer,
            parse_float=scanner.decimal,
            parse_constant=NotANumber,
            object_pairs_hook=scanner.object,
        )
    except json.JSONDecodeError as error:
        wording = _WORDING.get(error.msg, error.msg[:1].lower() + error.msg[1:])
        _refuse_text(f"line {error.lineno}, column {error.colno}", f"broken JSON: {wording}")
    except RecursionError:
        _refuse_text("", "is nested too deeply; a problem needs five levels")


class _JsonScanner:
    """The hooks of the JSON decoder for one file; they share a count of its values."""

    def __init__(self) -> None:
        self._values = 0

    def integer(self, text: str) -> int | NotANumber:
        """Decode a whole number; one of too many digits is no number."""
        self._count_value()
        if len(text) > MAX_NUMBER_CHARACTERS:
            return NotANumber(f"a number of {len(text):,} characters")
        return int(text)

    def decimal(self, text: str) -> Decimal | NotANumber:
        """Decode a number with a point or an exponent, exactly."""
        self._count_value()
        if len(text) > MAX_NUMBER_CHARACTERS:
            return NotANumber(f"a number of {len(text):,} characters")
        try:
            return Decimal(text)
        except InvalidOperation:  # an exponent of twenty digits
            return NotANumber(text)

    def object(self, pairs: list[tuple[str, object]]) -> dict[str, object]:
        """Decode an object; keys that stand twice are kept for the report of faults."""
        self._count_value()
        plain = dict(pairs)
        return plain if len(plain) == len(pairs) else RepeatedKeys(pairs)

    def _count_value(self) -> None:
        """Count a value; raise if the file holds too many."""
        self._values += 1
        if self._values > MAX_VALUES:
            _refuse_text(
                "", f"holds more than {MAX_VALUES:,} numbers and objects, the most allowed"
            )


def _decode_text(data: bytes) -> str:
    """Decode the bytes of the file as UTF-8; the error has line and column."""
    if data.startswith(_BYTE_ORDER_MARK):
        data = data[len(_BYTE_ORDER_MARK) :]
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8")) + 1
        found = data[error.start]
        _refuse_text(f"line {line}, column {column}", f"not UTF-8: found byte 0x{found:02x}")


def _refuse_text(place: str, message: str) -> NoReturn:
    """Raise `ProblemFileError` for a fault of the JSON text."""
    raise ProblemFileError([ProblemFault(place, message)])
