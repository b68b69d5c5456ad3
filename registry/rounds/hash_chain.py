"""Rounds as a chain of digests, which fixes what a round disclosed to tenants at its commit.

Each round has a Merkle tree. Its leaves are the row of each tenant and one record that tenants do
not see. Each leaf has a salt of its own, so it cannot be guessed from its digest. A round's link
is the digest of the previous link and of the round: its public fields and the root of its tree.
The site signs links with a key of its own, if it has one (`registry/rounds/head_signatures.py`).
`controller/session/proofs.py` verifies the chain, and shares no code with this module.

Content and leaves have three versions. The second adds the pool to the public fields, and to each
leaf what its tenant holds, so that a tenant can recompute its share. The third is that of rounds in
which past holdings count: it adds their decay, and to each leaf the past and the level.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection, Row, insert, select

from registry.db.engine import Repository
from registry.db.packed_json import pack_json, unpack_json
from registry.db.pages import DEFAULT_LIMIT, Page, check_limit, decode_cursor, page_of
from registry.db.schema import round_hash_chain, rounds, site_keys, tenants
from registry.errors import NotFoundError
from registry.records.proofs import (
    HeadSignature,
    ProofHeader,
    ProofHeld,
    ProofLevel,
    ProofMemory,
    ProofPool,
    ProofRow,
    RoundProof,
)
from registry.records.round_commits import RoundCommit, RoundHoldings
from registry.rounds.head_signatures import HeadSigner

#: What the first link follows.
BEGINNING: Final = "0" * 64
_SALT_BYTES: Final = 32
#: Made once: a round writes a text for each tenant.
_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)
#: The most rounds of a page: the tree of each is recomputed.
_MAX_PAGE: Final = 50
#: Of a round, what its link covers.
_HEADER_COLUMNS: Final = tuple(
    rounds.c[name]
    for name in (
        "number", "slot_start_at", "policy", "decided_by", "cut", "seed", "engine_version",
        "inputs_digest", "bound", "fair_distance", "shares", "memory",
    )
)  # fmt: skip


def add_link(
    connection: Connection,
    number: int,
    commit: RoundCommit,
    outcome: Mapping[str, Any],
    now: datetime,
    *,
    signer: HeadSigner | None = None,
) -> None:
    """Append an inserted round to the hash chain; the lease admits one transaction at a time.

    Parameters
    ----------
    outcome : mapping
        What was inserted of the round.
    signer : HeadSigner or None
        Signs the link, if it has the site's present key.
    """
    before = select(round_hash_chain.c.link).order_by(round_hash_chain.c.round.desc()).limit(1)
    present = select(site_keys.c.public_key).where(site_keys.c.last_round.is_(None)).limit(1)
    previous, key = connection.execute(
        select(before.scalar_subquery(), present.scalar_subquery())
    ).one()
    previous = previous or BEGINNING
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
    leaves = _sorted_leaves(salt, _to_proof_rows(outcome["shares"], commit.holdings), record)
    header = _to_proof_header(number, outcome, commit.holdings)
    content = _content_digest(header, _merkle_levels(leaves)[-1][0])
    link = _sha256_hex("link", bytes.fromhex(previous), bytes.fromhex(content))
    signed = None if signer is None else signer.sign_head(number, link, key)
    connection.execute(
        insert(round_hash_chain).values(
            round=number,
            previous=previous,
            content=content,
            link=link,
            record=record.hex(),
            salt=salt,
            created_at=now,
            holdings=None if commit.holdings is None else _packed_holdings(commit.holdings),
            signed_by=None if signed is None else signed.key,
            signature=None if signed is None else signed.signature,
        )
    )


class RoundProofs(Repository):
    """Reads the proofs of a tenant's own rows."""

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
    if row.signed_by is not None:
        entries["signed"] = HeadSignature(key=row.signed_by, signature=row.signature)
    if row.number is not None:
        holdings = _stored_holdings(row.holdings)
        rows = _to_proof_rows(row.shares, holdings)
        record = bytes.fromhex(row.record)
        levels = _merkle_levels(_sorted_leaves(row.salt, rows, record))
        entries |= {
            "header": _to_proof_header(row.number, dict(row._mapping), holdings),
            "root": levels[-1][0].hex(),
        }
        own = next((each for each in rows if each.tenant == tenant), None)
        if own is not None:
            salt = _salt_of(row.salt, tenant)
            path = _merkle_path(levels, _row_leaf(salt, own))
            entries |= {"row": own, "salt": salt.hex(), "path": path}
    return RoundProof(
        round=row.round, previous=row.previous, content=row.content, link=row.link, **entries
    )


def _packed_holdings(holdings: RoundHoldings) -> bytes:
    # `dataclasses.asdict` would copy each list, which takes longer than packing them.
    fields = {name: getattr(holdings, name) for name in RoundHoldings.__dataclass_fields__}
    if holdings.past is None:  # the bytes of rounds without a memory stay as before
        del fields["past"]
    return pack_json(fields)


def _stored_holdings(packed: bytes | None) -> RoundHoldings | None:
    """Return the stored holdings; without damaged ones the round's proof fails."""
    try:
        return None if packed is None else RoundHoldings(**unpack_json(packed))
    except (zlib.error, ValueError, TypeError):
        return None


def _to_proof_rows(
    shares: Sequence[Mapping[str, Any]], holdings: RoundHoldings | None
) -> list[ProofRow]:
    if holdings is None:
        return [_to_proof_row(share, None) for share in shares]
    pasts = [None] * len(shares) if holdings.past is None else holdings.past
    # The numbers of rows differ only in a database that was changed, whose proofs fail.
    return [
        _to_proof_row(share, ProofHeld(before=tuple(before), after=tuple(after)), past)
        for share, before, after, past in zip(
            shares, holdings.before, holdings.after, pasts, strict=False
        )
    ]


def _to_proof_row(
    share: Mapping[str, Any], held: ProofHeld | None, past: Sequence[int] | None = None
) -> ProofRow:
    level = share.get("level")
    target = share.get("target")
    return ProofRow(
        tenant=share["tenant"],
        weight=_normalized_float(share.get("weight", 0.0)),
        before=_normalized_float(share.get("before", 0.0)),
        after=_normalized_float(share.get("after", 0.0)),
        target=None if target is None else _normalized_float(target),
        asked=int(share.get("asked", 0)),
        given=int(share.get("given", 0)),
        held=held,
        level=None
        if level is None or past is None
        else ProofLevel(
            past=_normalized_float(level["past"]),
            now=_normalized_float(level["now"]),
            past_millionths=tuple(past),
        ),
    )


def _normalized_float(value: Any) -> float:
    """Return a float without a negative zero, which databases do not keep."""
    return float(value) + 0.0


def _row_values(row: ProofRow) -> list[Any]:
    """Return the values of a row for its digest, with floats as their bits."""
    values: list[Any] = [
        row.tenant,
        row.weight.hex(),
        row.before.hex(),
        row.after.hex(),
        None if row.target is None else row.target.hex(),
        row.asked,
        row.given,
    ]
    if row.held is not None:
        values += [row.held.before, row.held.after]
    if row.level is not None:
        values += [row.level.past_millionths, row.level.past.hex(), row.level.now.hex()]
    return values


def _to_proof_header(
    number: int, outcome: Mapping[str, Any], holdings: RoundHoldings | None
) -> ProofHeader:
    pool = None
    if holdings is not None:
        pool = ProofPool(resources=tuple(holdings.resources), amounts=tuple(holdings.pool))
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
        pool=pool,
        memory=None
        if outcome["memory"] is None
        else ProofMemory(
            half_life_s=outcome["memory"]["half_life_s"], horizon_s=outcome["memory"]["horizon_s"]
        ),
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
    if header.pool is None:
        return _sha256_hex("round", root, _canonical_text(values).encode())
    values += [header.pool.resources, header.pool.amounts]
    if header.memory is not None:
        values += [header.memory.half_life_s, header.memory.horizon_s]
    version = 2 if header.memory is None else 3
    return _sha256_hex("round", root, _canonical_text(values).encode(), version=version)


def _sorted_leaves(salt: bytes, rows: Sequence[ProofRow], record: bytes) -> list[bytes]:
    """Return the leaves sorted by digest, so that their order reveals no tenant."""
    return sorted([record, *(_row_leaf(_salt_of(salt, row.tenant), row) for row in rows)])


def _row_leaf(salt: bytes, row: ProofRow) -> bytes:
    version = 1 if row.held is None else 2 if row.level is None else 3
    return _leaf_digest(salt, _canonical_text(_row_values(row)), version=version)


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


def _leaf_digest(salt: bytes, text: str, *, version: int = 1) -> bytes:
    return hashlib.sha256(b"fuga leaf %d\n" % version + salt + text.encode()).digest()


def _node_digest(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"fuga node 1\n" + left + right).digest()


def _sha256_hex(what: str, *parts: bytes, version: int = 1) -> str:
    return hashlib.sha256(f"fuga {what} {version}\n".encode() + b"".join(parts)).hexdigest()
