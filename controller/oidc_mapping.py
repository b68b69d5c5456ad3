"""Whom a provider of identities may let in: its claims, mapped to tenants and operators.

The operators of the site say it in a table, a row for each value of a claim. What no row
names is refused: by default no user is admitted.
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
    def _one_of_both(self) -> Self:
        if self.operator == (self.tenant is not None):
            raise ValueError("either tenant = NAME or operator = true")
        return self

    def fits(self, claims: Mapping[str, Any]) -> bool:
        """Whether the claim is this value, or a list with it."""
        if self.claim == "email" and claims.get("email_verified") is not True:
            return False  # anybody may say that an address is his
        found = _claim(claims, self.claim)
        return self.value in found if isinstance(found, list) else found == self.value


def admission_of(
    claims: Mapping[str, Any],
    rules: Sequence[OidcRule],
    *,
    name_claim: str,
    tenant: str | None = None,
) -> Admission | None:
    """Return the identity of the first rule that matches a user; None if none does.

    With ``tenant``, the first of those for that tenant.
    """
    for rule in rules:
        if (tenant is None or rule.tenant == tenant) and rule.fits(claims):
            return Admission(
                role="operator" if rule.operator else "tenant",
                tenant=rule.tenant,
                read_only=rule.read_only,
                name=name_of(claims, name_claim),
                event_data={
                    "issuer": str(claims["iss"])[:_LONGEST_SHOWN],
                    "subject": str(claims["sub"])[:_LONGEST_SHOWN],
                },
            )
    return None


def name_of(claims: Mapping[str, Any], name_claim: str) -> str:
    """Return the part of a user's name that a token's name can hold."""
    said = _claim(claims, name_claim)
    readable = _NOT_IN_NAMES.sub("-", said.lower()) if isinstance(said, str) else ""
    return readable.strip("._-")[:40] or "user"


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim by its name, or by the way to it: ``realm_access.roles``."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def is_private_address(address: str, *, local: bool) -> bool:
    """Return whether an address is of https; of http too on this machine, if ``local``."""
    try:
        parts = urlsplit(address)
        named = bool(parts.hostname) and parts.username is None and not parts.fragment
    except ValueError:
        return False
    if not named or not address.isascii() or not address.isprintable() or " " in address:
        return False
    return parts.scheme == "https" or (local and parts.scheme == "http" and is_loopback(address))


def is_loopback(address: str) -> bool:
    """Return whether an address is this machine's."""
    host = urlsplit(address).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
