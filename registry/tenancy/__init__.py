"""Between whom the cluster is shared: the tree of tenants, quotas, tokens and SSH keys."""

from registry.records.tenancy import MoveTo, OverQuota, Quota, QuotaUse, SshKey, Tenant, Token

__all__ = [
    "MoveTo",
    "OverQuota",
    "Quota",
    "QuotaUse",
    "SshKey",
    "Tenant",
    "Token",
]
