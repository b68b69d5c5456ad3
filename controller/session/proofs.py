"""Verifies a tenant's rows of rounds against their hash chain, with the tenant's own data only.

`registry/rounds/hash_chain.py` makes the chain. This module shares no code with it, and calls no
server.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

#: Version of the file's format.
FORMAT: Final = 1
#: The predecessor of the first link.
BEGINNING: Final = "0" * 64
MAX_BYTES: Final = 1 << 30
#: Length of a Merkle path with 2**40 tenants.
_LONGEST_PATH: Final = 40
_LARGEST: Final = 2**63
_DIGEST: Final = re.compile(r"[0-9a-f]{64}\Z")
_KEYS: Final = ("round", "previous", "content", "link", "header", "root", "row", "salt", "path")
_OF_HEADER: Final = (
    "round", "slot_start_at", "policy", "decided_by", "cut", "seed", "engine_version",
    "inputs_digest", "bound", "fair_distance",
)  # fmt: skip
_OF_ROW: Final = ("tenant", "weight", "before", "after", "target", "asked", "given")


class ProofError(ValueError):
    """A row differs from what was committed, or has no proof."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedChain:
    """The result of verifying a chain of rounds."""

    tenant: str
    rounds: int
    first: int  #: the oldest
    last: int
    rows: int  #: rounds with a row of the tenant, as committed
    without_row: tuple[int, ...]  #: rounds without a row of the tenant
    purged: tuple[int, ...]  #: rounds whose content is purged
    anchor: str  #: the predecessor of the oldest link
    head: str  #: the newest link
    known_at: int | None  #: the round of the known link; 0: the anchor


def build_proof_document(tenant: str, proofs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the document of a tenant's rows and their proofs, to save for `verify_chain`."""
    return {"fuga_proofs": FORMAT, "tenant": tenant, "rounds": list(proofs)}


def parse_document(data: bytes) -> dict[str, Any]:
    """Parse a saved document of a tenant's rows and their proofs, strictly.

    Raises
    ------
    ProofError
        If the file is not a valid document; the message says why.
    """
    if len(data) > MAX_BYTES:
        raise ProofError(f"the file has {len(data)} bytes, at most {MAX_BYTES} are read")
    try:
        found = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_refuse_repeated_keys,
            parse_constant=_refuse_constant,
        )
    except ProofError:
        raise
    except (ValueError, RecursionError) as error:
        raise ProofError(
            f"the file is no JSON, or not whole ({error}); save it anew with --save"
        ) from error
    document = _expect_object(found, ("fuga_proofs", "tenant", "rounds"), "the file")
    if _expect_int(document["fuga_proofs"], "fuga_proofs") != FORMAT:
        raise ProofError(f"the file has format {document['fuga_proofs']}, this reads {FORMAT}")
    _expect_str(document["tenant"], "tenant")
    if not isinstance(document["rounds"], list):
        raise ProofError("rounds: a list is expected")
    return document


def verify_chain(
    document: Mapping[str, Any], tenant: str, known: str | None = None
) -> VerifiedChain:
    """Verify the rounds of a document, which are listed newest first.

    Parameters
    ----------
    document : mapping
        From `build_proof_document` or `parse_document`.
    tenant : str
        The tenant to whom the rows must belong.
    known : str or None
        A link noted earlier, which must be on the chain.

    Raises
    ------
    ProofError
        If a row differs from what was committed, the links form no chain, the rows belong to
        another tenant, or the known link is missing.
    """
    if document["tenant"] != tenant:
        raise ProofError(
            f"the rows are those of tenant {_short_text(document['tenant'])}, not of {tenant}"
        )
    if known is not None:
        _parse_digest(known, "the known link")
    proofs = document["rounds"]
    if not proofs:
        raise ProofError("there are no rounds in it")
    for at, proof in enumerate(proofs):
        _check_round(proof, f"rounds[{at}]")
        row = proof["row"]
        if row is not None and row["tenant"] != tenant:
            raise ProofError(
                f"round {proof['round']}: the row is that of tenant {_short_text(row['tenant'])},"
                f" not of {tenant}"
            )
    for newer, older in pairwise(proofs):
        _check_chain_continues(newer, older)
    presented = [proof for proof in proofs if proof["header"] is not None]
    return VerifiedChain(
        tenant=tenant,
        rounds=len(proofs),
        first=proofs[-1]["round"],
        last=proofs[0]["round"],
        rows=sum(proof["row"] is not None for proof in presented),
        without_row=tuple(proof["round"] for proof in presented if proof["row"] is None),
        purged=tuple(proof["round"] for proof in proofs if proof["header"] is None),
        anchor=proofs[-1]["previous"],
        head=proofs[0]["link"],
        known_at=None if known is None else _round_of_link(proofs, known),
    )


def _check_chain_continues(newer: Mapping[str, Any], older: Mapping[str, Any]) -> None:
    """Check that a round follows the round below it in the chain."""
    if older["round"] >= newer["round"]:
        raise ProofError(
            f"round {older['round']} stands below round {newer['round']}: they are not in order"
        )
    if newer["previous"] != older["link"]:
        raise ProofError(
            f"round {newer['round']} does not follow round {older['round']}: a round is missing"
            " between them, or the chain was changed"
        )


def _round_of_link(proofs: Sequence[Mapping[str, Any]], known: str) -> int:
    """Return the round of a known link; 0 if it is the anchor."""
    for proof in proofs:
        if proof["link"] == known:
            number: int = proof["round"]
            return number
    if proofs[-1]["previous"] == known:
        return 0
    raise ProofError(
        f"the known link is not on this chain, which begins at round {proofs[-1]['round']}:"
        " it is older (fetch more with --all), newer, or the past was changed"
    )


def _check_round(proof: Any, where: str) -> None:
    """Recompute a round's digests from its row to its link, and compare them."""
    _expect_object(proof, _KEYS, where)
    number = _expect_int(proof["round"], f"{where}.round")
    for name in ("previous", "content", "link"):
        _parse_digest(proof[name], f"{where}.{name}")
    link = _hex_digest("link", bytes.fromhex(proof["previous"]), bytes.fromhex(proof["content"]))
    if link != proof["link"]:
        raise ProofError(f"round {number}: its link is not that of what it follows and holds")
    row, header = proof["row"], proof["header"]
    if header is None:
        if not (row is proof["salt"] is proof["root"] is None and proof["path"] == []):
            raise ProofError(f"round {number}: it has a row but no header")
        return
    values = _chain_header(header, where)
    if values[0] != number:
        raise ProofError(f"round {number}: its header is that of round {values[0]}")
    root = _parse_digest(proof["root"], f"{where}.root")
    if row is not None and _merkle_root(proof, where) != root:
        raise ProofError(f"round {number}: its row is not the one that was committed")
    if row is None and not (proof["salt"] is None and proof["path"] == []):
        raise ProofError(f"round {number}: it has a path but no row")
    if _hex_digest("round", root, _canonical_json(values)) != proof["content"]:
        raise ProofError(f"round {number}: its disclosed content is not what was committed")


def _chain_header(header: Any, where: str) -> list[Any]:
    """Return the checked values of a round's header, in the order in which they are digested."""
    _expect_object(header, _OF_HEADER, f"{where}.header")
    return [
        _expect_int(header["round"], f"{where}.header.round"),
        *(
            _expect_str(header[name], f"{where}.header.{name}")
            for name in ("slot_start_at", "policy", "decided_by")
        ),
        _expect_bool(header["cut"], f"{where}.header.cut"),
        _expect_int(header["seed"], f"{where}.header.seed"),
        *(
            _expect_str(header[name], f"{where}.header.{name}")
            for name in ("engine_version", "inputs_digest")
        ),
        *(
            None if header[name] is None else _float_hex(header[name], f"{where}.header.{name}")
            for name in ("bound", "fair_distance")
        ),
    ]


def _merkle_root(proof: Mapping[str, Any], where: str) -> bytes:
    """Compute the root of a round's Merkle tree from a tenant's row and its path."""
    row = _expect_object(proof["row"], _OF_ROW, f"{where}.row")
    values = [
        _expect_str(row["tenant"], f"{where}.row.tenant"),
        *(_float_hex(row[name], f"{where}.row.{name}") for name in ("weight", "before", "after")),
        None if row["target"] is None else _float_hex(row["target"], f"{where}.row.target"),
        *(_expect_int(row[name], f"{where}.row.{name}") for name in ("asked", "given")),
    ]
    salt = _parse_digest(proof["salt"], f"{where}.salt")
    found = hashlib.sha256(b"fuga leaf 1\n" + salt + _canonical_json(values)).digest()
    path = proof["path"]
    if not isinstance(path, list) or len(path) > _LONGEST_PATH:
        raise ProofError(f"{where}.path: a list of at most {_LONGEST_PATH} steps is expected")
    for step in path:
        if not (isinstance(step, list) and len(step) == 2 and step[0] in ("left", "right")):
            raise ProofError(f'{where}.path: steps are ["left" or "right", digest]')
        sibling = _parse_digest(step[1], f"{where}.path")
        pair = sibling + found if step[0] == "left" else found + sibling
        found = hashlib.sha256(b"fuga node 1\n" + pair).digest()
    return found


def _expect_object(value: Any, keys: Sequence[str], where: str) -> dict[str, Any]:
    if not isinstance(value, dict) or set(value) != set(keys):
        found = sorted(value) if isinstance(value, dict) else type(value).__name__
        raise ProofError(f"{where}: expected are {', '.join(keys)}; found: {str(found)[:200]}")
    return value


def _expect_str(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ProofError(f"{where}: a text is expected, found {_short_text(value)}")
    return value


def _expect_bool(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise ProofError(f"{where}: true or false is expected, found {_short_text(value)}")
    return value


def _expect_int(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LARGEST:
        raise ProofError(f"{where}: a whole number is expected, found {_short_text(value)}")
    return value


def _float_hex(value: Any, where: str) -> str:
    """Return a number in hexadecimal, the form in which it is digested.

    Other programs may write 1.0 as 1 in JSON.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ProofError(f"{where}: a number is expected, found {_short_text(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ProofError(f"{where}: a finite number is expected, found {_short_text(value)}")
    return number.hex()


def _parse_digest(value: Any, where: str) -> bytes:
    if not (isinstance(value, str) and _DIGEST.match(value)):
        raise ProofError(f"{where}: 64 hexadecimal digits are expected, found {_short_text(value)}")
    return bytes.fromhex(value)


def _short_text(value: Any) -> str:
    try:
        return repr(value)[:60]
    except ValueError:  # an int of too many digits
        return "a number too long to print"


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ProofError("an object of the file has a key twice")
    return found


def _refuse_constant(name: str) -> None:
    raise ProofError(f"the file has {name} where a number is expected")


def _canonical_json(values: Any) -> bytes:
    return json.dumps(values, separators=(",", ":"), allow_nan=False).encode()


def _hex_digest(what: str, *parts: bytes) -> str:
    return hashlib.sha256(f"fuga {what} 1\n".encode() + b"".join(parts)).hexdigest()
