"""Verification of OpenID Connect ID tokens.

PyJWT verifies the signature. This module restricts algorithms and keys: only listed public-key
algorithms are allowed, and the type of the key must be that of the algorithm.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jwt

from controller.rest.problems.errors import LoginRefusedError

#: Allowed algorithms, with their type of key. No `none`, and no HS256: a public key is no secret.
ALGORITHMS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    "EdDSA": "OKP",
}
#: Allowed difference between the clocks of provider and API.
SKEW_S: Final = 60
#: Maximum age of an ID token: it is used at once, so an old one belongs to another login.
MAX_AGE_S: Final = 600
MAX_CHARACTERS: Final = 64 * 1024
_MIN_RSA_BITS: Final = 2048
#: The end of the year 9999.
_LATEST_S: Final = 253_402_300_799
#: Members of a JWK that only its owner may know.
_PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
_REQUIRED: Final = ["iss", "sub", "aud", "exp", "iat", "nonce"]


class UnknownKeyError(LoginRefusedError):
    """No cached key signed the token; the provider may have new keys."""


def derive_nonce(verifier: str) -> str:
    """Return the nonce derived from a PKCE verifier.

    The nonce proves that the caller knows the verifier, even if the provider ignores PKCE.
    """
    digest = hashlib.sha256(f"nonce.{verifier}".encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def verify_id_token(
    id_token: str, keys: Sequence[Mapping[str, Any]], *, issuer: str, client_id: str, nonce: str
) -> Mapping[str, Any]:
    """Return the claims of an ID token after verifying its issuer, audience, nonce and times.

    Parameters
    ----------
    id_token : str
        The token from the provider.
    keys : sequence of mappings
        The provider's public keys, as JWKs.

    Raises
    ------
    UnknownKeyError
        If none of the keys is the one that the token names.
    LoginRefusedError
        If the token is not valid; the message says why.
    """
    if len(id_token) > MAX_CHARACTERS:
        raise _login_refusal("it is too long")
    try:
        header = jwt.get_unverified_header(id_token)
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise _login_refusal("its algorithm is not allowed")
        if "crit" in header:
            raise _login_refusal("it asks for extensions")
        key = _signing_key(header, algorithm, keys)
        claims: dict[str, Any] = jwt.decode(
            id_token,
            key,
            algorithms=[algorithm],
            audience=client_id,
            issuer=issuer,
            leeway=SKEW_S,
            options={"require": _REQUIRED},
        )
        _check_times(claims)
        _check_authorized_party(claims, client_id)
        _check_nonce_and_age(claims, nonce, time.time())
    except jwt.PyJWTError as error:
        raise _login_refusal(_WORDS.get(type(error), "it is not valid")) from error
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _login_refusal("it is not valid") from error
    return claims


def _signing_key(
    header: Mapping[str, Any], algorithm: str, keys: Sequence[Mapping[str, Any]]
) -> Any:
    """Return the key that a token names, if its type fits the algorithm."""
    kid = header.get("kid")
    fitting = [
        each
        for each in keys
        if each.get("kty") == ALGORITHMS[algorithm]
        and each.get("use", "sig") == "sig"
        and each.get("alg", algorithm) == algorithm
        and (kid is None or each.get("kid") == kid)
    ]
    if len(fitting) != 1:
        raise UnknownKeyError(
            f"{_BEGIN}: it is signed with a key that the provider does not publish"
        )
    if not _PRIVATE.isdisjoint(fitting[0]):
        raise _login_refusal("its key is no secret: the provider publishes private parts of it")
    key = jwt.PyJWK(dict(fitting[0]), algorithm=algorithm).key
    if ALGORITHMS[algorithm] == "RSA" and key.key_size < _MIN_RSA_BITS:
        raise _login_refusal("its key is too short")
    return key


def _check_times(claims: Mapping[str, Any]) -> None:
    """Refuse times that are not numbers: PyJWT accepts text and booleans for some."""
    for name in ("exp", "iat", "nbf"):
        found = claims.get(name, 0)
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise _login_refusal("it is not valid")
        if not 0 <= found <= _LATEST_S:  # nor NaN
            raise _login_refusal("it is not valid")


def _check_authorized_party(claims: Mapping[str, Any], client_id: str) -> None:
    """Refuse a token that was issued for another client."""
    several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
    if claims.get("azp", None if several else client_id) != client_id:
        raise _login_refusal("it is for another application")
    if not isinstance(claims["sub"], str) or not claims["sub"]:
        raise _login_refusal("it is not valid")


def _check_nonce_and_age(claims: Mapping[str, Any], nonce: str, now: float) -> None:
    """Refuse a token of another login, or one that was issued too long ago."""
    claimed_nonce = claims["nonce"]
    if not isinstance(claimed_nonce, str) or not hmac.compare_digest(
        claimed_nonce.encode(), nonce.encode()
    ):
        raise _login_refusal("it is of another login")
    if now - float(claims["iat"]) > MAX_AGE_S:
        raise _login_refusal("it is too old")


_BEGIN: Final = "the provider's token was refused"
_WORDS: Final[Mapping[type[jwt.PyJWTError], str]] = {
    jwt.ExpiredSignatureError: "it has expired",
    jwt.ImmatureSignatureError: "it is not valid yet: compare the clocks",
    jwt.InvalidAudienceError: "it is for another application",
    jwt.InvalidIssuerError: "it is from another issuer",
    jwt.InvalidSignatureError: "its signature is wrong",
}


def _login_refusal(why: str) -> LoginRefusedError:
    return LoginRefusedError(f"{_BEGIN}: {why}")
