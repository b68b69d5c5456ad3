"""Verifies the site's signatures of links, and the succession of its keys.

A key signs the link of a round, and thereby all rounds up to it. The key before a new one names it
in its *endorsement*, so a reader who trusts one key follows it to later ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from controller.session.json_shapes import (
    ProofError,
    expect_int,
    expect_list,
    expect_object,
    parse_hex,
)

_OF_KEY: Final = ("public_key", "first_round", "last_round", "endorsement", "created_at")
_MAX_KEY_BYTES: Final = 4096
_KEY_DIGITS, _SIGNATURE_DIGITS = 64, 128


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedHeads:
    """Which rounds are signed, and by whom."""

    signed_to: int | None  #: the newest signed round; it covers all before it. None: none is
    signed_by: str | None  #: the key of that signature
    unsigned: int  #: rounds after it
    trusted: bool  #: whether the reader named the key, or one that led to it


@dataclass(frozen=True, slots=True, kw_only=True)
class _Key:
    public_key: str
    first_round: int
    last_round: int | None
    endorsement: str | None


def read_public_key(given: str) -> str:
    """Return the public key that is given in hexadecimal, or by a file of it or in PEM.

    Raises
    ------
    ProofError
        If it is no Ed25519 key.
    OSError
        If the file cannot be read.
    """
    text = given.strip()
    if not _is_key(text):
        with Path(given).open("rb") as file:
            content = file.read(_MAX_KEY_BYTES)
        if content.lstrip().startswith(b"-----BEGIN"):
            return _key_of_pem(content)
        text = content.decode("ascii", "replace").strip()
    if not _is_key(text):
        raise ProofError(
            f"{given} is no Ed25519 public key: expected are {_KEY_DIGITS} hexadecimal digits, or"
            " PEM"
        )
    return text.lower()


def verify_heads(document: Mapping[str, Any], pinned: str | None = None) -> SignedHeads:
    """Verify all signatures of a document whose chain `verify_chain` has verified.

    Parameters
    ----------
    pinned : str or None
        A public key that the reader trusts. The newest round must be signed by it, or by a key
        that it leads to. None: the document's own keys are taken, which proves no identity.

    Raises
    ------
    ProofError
        If a signature is not that of its link, or of a key that must not sign that round; with
        ``pinned`` also if the newest round is not signed, or by another key.
    """
    keys = _parse_keys(document)
    accepted = keys if pinned is None else _keys_from(keys, pinned)
    newest: tuple[int, str] | None = None
    unsigned = 0
    for at, proof in enumerate(document["rounds"]):
        signed = proof.get("signed")
        if signed is None:
            unsigned += newest is None
            continue
        key = _check_signature(signed, proof, keys, accepted, f"rounds[{at}].signed")
        if newest is None:
            newest = proof["round"], key
    if pinned is not None:
        _check_newest(document, newest, accepted, pinned)
    return SignedHeads(
        signed_to=None if newest is None else newest[0],
        signed_by=None if newest is None else newest[1],
        unsigned=unsigned,
        trusted=pinned is not None,
    )


def _check_newest(
    document: Mapping[str, Any],
    newest: tuple[int, str] | None,
    accepted: Mapping[str, _Key],
    pinned: str,
) -> None:
    last = document["rounds"][0]["round"]
    if newest is None:
        raise ProofError(f"no round is signed: nothing shows that key {pinned} wrote them")
    number, key = newest
    if key not in accepted:
        raise ProofError(
            f"round {number} is signed by key {key}, to which no endorsement leads from {pinned}"
        )
    if number != last:
        raise ProofError(
            f"the rounds after {number}, up to {last}, are not signed: nothing shows who wrote them"
        )


def _check_signature(
    signed: Any,
    proof: Mapping[str, Any],
    keys: Mapping[str, _Key],
    accepted: Mapping[str, _Key],
    where: str,
) -> str:
    expect_object(signed, ("key", "signature"), where)
    number, name = proof["round"], signed["key"]
    parse_hex(name, _KEY_DIGITS, f"{where}.key")
    signature = parse_hex(signed["signature"], _SIGNATURE_DIGITS, f"{where}.signature")
    key = accepted.get(name) or keys.get(name)
    if key is None:
        raise ProofError(f"round {number} is signed by key {name}, which is none of the site's")
    if number < key.first_round or (key.last_round is not None and number > key.last_round):
        last = "later" if key.last_round is None else key.last_round
        raise ProofError(
            f"round {number} is signed by key {name}, which signs rounds {key.first_round} to"
            f" {last} alone"
        )
    message = f"fuga head 1\n{number}\n{proof['link']}\n".encode()
    if not is_signed_by(name, signature, message):
        raise ProofError(f"round {number}: its signature is not that of key {name} and this link")
    return key.public_key


def _keys_from(keys: Mapping[str, _Key], pinned: str) -> dict[str, _Key]:
    """Return the trusted key, and those to which endorsements lead from it."""
    # Without a list of keys the trusted one may sign any round.
    present = keys.get(pinned) or _Key(
        public_key=pinned, first_round=0, last_round=None, endorsement=None
    )
    accepted = {pinned: present}
    names = list(keys)
    following = names[names.index(pinned) + 1 :] if pinned in keys else []
    for name in following:
        successor = keys[name]
        message = f"fuga key 1\n{present.public_key}\n{name}\n{successor.first_round}\n".encode()
        if successor.endorsement is None or not is_signed_by(
            present.public_key, bytes.fromhex(successor.endorsement), message
        ):
            break
        accepted[name] = present = successor
    return accepted


def _parse_keys(document: Mapping[str, Any]) -> dict[str, _Key]:
    """Return the keys by their names, the oldest first; each begins after the one before ended."""
    keys: dict[str, _Key] = {}
    last: int | None = -1
    for at, each in enumerate(expect_list(document.get("keys", []), "keys")):
        where = f"keys[{at}]"
        expect_object(each, _OF_KEY, where)
        parse_hex(each["public_key"], _KEY_DIGITS, f"{where}.public_key")
        if each["endorsement"] is not None:
            parse_hex(each["endorsement"], _SIGNATURE_DIGITS, f"{where}.endorsement")
        first = expect_int(each["first_round"], f"{where}.first_round")
        if last is None or first <= last or each["public_key"] in keys:
            raise ProofError(f"{where}: its rounds are not those after the key before it")
        ended = each["last_round"]
        last = None if ended is None else expect_int(ended, f"{where}.last_round")
        keys[each["public_key"]] = _Key(
            public_key=each["public_key"],
            first_round=first,
            last_round=last,
            endorsement=each["endorsement"],
        )
    return keys


def is_signed_by(public_key: str, signature: bytes, message: bytes) -> bool:
    """Return whether a signature is that of an Ed25519 key and a message."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - slow
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key)).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def _key_of_pem(content: bytes) -> str:
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - slow
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_pem_public_key  # noqa: PLC0415

    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ProofError("the file of the key is no public key in PEM") from error
    if not isinstance(key, Ed25519PublicKey):
        raise ProofError("the file of the key has no Ed25519 key")
    return key.public_bytes_raw().hex()


def _is_key(text: str) -> bool:
    try:
        return len(bytes.fromhex(text)) * 2 == len(text) == _KEY_DIGITS
    except ValueError:
        return False
