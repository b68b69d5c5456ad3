"""Rounds as a chain of digests, which fixes what a round disclosed to tenants at its commit.

Each round has a Merkle tree. Its leaves are the row of each tenant and one record that tenants do
not see. Each leaf has a salt of its own, so it cannot be guessed from its digest. A round's link
is the digest of the previous link and of the round: its public fields and the root of its tree.
`controller/session/proofs.py` verifies the chain, and shares no code with this module.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection, Row, insert, select

from registry.db.engine import Database
from registry.db.pages import DEFAULT_LIMIT, Page, check_limit, decode_cursor, page_of
from registry.db.schema import round_hash_chain, rounds, tenants
from registry.errors import NotFoundError
from registry.records.rounds import ProofHeader, ProofRow, RoundCommit, RoundProof

#: What the first link follows.
BEGINNING: Final = "0" * 64
_SALT_BYTES: Final = 32
#: Made once: a round writes a text for each tenant.
_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)
#: The most rounds of a page: the tree of each is computed anew.
_MAX_PAGE: Final = 50
#: Of a round, what its link covers.
_HEADER_COLUMNS: Final = tuple(
    rounds.c[name]
    for name in (
        "number", "slot_start_at", "policy", "decided_by", "cut", "seed", "engine_version",
        "inputs_digest", "bound", "fair_distance", "shares",
    )
)  # fmt: skip


def add_link(
    connection: Connection,
    number: int,
    commit: RoundCommit,
    outcome: Mapping[str, Any],
    now: datetime,
) -> None:
    """Append an inserted round to the hash chain; the lease admits one transaction at a time.

    Parameters
    ----------
    outcome : mapping
        What was inserted of the round.
    """
    before = select(round_hash_chain.c.link).order_by(round_hash_chain.c.round.desc()).limit(1)
    previous = connection.scalar(before) or BEGINNING
    salt = secrets.token_bytes(_SALT_BYTES)
    totals = {
        "asked": sum(int(share.get("asked", 0)) for share in outcome["shares"]),
        "placed": outcome["placed"],
        "left_out": outcome["left_out"],
        "dropped": outcome["dropped"],
        "group_shares": outcome["group_shares"],
        "outcome": hashlib.sha256(commit.outcome).hexdigest(),
    }
    record = _leaf_digest(_salt_of(salt, ""), _canonical_text(totals))
    leaves = _sorted_leaves(salt, [_to_proof_row(share) for share in outcome["shares"]], record)
    content = _content_digest(_to_proof_header(number, outcome), _merkle_levels(leaves)[-1][0])
    connection.execute(
        insert(round_hash_chain).values(
            round=number,
            previous=previous,
            content=content,
            link=_sha256_hex("link", bytes.fromhex(previous), bytes.fromhex(content)),
            record=record.hex(),
            salt=salt,
            created_at=now,
        )
    )


class RoundProofs:
    """Reads the proofs of a tenant's own rows."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def list(
        self, tenant: str, *, limit: int = DEFAULT_LIMIT, cursor: str | None = None
    ) -> Page[RoundProof]:
        """Return a page of rounds, newest first, with the row of one tenant in each.

        A page has 50 rounds at most.

        Raises
        ------
        NotFoundError
            If there never was such a tenant.
        """
        limit = min(check_limit(limit), _MAX_PAGE)
        query = (
            select(round_hash_chain, *_HEADER_COLUMNS)
            .outerjoin(rounds, rounds.c.number == round_hash_chain.c.round)
            .order_by(round_hash_chain.c.round.desc())
            .limit(limit + 1)
        )
        if cursor is not None:
            (before,) = decode_cursor(cursor, int)
            query = query.where(round_hash_chain.c.round < before)
        with self._database.read() as connection:
            there = select(tenants.c.id).where(tenants.c.name == tenant).limit(1)
            if connection.execute(there).first() is None:
                raise NotFoundError("tenant", tenant)
            found = [_round_proof(row, tenant) for row in connection.execute(query)]
        return page_of(found, limit, lambda proof: (proof.round,))


def _round_proof(row: Row[Any], tenant: str) -> RoundProof:
    """Return the proof of a tenant's row in one round, and the round's place in the chain.

    Nothing is verified here, as the caller verifies the proof.
    """
    entries: dict[str, Any] = {}
    if row.number is not None:
        rows = [_to_proof_row(share) for share in row.shares]
        record = bytes.fromhex(row.record)
        levels = _merkle_levels(_sorted_leaves(row.salt, rows, record))
        entries = {
            "header": _to_proof_header(row.number, dict(row._mapping)),
            "root": levels[-1][0].hex(),
        }
        own = next((each for each in rows if each.tenant == tenant), None)
        if own is not None:
            salt = _salt_of(row.salt, tenant)
            path = _merkle_path(levels, _leaf_digest(salt, _canonical_text(_row_values(own))))
            entries |= {"row": own, "salt": salt.hex(), "path": path}
    return RoundProof(
        round=row.round, previous=row.previous, content=row.content, link=row.link, **entries
    )


def _to_proof_row(share: Mapping[str, Any]) -> ProofRow:
    target = share.get("target")
    return ProofRow(
        tenant=share["tenant"],
        weight=_normalized_float(share.get("weight", 0.0)),
        before=_normalized_float(share.get("before", 0.0)),
        after=_normalized_float(share.get("after", 0.0)),
        target=None if target is None else _normalized_float(target),
        asked=int(share.get("asked", 0)),
        given=int(share.get("given", 0)),
    )


def _normalized_float(value: Any) -> float:
    """Return a float without a negative zero, which databases do not keep."""
    return float(value) + 0.0


def _row_values(row: ProofRow) -> list[Any]:
    """Return the values of a row for its digest, with floats as their bits."""
    return [
        row.tenant,
        row.weight.hex(),
        row.before.hex(),
        row.after.hex(),
        None if row.target is None else row.target.hex(),
        row.asked,
        row.given,
    ]


def _to_proof_header(number: int, outcome: Mapping[str, Any]) -> ProofHeader:
    return ProofHeader(
        round=number,
        slot_start_at=outcome["slot_start_at"].astimezone(UTC).isoformat(timespec="microseconds"),
        policy=outcome["policy"],
        decided_by=outcome["decided_by"],
        cut=bool(outcome["cut"]),
        seed=outcome["seed"],
        engine_version=outcome["engine_version"],
        inputs_digest=outcome["inputs_digest"],
        bound=outcome["bound"],
        fair_distance=outcome["fair_distance"],
    )


def _content_digest(header: ProofHeader, root: bytes) -> str:
    values = [
        header.round,
        header.slot_start_at,
        header.policy,
        header.decided_by,
        header.cut,
        header.seed,
        header.engine_version,
        header.inputs_digest,
        None if header.bound is None else float(header.bound).hex(),
        None if header.fair_distance is None else float(header.fair_distance).hex(),
    ]
    return _sha256_hex("round", root, _canonical_text(values).encode())


def _sorted_leaves(salt: bytes, rows: Sequence[ProofRow], record: bytes) -> list[bytes]:
    """Return the leaves sorted by digest, so that their order reveals no tenant."""
    own = [
        _leaf_digest(_salt_of(salt, row.tenant), _canonical_text(_row_values(row))) for row in rows
    ]
    return sorted([record, *own])


def _merkle_levels(leaves: list[bytes]) -> list[list[bytes]]:
    """Return the levels of the Merkle tree; a node without a sibling moves up unchanged."""
    levels = [leaves]
    while len(levels[-1]) > 1:
        below = levels[-1]
        pairs = zip(below[::2], below[1::2], strict=False)
        above = [_node_digest(left, right) for left, right in pairs]
        levels.append(above + below[len(above) * 2 :])
    return levels


def _merkle_path(levels: list[list[bytes]], leaf: bytes) -> tuple[tuple[str, str], ...]:
    at, path = levels[0].index(leaf), []
    for level in levels[:-1]:
        sibling = at ^ 1
        if sibling < len(level):
            path.append(("left" if sibling < at else "right", level[sibling].hex()))
        at //= 2
    return tuple(path)


def _salt_of(salt: bytes, tenant: str) -> bytes:
    """Return the salt of one leaf, which reveals no other salt; "" is no tenant's name."""
    return hmac.digest(salt, tenant.encode(), "sha256")


def _canonical_text(values: Any) -> str:
    return _CANONICAL.encode(values)


def _leaf_digest(salt: bytes, text: str) -> bytes:
    return hashlib.sha256(b"fuga leaf 1\n" + salt + text.encode()).digest()


def _node_digest(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"fuga node 1\n" + left + right).digest()


def _sha256_hex(what: str, *parts: bytes) -> str:
    return hashlib.sha256(f"fuga {what} 1\n".encode() + b"".join(parts)).hexdigest()
