"""Signatures of minisign and cosign under keys of operators, and what is none."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import example, given
from hypothesis import strategies as st

from registry import ImageRefusedError, SettingsError
from registry.db import uuid7
from registry.images import ImageStore
from registry.images.signatures import check_signature, parse_key, read_image_keys

CONTENT = b"a disk".ljust(1024, b"\0")
SHA256 = hashlib.sha256(CONTENT).digest()
BLAKE2B = hashlib.blake2b(CONTENT).digest()
KEY_ID = bytes(range(8))
MINISIGN = Ed25519PrivateKey.generate()
COSIGN = ec.generate_private_key(ec.SECP256R1())


def minisign_pub(key: Ed25519PrivateKey = MINISIGN, key_id: bytes = KEY_ID) -> bytes:
    raw = b"Ed" + key_id + key.public_key().public_bytes_raw()
    return b"untrusted comment: minisign public key\n" + base64.b64encode(raw) + b"\n"


def minisig(
    digest: bytes = BLAKE2B,
    *,
    key: Ed25519PrivateKey = MINISIGN,
    key_id: bytes = KEY_ID,
    algorithm: bytes = b"ED",
    comment: bytes = b"timestamp:1\tfile:debian.raw\thashed",
) -> bytes:
    proof = key.sign(digest)
    lines = (
        b"untrusted comment: signature",
        base64.b64encode(algorithm + key_id + proof),
        b"trusted comment: " + comment,
        base64.b64encode(key.sign(proof + comment)),
    )
    return b"\n".join(lines) + b"\n"


def pem(public: ec.EllipticCurvePublicKey) -> bytes:
    return public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def cosign_sig(content: bytes = CONTENT, key: ec.EllipticCurvePrivateKey = COSIGN) -> bytes:
    return base64.b64encode(key.sign(content, ec.ECDSA(hashes.SHA256())))


KEYS = (parse_key("release.pub", minisign_pub()), parse_key("cosign.pub", pem(COSIGN.public_key())))


def check(signature: bytes) -> str:
    return check_signature(KEYS, signature, sha256=SHA256, blake2b=BLAKE2B)


def test_a_signature_says_which_key_it_is_of() -> None:
    assert check(minisig()) == "minisign key 0706050403020100 (release.pub)"
    assert check(cosign_sig()).startswith("cosign key SHA256:")
    assert check(cosign_sig() + b"\n").endswith("(cosign.pub)")
    assert check(minisig().replace(b"\n", b"\r\n")).startswith("minisign")
    assert check(minisig(comment="für Müller\x85\u2028— 版".encode())).startswith("minisign")


def test_what_minisign_itself_made_is_read() -> None:
    """The example of minisign's page: `minisign -Vm myfile.txt -P …`, its content `test`."""
    key = parse_key("minisign.pub", b"RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3")

    assert (key.kind, key.id) == ("minisign", "E7620F1842B4E81F")


OTHER = Ed25519PrivateKey.generate()
WRONG = [
    (minisig(b"other"), "not of this content"),
    (minisig(key_id=b"\xff" * 8), "minisign key FFFFFFFFFFFFFFFF, which is not trusted here"),
    (minisig(key=OTHER), "not of this content"),
    (minisig(algorithm=b"Ed"), "sign with `minisign -H`"),
    (minisig(algorithm=b"XX"), "its algorithm is not that of minisign"),
    (minisig().replace(b"timestamp:1", b"timestamp:2"), "its trusted comment was changed"),
    (minisig() + b"more\n", "four lines"),
    (b"\n".join(minisig().splitlines()[:2]), "four lines"),
    (minisig().replace(b"=\n", b"\n"), "not of base64|cut off"),
    (cosign_sig(b"other"), "not of this content"),
    (cosign_sig(key=ec.generate_private_key(ec.SECP256R1())), "not of this content"),
    (b'{"base64Signature": "MEUC"}', "not of base64"),
    (b"", "not of base64"),
    (b"\0" * 4096, "not of base64"),
]


@pytest.mark.parametrize(("signature", "reason"), WRONG, ids=range(len(WRONG)))
def test_what_is_not_signed_by_a_key_of_ours_is_refused(signature: bytes, reason: str) -> None:
    with pytest.raises(ImageRefusedError, match=reason) as refused:
        check(signature)

    assert "release.pub" in str(refused.value)


@given(st.binary(max_size=400) | st.text(max_size=200).map(str.encode))
@example(b"untrusted comment: x\n\ntrusted comment: \n")
def test_any_bytes_for_a_signature_are_refused(signature: bytes) -> None:
    for prefix in (b"", b"untrusted comment: ", minisig()[:150], cosign_sig()[:30]):
        with pytest.raises(ImageRefusedError):
            check(prefix + signature)


@given(st.integers(0, 1 << 20), st.integers(1, 255))
def test_a_signature_with_one_other_byte_is_refused_or_says_the_same(at: int, flip: int) -> None:
    for good in (minisig(), cosign_sig()):
        changed = bytearray(good)
        changed[at % len(good)] ^= flip
        try:
            shown = check(bytes(changed))
        except ImageRefusedError:
            continue
        # Nobody signs the first line, nor how lines and the file end.
        assert shown == check(good)
        assert bytes(changed).splitlines()[1:4] == good.splitlines()[1:4]


@given(st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
def test_any_bytes_for_a_key_are_refused(content: bytes) -> None:
    for prefix in (b"", b"untrusted comment: x\n", b"-----BEGIN PUBLIC KEY-----\n"):
        with pytest.raises(ValueError, match=r"."):
            parse_key("x.pub", prefix + content)


def test_keys_of_other_kinds_are_named_with_their_file(tmp_path: Path) -> None:
    for name, content in (
        ("p384.pub", pem(ec.generate_private_key(ec.SECP384R1()).public_key())),
        ("private.pub", b"untrusted comment: minisign encrypted secret key\nRWRTY0Iy\n"),
        ("long.pub", b"x" * 5000),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(SettingsError, match=name):
            read_image_keys([tmp_path / name])
    with pytest.raises(SettingsError, match=r"FUGA_IMAGE_KEYS.*No such file"):
        read_image_keys([tmp_path / "none.pub"])


def receive(store: ImageStore, content: bytes, signature: bytes | None) -> str | None:
    with store.receive(uuid7(), "raw", signature) as incoming:
        incoming.write(content[:500])
        incoming.write(content[500:])
        return incoming.store(None).signed_by


def test_the_store_judges_the_bytes_that_it_keeps(tmp_path: Path) -> None:
    store = ImageStore(tmp_path, max_bytes=4096, keys=KEYS)

    assert receive(store, CONTENT, minisig()) == "minisign key 0706050403020100 (release.pub)"
    for signature in (None, minisig(b"x"), cosign_sig(os.urandom(9))):
        with pytest.raises(ImageRefusedError, match="sign"):
            receive(store, CONTENT, signature)
    with pytest.raises(ImageRefusedError, match="not of this content"):
        receive(store, CONTENT[:-512], minisig())
    assert len(store.files()) == 1


def test_a_signature_that_nobody_can_judge_is_refused(tmp_path: Path) -> None:
    store = ImageStore(tmp_path, max_bytes=4096)

    assert receive(store, CONTENT, None) is None
    with pytest.raises(ImageRefusedError, match="FUGA_IMAGE_KEYS is empty"):
        receive(store, CONTENT, minisig())


def test_what_openssl_signs_like_cosign_is_taken(tmp_path: Path) -> None:
    """`cosign sign-blob` prints base64 of what this makes, and its key pair is such a one."""
    key, blob, proof = (tmp_path / name for name in ("key.pem", "blob", "proof"))
    blob.write_bytes(CONTENT)

    def openssl(*words: object) -> None:
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)

    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
    openssl("ec", "-in", key, "-pubout", "-out", tmp_path / "cosign.pub")
    openssl("dgst", "-sha256", "-sign", key, "-out", proof, blob)
    store = ImageStore(
        tmp_path / "s", max_bytes=4096, keys=read_image_keys([tmp_path / "cosign.pub"])
    )

    shown = receive(store, CONTENT, base64.b64encode(proof.read_bytes()))

    assert shown is not None
    assert shown.endswith("(cosign.pub)")
