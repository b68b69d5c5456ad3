"""Tenants: their tree, quotas, tokens, logins and SSH keys."""

from registry.records.tenancy import (
    LoginLink,
    MoveTo,
    OverQuota,
    Quota,
    QuotaUse,
    SaltedLink,
    SaltedToken,
    SshKey,
    Tenant,
    Token,
)
from registry.tenancy.derived_secrets import Derivation
from registry.tenancy.logins import LINK_TTL_S, Admission

__all__ = [
    "LINK_TTL_S",
    "Admission",
    "Derivation",
    "LoginLink",
    "MoveTo",
    "OverQuota",
    "Quota",
    "QuotaUse",
    "SaltedLink",
    "SaltedToken",
    "SshKey",
    "Tenant",
    "Token",
]
