"""Verifies the chain of closed months: digests, costs of lines, and the site's signatures.

It recomputes what `registry/usage/entry_digests.py` writes, and shares no code with it. A reader
sees all leaves of an entry, or the contents of one tenant's and the digests of the others.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from controller.session.json_shapes import (
    ProofError,
    expect_int,
    expect_list,
    expect_object,
    expect_str,
    parse_hex,
)
from controller.session.signed_heads import is_signed_by

BEGINNING: Final = "0" * 64
_DIGEST, _KEY, _SIGNATURE = 64, 64, 128
_ENTRY: Final = (
    "number", "kind", "month", "currency", "minor_digits", "created_at", "previous", "content",
    "link", "signed", "leaves",
)  # fmt: skip
_LEAF: Final = ("digest", "salt", "tenant", "groups", "author", "reason", "lines")
_LINE: Final = ("vm_type", "resource", "held", "charged", "price", "price_since", "cost")
_DECIMAL: Final = re.compile(r"-?[0-9]{1,60}(\.[0-9]{1,15})?\Z")
_MONTH: Final = re.compile(r"(20[0-9]{2})-(0[1-9]|1[0-2])-01\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedUsage:
    """What a verified chain of closed months has."""

    entries: int
    months: int
    lines: int  #: whose costs were recomputed or are corrections
    first_month: str | None
    last_month: str | None
    link: str  #: the newest one, which covers all entries
    signed_to: int  #: the newest signed entry, which covers all before it; 0: none is
    signed_by: str | None


def verify_entries(
    entries: Sequence[Any], *, keys: Collection[str] = (), pinned: str | None = None
) -> VerifiedUsage:
    """Verify all entries, newest first, from the first one on.

    Parameters
    ----------
    keys : collection of str
        The public keys of the site; a signature must be of one of them.
    pinned : str or None
        A public key that the reader trusts: the newest entry must be signed by it. Without entries
        there is nothing to sign.

    Raises
    ------
    ProofError
        If a digest, a cost, the order of entries or a signature is not right.
    """
    previous = BEGINNING
    months: list[str] = []
    lines = signed_to = 0
    signed_by = None
    for number, entry in enumerate(reversed(entries), 1):
        where = f"entry {number}"
        expect_object(entry, _ENTRY, where)
        if expect_int(entry["number"], f"{where}.number") != number:
            raise ProofError(f"{where} is missing: {entry['number']} is in its place")
        if entry["previous"] != previous:
            raise ProofError(f"{where} does not follow the entry before it")
        lines += _check_entry(entry, where)
        _check_order(entry, months, where)
        previous = entry["link"]
        if entry["signed"] is not None:
            signed_by = _check_signature(entry, {*keys, pinned}, where)
            signed_to = number
    if pinned is not None and entries and (signed_to != len(entries) or signed_by != pinned):
        raise ProofError(f"the newest entry is not signed by key {pinned}")
    return VerifiedUsage(
        entries=len(entries),
        months=len(months),
        lines=lines,
        first_month=months[0] if months else None,
        last_month=months[-1] if months else None,
        link=previous,
        signed_to=signed_to,
        signed_by=signed_by,
    )


def _check_order(entry: Mapping[str, Any], months: list[str], where: str) -> None:
    """Check that months follow each other, and that a correction is of one of them."""
    found = _MONTH.match(expect_str(entry["month"], f"{where}.month"))
    if found is None:
        raise ProofError(f"{where}.month: the first day of a month is expected")
    month = f"{found[1]}-{found[2]}"
    match entry["kind"]:
        case "month":
            if months and month != _following(months[-1]):
                raise ProofError(f"{where} closes {month}, not the month after {months[-1]}")
            months.append(month)
        case "correction":
            if month not in months:
                raise ProofError(f"{where} corrects {month}, which is not closed")
        case _:
            raise ProofError(f"{where}.kind: month or correction is expected")


def _following(month: str) -> str:
    year, number = int(month[:4]), int(month[5:])
    return f"{year + number // 12}-{number % 12 + 1:02}"


def _check_entry(entry: Mapping[str, Any], where: str) -> int:
    """Check the digests and costs of an entry; return how many lines are shown."""
    digests, lines = [], 0
    for at, leaf in enumerate(expect_list(entry["leaves"], f"{where}.leaves")):
        place = f"{where}.leaves[{at}]"
        expect_object(leaf, _LEAF, place)
        digests.append(parse_hex(leaf["digest"], _DIGEST, f"{place}.digest"))
        if leaf["salt"] is not None:
            lines += _check_leaf(leaf, entry, place)
    header = [
        entry[name]
        for name in ("number", "kind", "month", "currency", "minor_digits", "created_at")
    ]
    header[-1] = _as_written(expect_str(header[-1], f"{where}.created_at"))
    content = _digest("entry", _text(header), *sorted(digests))
    if content != entry["content"]:
        raise ProofError(f"{where}: its fields and leaves are not those of its digest")
    previous = parse_hex(entry["previous"], _DIGEST, f"{where}.previous")
    if _digest("link", previous, bytes.fromhex(content)) != entry["link"]:
        raise ProofError(f"{where}: its link is not that of its content and the entry before it")
    return lines


def _as_written(created_at: str) -> str:
    """Return a time as the digest has it: with microseconds, and UTC as an offset."""
    try:
        at = datetime.fromisoformat(created_at)
    except ValueError:
        raise ProofError(f"no time: {created_at[:40]!r}") from None
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def _check_leaf(leaf: Mapping[str, Any], entry: Mapping[str, Any], where: str) -> int:
    """Check the digest of a leaf whose content is shown, and the costs of its lines."""
    salt = parse_hex(leaf["salt"], _DIGEST, f"{where}.salt")
    lines = expect_list(leaf["lines"], f"{where}.lines")
    for at, line in enumerate(lines):
        expect_object(line, _LINE, f"{where}.lines[{at}]")
        _check_cost(line, entry, f"{where}.lines[{at}]")
    of_lines = [[line[name] for name in _LINE] for line in lines]
    fields = [leaf["tenant"], leaf["groups"], leaf["author"], leaf["reason"], of_lines]
    if _digest("leaf", salt, _text(fields)) != leaf["digest"]:
        raise ProofError(f"{where}: its lines are not those of its digest")
    return len(lines)


def _check_cost(line: Mapping[str, Any], entry: Mapping[str, Any], where: str) -> None:
    """Check that a line's cost is usage times price, rounded half to even."""
    if entry["kind"] == "correction":
        return
    charged = _fraction(line["charged"], f"{where}.charged")
    cost = None
    if line["price"] is not None and charged and entry["currency"] is not None:
        unit = Fraction(10) ** -expect_int(entry["minor_digits"], f"{where}: minor_digits")
        exact = charged / 3600 * _fraction(line["price"], f"{where}.price")
        cost = round(exact / unit) * unit
    found = None if line["cost"] is None else _fraction(line["cost"], f"{where}.cost")
    if found != cost:
        raise ProofError(
            f"{where}: {line['charged']} {line['resource']} seconds at {line['price']} an hour do"
            f" not cost {line['cost']}"
        )


def _fraction(value: Any, where: str) -> Fraction:
    if not _DECIMAL.match(expect_str(value, where)):
        raise ProofError(f"{where}: a decimal number is expected")
    return Fraction(Decimal(value))


def _check_signature(entry: Mapping[str, Any], keys: Collection[str | None], where: str) -> str:
    signed = expect_object(entry["signed"], ("key", "signature"), f"{where}.signed")
    key = expect_str(signed["key"], f"{where}.signed.key")
    parse_hex(key, _KEY, f"{where}.signed.key")
    signature = parse_hex(signed["signature"], _SIGNATURE, f"{where}.signed.signature")
    if key not in keys:
        raise ProofError(f"{where} is signed by key {key}, which is none of the site's")
    message = f"fuga usage 1\n{entry['number']}\n{entry['link']}\n".encode()
    if not is_signed_by(key, signature, message):
        raise ProofError(f"{where}: its signature is not that of key {key} and this link")
    return key


def _text(values: Any) -> bytes:
    try:
        return json.dumps(values, separators=(",", ":"), allow_nan=False).encode()
    except (ValueError, TypeError) as error:
        raise ProofError(f"no values for a digest: {error}") from None


def _digest(what: str, *parts: bytes) -> str:
    return hashlib.sha256(f"fuga usage {what} 1\n".encode() + b"".join(parts)).hexdigest()
