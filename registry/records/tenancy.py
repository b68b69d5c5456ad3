"""Tenants, their groups, quotas, keys and tokens: frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from registry.records.fields import Observed, Settable

Role = Literal["operator", "tenant"]
#: How a login's token was obtained: by a one-time link, or from a provider.
Login = Literal["link", "oidc"]


#: What becomes of a request above a quota: it is refused, or accepted and waits.
OverQuota = Literal["refuse", "wait"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A party whose share is accounted, or a group of such parties."""

    id: Observed[UUID]
    name: Settable[str]
    weight: Settable[float]  #: weight among its siblings
    parent: Settable[str | None]  #: parent group
    is_group: Settable[bool]  #: asks for nothing itself: its tenants do
    created_at: Observed[datetime]
    removed_at: Settable[datetime | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveTo:
    """The new parent of a tenant or group."""

    parent: str | None  #: new parent group; None: the top of the tree


@dataclass(frozen=True, slots=True, kw_only=True)
class SshKey:
    """A public key of a tenant: it opens every VM built for that tenant from now on."""

    id: UUID
    tenant: str
    name: str
    public_key: str
    fingerprint: str  #: as `ssh-keygen -l` prints it
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaUse:
    """The limit of one resource, and its use."""

    tenant: Settable[str]  #: whose quota: a tenant's own, or that of a group above it
    resource: Settable[str]  #: "vms" is the number of VMs, "volumes" that of volumes
    limit: Settable[int]
    requested: Observed[int]  #: amount of all wanted VMs
    held: Observed[int]  #: by all assignments that are not released
    by_default: Observed[bool] = False  #: whether the limit was given by default and not set since


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The quota of a tenant or group: its own limits and those of the groups above."""

    tenant: Settable[str]
    #: rule for requests above the quota; None: that of the nearest group above
    over_quota: Settable[OverQuota | None]
    #: limits of the tenant first, then those of the groups above it
    limits: Settable[tuple[QuotaUse, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token of the API. Its secret is not stored."""

    id: UUID
    name: str
    role: Role
    tenant: str | None
    read_only: bool = False
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None
    last_used_at: datetime | None = None  #: accurate to the hour
    login: Login | None = None  #: None if the token was not made by a login


@dataclass(frozen=True, slots=True, kw_only=True)
class SaltedToken:
    """A token with the salt of its secret, from which its creator can derive the secret again."""

    token: Token
    salt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginLink:
    """A single-use login code. The code itself is not stored."""

    id: UUID
    read_only: bool
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SaltedLink:
    """A login link with the salt of its code."""

    link: LoginLink
    salt: str
