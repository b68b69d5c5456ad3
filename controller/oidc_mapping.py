"""Maps the claims of an OpenID Connect provider to tenants and operators.

The operators of the site set a table with a row for each value of a claim. A user whom no row
admits is refused, so an empty table admits nobody.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

from registry.tenancy import Admission

_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9._-]+")
_LONGEST_SHOWN: Final = 200


class OidcRule(BaseModel):
    """A claim and the value that admits a user, as an operator or as a tenant."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    claim: str = Field(min_length=1, max_length=200)
    value: str = Field(min_length=1, max_length=200)
    tenant: str | None = None
    operator: bool = False
    read_only: bool = False

    @model_validator(mode="after")
    def _check_one_identity(self) -> Self:
        if self.operator == (self.tenant is not None):
            raise ValueError("either tenant = NAME or operator = true")
        return self

    def matches(self, claims: Mapping[str, Any]) -> bool:
        """Return whether the claim has this value, or is a list that contains it."""
        if self.claim == "email" and claims.get("email_verified") is not True:
            return False  # an unverified address proves nothing
        found = _claim_value(claims, self.claim)
        return self.value in found if isinstance(found, list) else found == self.value


def match_admission(
    claims: Mapping[str, Any],
    rules: Sequence[OidcRule],
    *,
    name_claim: str,
    tenant: str | None = None,
) -> Admission | None:
    """Return the identity that the first matching rule gives a user; None if no rule matches.

    With ``tenant``, only rules for that tenant count.
    """
    for rule in rules:
        if (tenant is None or rule.tenant == tenant) and rule.matches(claims):
            return Admission(
                role="operator" if rule.operator else "tenant",
                tenant=rule.tenant,
                read_only=rule.read_only,
                name=to_token_name(claims, name_claim),
                event_data={
                    "issuer": str(claims["iss"])[:_LONGEST_SHOWN],
                    "subject": str(claims["sub"])[:_LONGEST_SHOWN],
                },
            )
    return None


def to_token_name(claims: Mapping[str, Any], name_claim: str) -> str:
    """Return a user's name, reduced to the characters that are allowed in names of tokens."""
    said = _claim_value(claims, name_claim)
    readable = _NOT_IN_NAMES.sub("-", said.lower()) if isinstance(said, str) else ""
    return readable.strip("._-")[:40] or "user"


def _claim_value(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim by its name, or by the path to it: ``realm_access.roles``."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def is_private_address(address: str, *, local: bool) -> bool:
    """Return whether a URL is https, or http on the loopback interface if ``local``."""
    try:
        parts = urlsplit(address)
        named = bool(parts.hostname) and parts.username is None and not parts.fragment
    except ValueError:
        return False
    if not named or not address.isascii() or not address.isprintable() or " " in address:
        return False
    return parts.scheme == "https" or (local and parts.scheme == "http" and is_loopback(address))


def is_loopback(address: str) -> bool:
    """Return whether the host of a URL is the loopback interface."""
    host = urlsplit(address).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
