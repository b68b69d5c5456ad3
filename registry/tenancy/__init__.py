"""Between whom the cluster is shared: the tree of tenants, quotas, tokens and SSH keys."""

from registry.records.tenancy import (
    LoginLink,
    MoveTo,
    OverQuota,
    Quota,
    QuotaUse,
    SshKey,
    Tenant,
    Token,
)
from registry.tenancy.logins import LINK_TTL_S, Admission

__all__ = [
    "LINK_TTL_S",
    "Admission",
    "LoginLink",
    "MoveTo",
    "OverQuota",
    "Quota",
    "QuotaUse",
    "SshKey",
    "Tenant",
    "Token",
]
