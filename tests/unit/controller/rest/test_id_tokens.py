"""ID tokens: one is good that is the provider's, for us, for this login and now; no other is."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from typing import Any, Final

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from controller.rest.login.id_tokens import UnknownKeyError, derive_nonce, verify_id_token
from controller.rest.problems.errors import LoginRefusedError

ISSUER: Final = "https://sso.example.org/realms/site"
NONCE: Final = derive_nonce("v" * 43)
RSA: Final = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER: Final = rsa.generate_private_key(public_exponent=65537, key_size=2048)
SHORT: Final = rsa.generate_private_key(public_exponent=65537, key_size=1024)
CURVE: Final = ec.generate_private_key(ec.SECP256R1())


def jwk(key: Any, kid: str, **more: Any) -> dict[str, Any]:
    kind = jwt.algorithms.ECAlgorithm if key is CURVE else jwt.algorithms.RSAAlgorithm
    return {**kind.to_jwk(key.public_key(), as_dict=True), "kid": kid, "use": "sig", **more}


KEYS: Final = (jwk(RSA, "one"), jwk(CURVE, "two"), jwk(SHORT, "short"))


def claims(**changes: Any) -> dict[str, Any]:
    now = int(time.time())
    found = {
        "iss": ISSUER, "sub": "u1", "aud": "fuga", "iat": now, "exp": now + 300, "nonce": NONCE,
        "groups": ["physics"],
    }  # fmt: skip
    return {name: value for name, value in (found | changes).items() if value is not None}


def signed(key: Any = RSA, alg: str = "RS256", kid: str | None = "one", **changes: Any) -> str:
    headers = {} if kid is None else {"kid": kid}
    return jwt.encode(claims(**changes), key, algorithm=alg, headers=headers)


def read(token: str, keys: Any = KEYS) -> Any:
    return verify_id_token(token, keys, issuer=ISSUER, client_id="fuga", nonce=NONCE)


def by_hand(header: dict[str, Any], signature: bytes = b"") -> str:
    parts = (json.dumps(header).encode(), json.dumps(claims()).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(each).rstrip(b"=").decode() for each in parts)


def test_a_token_of_the_provider_tells_whose_it_is() -> None:
    several = ["fuga", "other"]

    for token in (
        signed(), signed(CURVE, "ES256", "two"), signed(RSA, "PS256"), signed(aud=["fuga"]),
        signed(aud=several, azp="fuga"),
    ):  # fmt: skip
        assert read(token)["groups"] == ["physics"]
    assert read(signed(kid=None), keys=KEYS[:2])["sub"] == "u1"


def _with_the_public_key_as_secret() -> str:
    pem = RSA.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    import hashlib
    import hmac

    unsigned = by_hand({"alg": "HS256", "kid": "one"}).rpartition(".")[0]
    digest = hmac.digest(pem, unsigned.encode(), hashlib.sha256)
    return f"{unsigned}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def _changed_after_it_was_signed() -> str:
    head, _, tail = signed().split(".")
    body = base64.urlsafe_b64encode(json.dumps(claims(groups=["admins"])).encode())
    return f"{head}.{body.rstrip(b'=').decode()}.{tail}"


def _in(seconds: int) -> int:
    return int(time.time()) + seconds


HOSTILE: Final[dict[str, tuple[Callable[[], str], str]]] = {
    "another key": (lambda: signed(OTHER), "signature is wrong"),
    "no signature": (lambda: by_hand({"alg": "none", "kid": "one"}), "algorithm is not allowed"),
    "NONE": (lambda: by_hand({"alg": "NONE"}), "algorithm is not allowed"),
    "a public key as secret": (_with_the_public_key_as_secret, "algorithm is not allowed"),
    "changed": (_changed_after_it_was_signed, "signature is wrong"),
    "expired": (lambda: signed(iat=_in(-500), exp=_in(-120)), "has expired"),
    "kept": (lambda: signed(iat=_in(-1200), exp=_in(9999)), "too old"),
    "of the future": (lambda: signed(iat=_in(600), exp=_in(900)), "compare the clocks"),
    "another audience": (lambda: signed(aud="grafana"), "another application"),
    "shown by another": (lambda: signed(aud=["fuga", "x"], azp="x"), "another application"),
    "several, of nobody": (lambda: signed(aud=["fuga", "x"]), "another application"),
    "another issuer": (lambda: signed(iss=ISSUER + "/"), "another issuer"),
    "another login": (lambda: signed(nonce=derive_nonce("w" * 43)), "another login"),
    "no nonce": (lambda: signed(nonce=None), "not valid"),
    "a nonce that is no text": (lambda: signed(nonce=1), "another login"),
    "no subject": (lambda: signed(sub=None), "not valid"),
    "no end": (lambda: signed(exp=None), "not valid"),
    "an end that is no number": (lambda: signed(exp="never"), "not valid"),
    "an end in text": (lambda: signed(exp=str(_in(300))), "not valid"),
    "an end that is a boolean": (lambda: signed(exp=True), "not valid|has expired"),
    "an end that is no number of JSON": (lambda: signed(exp=float("nan")), "not valid"),
    "an end without end": (lambda: signed(exp=float("inf")), "not valid"),
    "an end in a list": (lambda: signed(exp=[_in(300)]), "not valid"),
    "an end beyond all years": (lambda: signed(exp=10**18), "not valid"),
    "a beginning in text": (lambda: signed(iat=str(_in(0))), "not valid"),
    "a beginning without end": (lambda: signed(iat=float("-inf")), "not valid"),
    "a beginning before time": (lambda: signed(iat=-(10**18)), "not valid"),
    "not before a text": (lambda: signed(nbf=str(_in(0))), "not valid"),
    "not before a boolean": (lambda: signed(nbf=True), "not valid"),
    "extensions": (
        lambda: by_hand({"alg": "RS256", "kid": "one", "crit": ["b64"], "b64": False}, b"x"),
        "was refused",
    ),
    "a short key": (lambda: signed(SHORT, kid="short"), "key is too short"),
    "a key of another kind": (lambda: signed(RSA, kid="two"), "does not publish"),
    "no token": (lambda: "a.b.c", "not valid"),
    "nothing": (lambda: "", "not valid"),
    "too long": (lambda: "a" * 70_000, "too long"),
    "not ASCII": (lambda: "ü.ü.ü", "not valid"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_any_other_token_is_refused_in_words(what: str) -> None:
    make, shown = HOSTILE[what]

    with pytest.raises(LoginRefusedError, match=shown):
        read(make())


@pytest.mark.parametrize("key", [RSA, CURVE])
def test_a_key_whose_private_part_is_published_is_refused(key: Any) -> None:
    kind = jwt.algorithms.ECAlgorithm if key is CURVE else jwt.algorithms.RSAAlgorithm
    published = {**kind.to_jwk(key, as_dict=True), "kid": "one"}

    with pytest.raises(LoginRefusedError, match="publishes private parts"):
        read(signed(key, "ES256" if key is CURVE else "RS256"), keys=(published,))


def test_a_key_that_is_unknown_or_not_for_signing_may_be_known_later() -> None:
    for keys in ((), KEYS[1:], (jwk(RSA, "one", use="enc"),), (jwk(RSA, "one", alg="RS512"),)):
        with pytest.raises(UnknownKeyError):
            read(signed(), keys=keys)
    with pytest.raises(UnknownKeyError):
        read(signed(kid=None), keys=(jwk(RSA, "one"), jwk(OTHER, "other")))
    with pytest.raises(UnknownKeyError):
        read(signed(), keys=({"kty": "oct", "k": "c2VjcmV0", "kid": "one"},))
