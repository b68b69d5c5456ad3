"""Image signatures of minisign and `cosign sign-blob`, checked with operators' keys.

Both sign a digest, which is computed during the upload, so the stored bytes are
checked. ``cryptography`` verifies; the two small formats are parsed here.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from registry.errors import ImageRefusedError, SettingsError

#: Limit of a signature or key file; real ones have a few hundred bytes.
MAX_SIGNATURE_BYTES: Final = 4096
#: Suffixes of signature files next to a fetched image, in the order of attempts.
SIGNATURE_SUFFIXES: Final = (".minisig", ".sig")
_PEM: Final = b"-----BEGIN"
_KEY_ID_BYTES: Final = 8
_UNTRUSTED: Final = b"untrusted comment: "
_TRUSTED: Final = b"trusted comment: "


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageKey:
    """A public key that operators trust to sign images."""

    name: str  #: name of the key's file
    kind: Literal["minisign", "cosign"]
    id: str  #: the id that `minisign -V` and `openssl` print
    public: bytes  #: Ed25519: the point; ECDSA: SubjectPublicKeyInfo in DER

    def __str__(self) -> str:
        return f"{self.kind} key {self.id} ({self.name})"


def read_image_keys(paths: Iterable[Path]) -> tuple[ImageKey, ...]:
    """Read the public keys of the setting FUGA_IMAGE_KEYS.

    Raises
    ------
    SettingsError
        If a key cannot be read, or is no key of minisign or cosign.
    """
    return tuple(_read_key(path) for path in sorted(paths))


def _read_key(path: Path) -> ImageKey:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SIGNATURE_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"FUGA_IMAGE_KEYS: {path}: {error.strerror}") from error
    try:
        return parse_key(path.name, content)
    except ValueError as error:
        raise SettingsError(
            f"FUGA_IMAGE_KEYS: {path}: {error}; it takes public keys of minisign, and of cosign"
            " (ECDSA P-256, PEM)"
        ) from error


def parse_key(name: str, content: bytes) -> ImageKey:
    """Parse a public key file, or raise `ValueError` if it is of neither format."""
    if len(content) > MAX_SIGNATURE_BYTES:
        raise ValueError("it is too long for a public key")
    return (_cosign_key if content.lstrip().startswith(_PEM) else _minisign_key)(name, content)


def _minisign_key(name: str, content: bytes) -> ImageKey:
    lines = [line for line in content.splitlines() if line.strip()]
    if lines and lines[0].startswith(_UNTRUSTED):
        del lines[0]
    if len(lines) != 1:
        raise ValueError("it is no public key of minisign")
    raw = _decode_base64(lines[0].strip())
    if len(raw) != 2 + _KEY_ID_BYTES + 32 or raw[:2] != b"Ed":
        raise ValueError("it is no public key of minisign")
    return ImageKey(
        name=name, kind="minisign", id=_key_id(raw[2:10]), public=raw[2 + _KEY_ID_BYTES :]
    )


def _cosign_key(name: str, content: bytes) -> ImageKey:
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - who has no
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415   keys pays nothing
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    try:
        key = serialization.load_pem_public_key(content)
    except UnsupportedAlgorithm as error:
        raise ValueError("its algorithm is not known") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("it is no ECDSA key on the curve P-256")  # noqa: TRY004 - of a file
    der = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    digest = base64.b64encode(hashlib.sha256(der).digest()).decode().rstrip("=")
    return ImageKey(name=name, kind="cosign", id=f"SHA256:{digest}", public=der)


def check_signature(
    keys: Sequence[ImageKey], signature: bytes, *, sha256: bytes, blake2b: bytes
) -> str:
    """Return the key that signed content with these digests.

    Raises
    ------
    ImageRefusedError
        If none of the keys signed it, or the signature is malformed.
    """
    try:
        if signature.startswith(_UNTRUSTED):
            return str(_check_minisign(keys, signature, blake2b))
        return str(_check_cosign(keys, signature, sha256))
    except ValueError as error:
        known = ", ".join(map(str, keys))
        raise ImageRefusedError(f"its signature: {error}. Keys trusted here: {known}") from error


def _check_minisign(keys: Sequence[ImageKey], signature: bytes, blake2b: bytes) -> ImageKey:
    lines = signature.splitlines()
    if len(lines) != 4 or not lines[2].startswith(_TRUSTED):
        raise ValueError("it does not have the four lines of a signature of minisign")
    raw, whole = _decode_base64(lines[1]), _decode_base64(lines[3])
    if len(raw) != 2 + _KEY_ID_BYTES + 64 or len(whole) != 64:
        raise ValueError("it is cut off")
    if raw[:2] == b"Ed":
        raise ValueError("it is of the old kind, over the content itself; sign with `minisign -H`")
    if raw[:2] != b"ED":
        raise ValueError("its algorithm is not that of minisign")
    wanted, proof = _key_id(raw[2:10]), raw[2 + _KEY_ID_BYTES :]
    named = [key for key in keys if (key.kind, key.id) == ("minisign", wanted)]
    if not named:
        raise ValueError(f"it is of minisign key {wanted}, which is not trusted here")
    for key in named:
        if _is_ed25519(key, proof, blake2b):
            if not _is_ed25519(key, whole, proof + lines[2].removeprefix(_TRUSTED)):
                raise ValueError("its trusted comment was changed")
            return key
    raise ValueError(f"it is not of this content: minisign key {wanted} signed another")


def _check_cosign(keys: Sequence[ImageKey], signature: bytes, sha256: bytes) -> ImageKey:
    proof = _decode_base64(signature.strip())
    candidates = [key for key in keys if key.kind == "cosign"]
    if not candidates:
        raise ValueError("it is not of minisign, and no key of cosign is trusted here")
    for key in candidates:
        if _is_ecdsa(key, proof, sha256):
            return key
    raise ValueError("it is not of this content, or of no key that is trusted here")


def _is_ed25519(key: ImageKey, proof: bytes, message: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    try:
        Ed25519PublicKey.from_public_bytes(key.public).verify(proof, message)
    except InvalidSignature:
        return False
    return True


def _is_ecdsa(key: ImageKey, proof: bytes, sha256: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec, utils  # noqa: PLC0415

    public = serialization.load_der_public_key(key.public)
    assert isinstance(public, ec.EllipticCurvePublicKey)  # noqa: S101 - it was read as one
    try:
        public.verify(proof, sha256, ec.ECDSA(utils.Prehashed(hashes.SHA256())))
    except InvalidSignature:
        return False
    return True


def _decode_base64(line: bytes) -> bytes:
    """Decode canonical base64, or raise `ValueError`."""
    try:
        raw = binascii.a2b_base64(line, strict_mode=True)
    except binascii.Error:
        raw = b""
    if not raw or base64.b64encode(raw) != line:
        raise ValueError("it is not of base64")
    return raw


def _key_id(little_endian: bytes) -> str:
    return little_endian[::-1].hex().upper()
