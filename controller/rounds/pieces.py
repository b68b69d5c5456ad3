"""Inputs of a round as canonical JSON in pieces, of which the long ones are kept.

Nearly all of a round's inputs say which hosts there are and what they offer, and between two rounds
little of that changes. Each long value is a piece of its own, whose text and compressed form
are kept until another value takes its place. The bytes do not depend on what was kept: a piece is
compressed by itself, and pieces are joined as parts of one zlib stream.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

#: Long values, by where they stand in the document of `RoundInputs`.
LONG: Final = frozenset(
    {
        ("names", "hosts"),
        ("names", "tenants"),
        ("snapshot", "capacity"),
        ("snapshot", "free"),
        ("snapshot", "held"),
        ("snapshot", "host_class"),
        ("snapshot", "weight"),
    }
)
#: What is free changes in every round: level 6 takes three times as long for a tenth less.
_LEVEL: Final = 4
#: The beginning of a zlib stream of such a level, and an empty block that ends one.
_BEGIN: Final = b"\x78\x5e"
_END: Final = b"\x03\x00"


@dataclass(slots=True, eq=False)
class Piece:
    """A part of the text."""

    value: Any  #: what it says; None: nothing that is kept
    text: bytes
    _compressed: bytes | None = field(default=None, init=False)

    @property
    def compressed(self) -> bytes:
        """The text in blocks of raw deflate that end at a byte and refer to nothing before."""
        if self._compressed is None:
            made = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
            self._compressed = made.compress(self.text) + made.flush(zlib.Z_FULL_FLUSH)
        return self._compressed


class Pieces:
    """The latest piece of each long value."""

    def __init__(self) -> None:
        self._latest: dict[tuple[str, str], Piece] = {}

    def of(self, document: Mapping[str, Any]) -> Iterator[Piece]:
        """Yield the canonical text of a document of a round's inputs, piece by piece.

        Arrays may stand in it as they are; see `RoundInputs.document`.
        """
        short: list[str] = []
        for part in self._parts(document):
            if isinstance(part, str):
                short.append(part)
                continue
            yield Piece(None, "".join(short).encode())
            yield part
            short = []
        yield Piece(None, "".join(short).encode())

    def _parts(self, document: Mapping[str, Any]) -> Iterator[str | Piece]:
        outer = "{"
        for name in sorted(document):
            yield f"{outer}{json.dumps(name)}:"
            outer = ","
            if name not in ("names", "snapshot"):
                yield canonical(document[name])
                continue
            inner = "{"
            for key in sorted(document[name]):
                yield f"{inner}{json.dumps(key)}:"
                inner = ","
                value = document[name][key]
                yield self._kept((name, key), value) if (name, key) in LONG else canonical(value)
            yield "}"
        yield "}"

    def _kept(self, where: tuple[str, str], value: Any) -> Piece:
        piece = self._latest.get(where)
        if piece is None or not _same(piece.value, value):
            piece = self._latest[where] = Piece(value, canonical(value).encode())
        return piece


def joined(pieces: Iterator[Piece]) -> bytes:
    """Return pieces as one zlib stream."""
    parts, check = [_BEGIN], zlib.adler32(b"")
    for piece in pieces:
        parts.append(piece.compressed)
        check = zlib.adler32(piece.text, check)
    return b"".join([*parts, _END, check.to_bytes(4)])


def canonical(value: Any) -> str:
    """Return JSON values, or an array, in the one form in which they are digested and stored."""
    told = value.tolist() if isinstance(value, np.ndarray) else value
    return json.dumps(told, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no JSON value")


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return type(one) is type(other) and bool(one == other)
