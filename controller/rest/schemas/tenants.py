"""Schemas of tenants, quotas, SSH keys and tokens."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, field_validator

from controller.queries.tenant_shares import Effect, TenantShare
from controller.rest.schemas.values import Amount, Input, Name, PageQuery, PublicKey, Weight
from registry.db import MAX_TTL_S
from registry.tenancy import MoveTo, Token


class TenantInput(Input):
    """Create a tenant or a group of tenants."""

    name: Name
    weight: Weight = Field(1.0, description="Relative to its siblings.")
    parent: Name | None = Field(None, description="Parent group; null: none.")
    is_group: bool = Field(
        False, description="Create a group: its tenants request VMs, it does not."
    )


class TenantChange(Input):
    """Change a tenant or group; omitted fields stay as they are."""

    weight: Weight | None = Field(None, description="Relative to its siblings.")
    parent: Name | None = Field(None, description="New parent group; null: none.")

    @field_validator("weight")
    @classmethod
    def _check_weight(cls, weight: float | None) -> float:
        if weight is None:
            raise ValueError("a number, or omit it")
        return weight

    @property
    def move(self) -> MoveTo | None:
        """The new parent group, if it moves."""
        return MoveTo(parent=self.parent) if "parent" in self.model_fields_set else None


class QuotaChange(Input):
    """Change the quota of a tenant or group; omitted fields stay as they are."""

    limits: Annotated[dict[Name, Amount | None], Field(max_length=64)] = Field(
        default={}, description="By resource, `vms` for the number of VMs; null removes a limit."
    )
    over_quota: Literal["refuse", "wait", "inherit"] | None = Field(
        None,
        description="What happens to requests above a quota; inherit: as in the nearest group "
        "above, or as set by the site.",
    )


class Rehearsal(BaseModel):
    """Whether to apply a change, or only to show its effect."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dry_run: bool = Field(False, description="Change nothing; return the effect on shares.")


class Effects(BaseModel):
    """The effect of a change that was not applied, groups before their members."""

    applied: Literal[False] = False
    tenants: list[Effect]


class TenantShares(BaseModel):
    """Shares of tenants and groups, groups before their members."""

    items: list[TenantShare]


class SshKeyInput(Input):
    """Add a public key of a tenant."""

    name: Name
    public_key: PublicKey
    tenant: Name | None = Field(None, description="Required for operators.")


class TokenInput(Input):
    """Create a token for a tenant, or for an operator."""

    role: Literal["operator", "tenant"]
    name: Name
    tenant: Name | None = None
    read_only: bool = Field(False, description="Allow reading only.")
    ttl_s: Annotated[int, Field(ge=1, le=MAX_TTL_S)] | Literal["never"] | None = Field(
        None,
        description="Seconds until it expires; null: an operator's token as set by"
        " `FUGA_OPERATOR_TOKEN_DAYS`, a tenant's never.",
    )


class SshKeysQuery(PageQuery):
    """Selects public keys."""

    tenant: Name | None = None


class TokenCreated(BaseModel):
    """A new token. Only this answer holds the secret: fuga stores its hash."""

    model_config = ConfigDict(from_attributes=True)

    id: UUID
    name: str
    role: Literal["operator", "tenant"]
    tenant: str | None
    read_only: bool
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    login: Literal["link", "oidc"] | None = Field(
        None, description="How a login gave it; null: made by hand."
    )
    secret: str | None = Field(
        description="An answer repeated for its Idempotency-Key shows it again."
    )

    @classmethod
    def of(cls, token: Token, secret: str) -> TokenCreated:
        """Return the answer for a token and its secret."""
        return cls(**asdict(token), secret=secret)
