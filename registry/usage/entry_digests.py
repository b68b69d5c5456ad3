"""Digests of entries, which fix what a closed month says of each tenant.

An entry has a leaf for each tenant, and one with its author. Each leaf has a salt of its own, so
it cannot be guessed from its digest. The content is the digest of the entry's public fields and of
all leaves, sorted; the link is the digest of the previous link and the content.
`controller/session/closed_usage.py` verifies the chain, and shares no code with this module.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Sequence
from datetime import UTC
from typing import Final

from registry.records.usage import ClosedEntry, EntryLeaf, EntryLine
from registry.usage.closed_lines import ClosedLine
from registry.usage.holding_times import seconds

#: What the first entry follows.
BEGINNING: Final = "0" * 64
_AUTHOR: Final = ""  #: no tenant's name


def author_leaf(salt: bytes, author: str) -> EntryLeaf:
    """Return the leaf that names an entry's author."""
    return _leaf(salt, None, (), author, None, ())


def tenant_leaves(
    salt: bytes, lines: Iterable[ClosedLine], reason: str | None
) -> Sequence[EntryLeaf]:
    """Return the leaf of each tenant; lines are in the order of their positions."""
    of_tenants: dict[tuple[str, tuple[str, ...]], list[EntryLine]] = {}
    for line in lines:
        of_tenants.setdefault((line.tenant, line.groups), []).append(_entry_line(line))
    return [
        _leaf(salt, tenant, groups, None, reason, found)
        for (tenant, groups), found in of_tenants.items()
    ]


def _entry_line(line: ClosedLine) -> EntryLine:
    return EntryLine(
        vm_type=line.vm_type,
        resource=line.resource,
        held=str(seconds(line.held)),
        charged=str(seconds(line.charged)),
        price=None if line.price is None else format(line.price, "f"),
        price_since=None if line.price_since is None else line.price_since.isoformat(),
        cost=None if line.cost is None else format(line.cost, "f"),
    )


def _leaf(  # noqa: PLR0917 - the fields in the order of the digest
    salt: bytes,
    tenant: str | None,
    groups: Sequence[str],
    author: str | None,
    reason: str | None,
    lines: Sequence[EntryLine],
) -> EntryLeaf:
    own_salt = hmac.digest(salt, (tenant or _AUTHOR).encode(), "sha256")
    of_lines = [
        [
            line.vm_type,
            line.resource,
            line.held,
            line.charged,
            line.price,
            line.price_since,
            line.cost,
        ]
        for line in lines
    ]
    text = _canonical_text([tenant, list(groups), author, reason, of_lines])
    return EntryLeaf(
        digest=_sha256_hex("leaf", own_salt, text),
        salt=own_salt.hex(),
        tenant=tenant,
        groups=groups,
        author=author,
        reason=reason,
        lines=lines,
    )


def content_digest(entry: ClosedEntry, leaves: Iterable[EntryLeaf]) -> str:
    """Return the digest of an entry's public fields and leaves."""
    header = _canonical_text(
        [
            entry.number,
            entry.kind,
            entry.month.isoformat(),
            entry.currency,
            entry.minor_digits,
            entry.created_at.astimezone(UTC).isoformat(timespec="microseconds"),
        ]
    )
    digests = sorted(leaf.digest for leaf in leaves)
    return _sha256_hex("entry", header, *(bytes.fromhex(each) for each in digests))


def link_digest(previous: str, content: str) -> str:
    """Return the digest of an entry and all before it."""
    return _sha256_hex("link", bytes.fromhex(previous), bytes.fromhex(content))


def entry_message(number: int, link: str) -> bytes:
    """Return the bytes that a signature of a link is made over."""
    return f"fuga usage 1\n{number}\n{link}\n".encode()


def _canonical_text(values: object) -> bytes:
    return json.dumps(values, separators=(",", ":"), ensure_ascii=True).encode()


def _sha256_hex(what: str, *parts: bytes) -> str:
    return hashlib.sha256(f"fuga usage {what} 1\n".encode() + b"".join(parts)).hexdigest()
