"""Verifies a tenant's rows of rounds against their hash chain, with the tenant's own data only.

`registry/rounds/hash_chain.py` makes the chain. This module shares no code with it, and calls no
server. `signed_heads` verifies the site's signatures.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from controller.session.json_shapes import (
    ProofError,
    expect_bool,
    expect_int,
    expect_list,
    expect_object,
    expect_str,
    float_hex,
    parse_digest,
    short_text,
)

#: Versions of the file's format. The second adds keys, signatures and what shares follow from; the
#: third levels and what they follow from, in rounds in which past holdings count.
FORMATS: Final = (1, 2, 3)
#: The predecessor of the first link.
BEGINNING: Final = "0" * 64
MAX_BYTES: Final = 1 << 30
#: Length of a Merkle path with 2**40 tenants.
_LONGEST_PATH: Final = 40
_KEYS: Final = ("round", "previous", "content", "link", "header", "root", "row", "salt", "path")
_OF_HEADER: Final = (
    "round", "slot_start_at", "policy", "decided_by", "cut", "seed", "engine_version",
    "inputs_digest", "bound", "fair_distance",
)  # fmt: skip
_OF_ROW: Final = ("tenant", "weight", "before", "after", "target", "asked", "given")
#: What the second format adds to a round, its header and its row.
_SIGNED, _POOL, _HELD = "signed", "pool", "held"
#: What the third format adds to its header and its row.
_MEMORY, _LEVEL = "memory", "level"
#: A level may differ from the recomputed one by so much of it: powers are rounded.
_OF_LEVEL: Final = 1e-9
#: Parts of a unit in which past holdings are stated.
_PARTS: Final = 10**6


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
    recomputed: int  #: rows whose shares follow from what the tenant held and from the pool


def build_proof_document(
    tenant: str,
    proofs: Sequence[Mapping[str, Any]],
    keys: Sequence[Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return the document of a tenant's rows and their proofs, to save for `verify_chain`.

    Without ``keys``, from a site of an older release, it has the first format.
    """
    if keys is None:
        return {"fuga_proofs": 1, "tenant": tenant, "rounds": list(proofs)}
    return {"fuga_proofs": 3, "tenant": tenant, "keys": list(keys), "rounds": list(proofs)}


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
            f"the file is no JSON, or not whole ({error}); save it again with --save"
        ) from error
    if not isinstance(found, dict) or "fuga_proofs" not in found:
        raise ProofError("the file is none of `fuga verify --save`: it has no fuga_proofs")
    file_format = expect_int(found["fuga_proofs"], "fuga_proofs")
    if file_format not in FORMATS:
        raise ProofError(f"the file has format {file_format}, this reads 1 to 3")
    keys = ("fuga_proofs", "tenant", "rounds", *["keys"] * (file_format > 1))
    document = expect_object(found, keys, "the file")
    expect_str(document["tenant"], "tenant")
    expect_list(document["rounds"], "rounds")
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
            f"the rows are those of tenant {short_text(document['tenant'])}, not of {tenant}"
        )
    if known is not None:
        parse_digest(known, "the known link")
    proofs = document["rounds"]
    if not proofs:
        raise ProofError("there are no rounds in it")
    file_format = document["fuga_proofs"]
    for at, proof in enumerate(proofs):
        _check_round(proof, f"rounds[{at}]", file_format)
        row = proof["row"]
        if row is not None and row["tenant"] != tenant:
            raise ProofError(
                f"round {proof['round']}: the row is that of tenant {short_text(row['tenant'])},"
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
        recomputed=sum(
            proof["row"] is not None and proof["row"].get(_HELD) is not None for proof in presented
        ),
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


def _check_round(proof: Any, where: str, file_format: int) -> None:
    """Recompute a round's digests from its row to its link, and compare them."""
    second, third = file_format > 1, file_format > 2
    expect_object(proof, (*_KEYS, *[_SIGNED] * second), where)
    number = expect_int(proof["round"], f"{where}.round")
    for name in ("previous", "content", "link"):
        parse_digest(proof[name], f"{where}.{name}")
    link = _hex_digest("link", bytes.fromhex(proof["previous"]), bytes.fromhex(proof["content"]))
    if link != proof["link"]:
        raise ProofError(f"round {number}: its link is not that of what it follows and holds")
    row, header = proof["row"], proof["header"]
    if header is None:
        if not (row is proof["salt"] is proof["root"] is None and proof["path"] == []):
            raise ProofError(f"round {number}: it has a row but no header")
        return
    expect_object(header, (*_OF_HEADER, *[_POOL] * second, *[_MEMORY] * third), f"{where}.header")
    values = _header_values(header, where)
    if values[0] != number:
        raise ProofError(f"round {number}: its header is that of round {values[0]}")
    pool = _parse_pool(header.get(_POOL), where)
    memory = _parse_memory(header.get(_MEMORY), pool, where)
    root = parse_digest(proof["root"], f"{where}.root")
    if row is not None:
        expect_object(row, (*_OF_ROW, *[_HELD] * second, *[_LEVEL] * third), f"{where}.row")
        held = _parse_held(row.get(_HELD), pool, where)
        level = _parse_level(row.get(_LEVEL), pool, memory, where)
        if _merkle_root(proof, held, level, where) != root:
            raise ProofError(f"round {number}: its row is not the one that was committed")
        if pool is not None and held is not None:
            _check_shares(row, held, pool, number)
        if pool is not None and held is not None and memory is not None and level is not None:
            _check_level(row[_LEVEL], level[0], held[1], pool[1], memory, number=number)
    elif not (proof["salt"] is None and proof["path"] == []):
        raise ProofError(f"round {number}: it has a path but no row")
    if pool is not None:
        values += pool
    version = 1 if pool is None else 2 if memory is None else 3
    content = _hex_digest(
        "round", root, _canonical_json([*values, *(memory or ())]), version=version
    )
    if content != proof["content"]:
        raise ProofError(f"round {number}: its disclosed content is not what was committed")


def _check_shares(
    row: Mapping[str, Any], held: Sequence[Sequence[int]], pool: Sequence[Any], number: int
) -> None:
    """Recompute both dominant shares: the largest fraction of a resource of the pool."""
    for name, amounts in zip(("before", "after"), held, strict=True):
        of_pool = zip(amounts, pool[1], strict=True)
        share = max((float(each) / float(whole) for each, whole in of_pool if whole), default=0.0)
        if share != row[name]:
            raise ProofError(
                f"round {number}: the share {name} it is {row[name]}, but what the row holds of"
                f" the pool is {share}"
            )


def _check_level(
    stated: Mapping[str, float],
    past: Sequence[int],
    held: Sequence[int],
    pool: Sequence[int],
    memory: Sequence[int],
    *,
    number: int,
) -> None:
    """Recompute both parts of a level: the largest sum of d * past and (1 - d) * now."""
    half_life_s, horizon_s = memory
    part = 2.0 ** -(horizon_s / half_life_s)
    sums = [
        (part * then / _PARTS / whole, (1 - part) * now / whole)
        for then, now, whole in zip(past, held, pool, strict=True)
        if whole
    ]
    level, found = max(map(sum, sums), default=0.0), stated["past"] + stated["now"]
    is_a_resource = not sums or any(
        all(
            abs(each - stated[name]) <= _OF_LEVEL * max(level, _OF_LEVEL)
            for name, each in zip(("past", "now"), parts, strict=True)
        )
        for parts in sums
    )
    if not is_a_resource or abs(level - found) > _OF_LEVEL * max(level, _OF_LEVEL):
        raise ProofError(
            f"round {number}: the level is {found}, but by what the row held and holds it is"
            f" {level}"
        )


def _parse_memory(memory: Any, pool: Sequence[Any] | None, where: str) -> list[int] | None:
    """Return half-life and horizon of past holdings; None if they do not count."""
    if memory is None:
        return None
    where = f"{where}.header.{_MEMORY}"
    names = ("half_life_s", "horizon_s")
    expect_object(memory, names, where)
    found = [expect_int(memory[name], f"{where}.{name}") for name in names]
    if pool is None or min(found) < 1:
        raise ProofError(f"{where}: times above 0 are expected, and a pool")
    return found


def _parse_level(
    level: Any, pool: Sequence[Any] | None, memory: Sequence[int] | None, where: str
) -> list[Any] | None:
    """Return the checked values of a level as they are digested; None if there is none."""
    if (level is None) != (memory is None):
        raise ProofError(f"{where}: the level of the row and the memory belong together")
    if level is None or pool is None:
        return None
    where = f"{where}.row.{_LEVEL}"
    expect_object(level, ("past", "now", "past_millionths"), where)
    past = _parse_amounts(level["past_millionths"], len(pool[0]), f"{where}.past_millionths")
    return [past, *(float_hex(level[name], f"{where}.{name}") for name in ("past", "now"))]


def _parse_pool(pool: Any, where: str) -> list[Any] | None:
    """Return the names of resources and their capacity; None in the first version."""
    if pool is None:
        return None
    where = f"{where}.header.{_POOL}"
    expect_object(pool, ("resources", "amounts"), where)
    names = expect_list(pool["resources"], f"{where}.resources")
    amounts = _parse_amounts(pool["amounts"], len(names), f"{where}.amounts")
    return [[expect_str(each, f"{where}.resources") for each in names], amounts]


def _parse_held(
    held: Any, pool: Sequence[Any] | None, where: str
) -> tuple[list[int], list[int]] | None:
    if (held is None) != (pool is None):
        raise ProofError(f"{where}: the pool and what the row holds belong together")
    if held is None or pool is None:
        return None
    where = f"{where}.row.{_HELD}"
    expect_object(held, ("before", "after"), where)
    length = len(pool[0])
    return (
        _parse_amounts(held["before"], length, f"{where}.before"),
        _parse_amounts(held["after"], length, f"{where}.after"),
    )


def _parse_amounts(value: Any, length: int, where: str) -> list[int]:
    amounts = [expect_int(each, where) for each in expect_list(value, where)]
    if len(amounts) != length or any(each < 0 for each in amounts):
        raise ProofError(f"{where}: an amount of each resource is expected")
    return amounts


def _header_values(header: Mapping[str, Any], where: str) -> list[Any]:
    """Return the checked values of a round's header, in the order in which they are digested."""
    return [
        expect_int(header["round"], f"{where}.header.round"),
        *(
            expect_str(header[name], f"{where}.header.{name}")
            for name in ("slot_start_at", "policy", "decided_by")
        ),
        expect_bool(header["cut"], f"{where}.header.cut"),
        expect_int(header["seed"], f"{where}.header.seed"),
        *(
            expect_str(header[name], f"{where}.header.{name}")
            for name in ("engine_version", "inputs_digest")
        ),
        *(
            None if header[name] is None else float_hex(header[name], f"{where}.header.{name}")
            for name in ("bound", "fair_distance")
        ),
    ]


def _merkle_root(
    proof: Mapping[str, Any],
    held: tuple[list[int], list[int]] | None,
    level: Sequence[Any] | None,
    where: str,
) -> bytes:
    """Compute the root of a round's Merkle tree from a tenant's row and its path."""
    row = proof["row"]
    values = [
        expect_str(row["tenant"], f"{where}.row.tenant"),
        *(float_hex(row[name], f"{where}.row.{name}") for name in ("weight", "before", "after")),
        None if row["target"] is None else float_hex(row["target"], f"{where}.row.target"),
        *(expect_int(row[name], f"{where}.row.{name}") for name in ("asked", "given")),
        *(held or ()),
        *(level or ()),
    ]
    salt = parse_digest(proof["salt"], f"{where}.salt")
    version = b"1" if held is None else b"2" if level is None else b"3"
    text = b"fuga leaf " + version + b"\n" + salt + _canonical_json(values)
    found = hashlib.sha256(text).digest()
    path = proof["path"]
    if not isinstance(path, list) or len(path) > _LONGEST_PATH:
        raise ProofError(f"{where}.path: a list of at most {_LONGEST_PATH} steps is expected")
    for step in path:
        if not (isinstance(step, list) and len(step) == 2 and step[0] in ("left", "right")):
            raise ProofError(f'{where}.path: steps are ["left" or "right", digest]')
        sibling = parse_digest(step[1], f"{where}.path")
        pair = sibling + found if step[0] == "left" else found + sibling
        found = hashlib.sha256(b"fuga node 1\n" + pair).digest()
    return found


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ProofError("an object of the file has a key twice")
    return found


def _refuse_constant(name: str) -> None:
    raise ProofError(f"the file has {name} where a number is expected")


def _canonical_json(values: Any) -> bytes:
    return json.dumps(values, separators=(",", ":"), allow_nan=False).encode()


def _hex_digest(what: str, *parts: bytes, version: int = 1) -> str:
    return hashlib.sha256(f"fuga {what} {version}\n".encode() + b"".join(parts)).hexdigest()
