"""OpenSSH public keys: their checks and fingerprints."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from typing import Final

from registry.errors import InvalidError

MAX_KEYS: Final = 64  #: of a tenant, and of a request
MAX_KEY_LENGTH: Final = 4096
MIN_RSA_BITS: Final = 1024  #: what OpenSSH takes (RequiredRSASize)
KINDS: Final = (
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)
_ALLOWED: Final = f"one line of an OpenSSH public key, of kind {', '.join(KINDS)}"


def check_public_key(field: str, key: str) -> str:
    """Return an SSH public key with single spaces, or raise `InvalidError` without it."""
    if "PRIVATE KEY" in key:
        raise InvalidError(field, "a private key", "the public key: the file that ends in .pub")
    if len(key) > MAX_KEY_LENGTH:
        raise InvalidError(field, f"{len(key)} characters", f"at most {MAX_KEY_LENGTH}")
    if not key.strip().isprintable():
        raise InvalidError(field, "several lines, or control characters", _ALLOWED)
    kind, _, rest = key.strip().partition(" ")
    if kind not in KINDS:
        raise InvalidError(field, "another kind of text", _ALLOWED)
    blob = _decode_base64(field, rest.split(maxsplit=1)[0] if rest.strip() else "")
    named = len(kind).to_bytes(4, "big") + kind.encode()
    if not blob.startswith(named):
        raise InvalidError(field, f"{kind}, and data of something else", _ALLOWED)
    _check_usable_key(field, f"{kind} {rest.split(maxsplit=1)[0]}")
    return " ".join(key.split())


def _check_usable_key(field: str, key: str) -> None:
    """Raise `InvalidError` unless OpenSSH can use the public key."""
    # Slow to import, and few commands need it.
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key  # noqa: PLC0415

    try:
        found = load_ssh_public_key(key.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InvalidError(field, "a key that is cut short or damaged", _ALLOWED) from error
    if isinstance(found, RSAPublicKey) and found.key_size < MIN_RSA_BITS:
        raise InvalidError(field, f"{found.key_size} bits of RSA", f"{MIN_RSA_BITS} or more")


def check_public_keys(field: str, keys: Sequence[str]) -> list[str]:
    """Return checked SSH public keys without duplicates, in order."""
    if len(keys) > MAX_KEYS:
        raise InvalidError(field, len(keys), f"at most {MAX_KEYS} keys")
    checked = (check_public_key(f"{field}.{place}", key) for place, key in enumerate(keys))
    return list({_base64_part(key): key for key in checked}.values())


def fingerprint(key: str) -> str:
    """Return the fingerprint of a checked SSH public key, as `ssh-keygen -l` prints it."""
    digest = hashlib.sha256(base64.b64decode(_base64_part(key))).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def _base64_part(key: str) -> str:
    """Return the base64 part of an OpenSSH public key."""
    return key.split()[1]


def _decode_base64(field: str, data: str) -> bytes:
    """Decode the base64 part of a public key, or raise `InvalidError`."""
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidError(field, "no base64 after the kind", _ALLOWED) from error
