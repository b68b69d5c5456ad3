"""Secrets that a repeated call shows again, although they are not stored.

A secret is derived from the caller's credential, which fuga does not store, and from a random
salt, which is stored for a day with the call's Idempotency-Key. Neither alone reveals the secret.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from dataclasses import dataclass, field
from typing import Final

OF_TOKENS: Final = "fuga_"
OF_CODES: Final = "fuga_once_"
CODE_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Derivation:
    """Derives a secret from a credential and a salt; equal ones give the same secret."""

    credential: str = field(repr=False)  #: the secret of the maker's own token
    salt: str = field(repr=False)

    @classmethod
    def random(cls, credential: str) -> Derivation:
        """Return a derivation of secrets with a random salt."""
        return cls(credential, secrets.token_urlsafe(32))

    def token(self) -> str:
        """Return the derived secret of an API token."""
        return f"{OF_TOKENS}{self._derive_text(OF_TOKENS, 32)}"

    def login_code(self) -> str:
        """Return the derived code of a login link."""
        return f"{OF_CODES}{self._derive_text(OF_CODES, CODE_BYTES)}"

    def _derive_text(self, kind: str, size: int) -> str:
        """Return a derived secret of ``size`` bytes as text, different for each kind."""
        derived = hmac.digest(self.credential.encode(), f"{kind}{self.salt}".encode(), "sha256")
        return base64.urlsafe_b64encode(derived[:size]).rstrip(b"=").decode()
