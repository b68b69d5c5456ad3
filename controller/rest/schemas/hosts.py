"""Schemas of hosts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from controller.host_aliases import HostAlias
from controller.rest.problems import patterns
from controller.rest.schemas.values import (
    Amount,
    Amounts,
    Input,
    Label,
    Labels,
    LibvirtName,
    Name,
    Ratio,
    Ratios,
    SearchQuery,
    SshHostKeys,
    Uri,
)
from registry.differences import Difference


class HostInput(Input):
    """Register a host. It is ``enrolling`` until the monitor reaches it."""

    name: Name
    uri: Uri
    credential: Name | None = Field(
        None,
        description="Name of its TLS or SSH credential on the machines of monitor and "
        "workers; SSH needs one.",
    )
    ssh_host_keys: SshHostKeys = Field(default=[])
    labels: Labels = Field(default=[])
    overrides: Amounts = Field(
        default={}, description="Capacity to use instead of the detected one."
    )
    reserved: Amounts = Field(
        default={},
        description="Reserved for the host itself; default, for resources without "
        "an override: set by the site.",
    )
    ratios: Ratios = Field(default={})
    domain_type: Literal["kvm", "qemu", "test"] = "kvm"
    pool: LibvirtName = "default"
    network: LibvirtName = "default"
    base_volume: LibvirtName | None = None
    memory_backing_mib: Annotated[int, Field(ge=16, le=1_000_000_000)] | None = None
    max_builds: Annotated[int, Field(ge=1, le=1000)] = 2
    fence_target: Annotated[str, Field(pattern=patterns.FENCE_TARGET)] | None = Field(
        None, description="Argument of the site's fencing command, such as a BMC address."
    )


class HostChange(Input):
    """Change a host; omitted fields stay as they are."""

    admin: Literal["active", "draining", "maintenance"] | None = None
    uri: Uri | None = Field(
        None, description="Another address of the same machine; its VMs stay with the host."
    )
    labels: Labels | None = None
    overrides: Annotated[dict[Name, Amount | None], Field(max_length=32)] | None = Field(
        None, description="By resource; null removes an override."
    )
    reserved: Amounts | None = None
    ratios: Annotated[dict[Name, Ratio | None], Field(max_length=32)] | None = Field(
        None, description="By resource, in thousandths; null: the ratio of the host's labels."
    )
    max_builds: Annotated[int, Field(ge=1, le=1000)] | None = None
    fence_target: Annotated[str, Field(pattern=patterns.FENCE_TARGET_OR_NONE)] | None = Field(
        None, description="Empty: removes it."
    )
    credential: Name | None = Field(
        None, description="Null: the credentials that libvirt finds by itself."
    )
    ssh_host_keys: SshHostKeys | None = Field(None, description="Replaces all keys.")


class FenceInput(Input):
    """Fence a host that is down."""

    by_hand: bool = Field(
        False,
        description="Confirm that you switched the host off and keep it off: fuga runs no command.",
    )


class RepairInput(Input):
    """Selects a difference of a host."""

    difference: Annotated[Difference, Field(strict=False)]
    subject: Annotated[str, Field(pattern=patterns.PRINTABLE)]


class LabelRatios(Input):
    """Over-commit ratios of hosts with a label, unless they have their own."""

    label: Label
    ratios: Ratios = Field(description="By resource, in thousandths; an empty object removes them.")


class HostAliasQuery(BaseModel):
    """Selects a host by a tenant's name for it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tenant: Name
    name: Name = Field(description="The tenant's name for the host, or the host's own name.")


class HostAliases(BaseModel):
    """Hosts with this name or alias: usually one or none; two if a host's name equals an alias."""

    items: list[HostAlias]


class HostRetirement(BaseModel):
    """What is retired with a host."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    volumes_lost: bool = Field(
        default=False,
        description="The host's pool is lost: its volumes of tenants are removed. Files that are"
        " still there stay.",
    )


class HostsQuery(SearchQuery):
    """Selects hosts."""

    include_retired: bool = False
    address: str | None = Field(None, max_length=45, description="IP address of the host.")
    mac: str | None = Field(None, max_length=17, description="MAC address of an interface.")
