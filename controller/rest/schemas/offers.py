"""Schemas of the catalogue: VM types, resources, images, networks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from controller.rest.problems import patterns
from controller.rest.schemas.values import (
    AddressText,
    Amount,
    Amounts,
    Input,
    LibvirtName,
    Name,
    PageQuery,
    Uri,
)
from registry.images import ImageCopy


class VmTypeInput(Input):
    """Add a VM type."""

    name: Name
    resources: Annotated[Amounts, Field(min_length=1)]
    limits: Amounts = Field(
        default_factory=dict,
        description="Limits of a VM on its host: `disk_iops` (reads and writes per"
        " second) and `disk_mib_s` (MiB per second) of all its disks, `net_mbps` (Mbit per second,"
        " each way) of its network interface. Others are unlimited. Limits are not resources:"
        " the ledger does not count them.",
    )


class NetworkSourceInput(Input):
    """The name of a network on a host: a libvirt network or a bridge."""

    kind: Literal["network", "bridge"] = "network"
    name: LibvirtName


class SubnetInput(Input):
    """The addresses for VMs of a network."""

    cidr: AddressText = Field(description="IPv4, /16 to /30.")
    gateway: AddressText | None = None
    dns: Annotated[list[AddressText], Field(max_length=8)] = Field(default=[])
    excluded: Annotated[list[AddressText], Field(max_length=64)] = Field(
        default=[], description="Addresses not to assign: 10.0.0.2 or 10.0.0.2-10.0.0.9."
    )


OfferedTo = Annotated[list[Name], Field(max_length=1000)]


class NetworkInput(Input):
    """Add a network."""

    name: Name
    default: NetworkSourceInput | None = Field(
        None, description="For hosts that `hosts` does not name; null: they do not have it."
    )
    hosts: Annotated[dict[Name, NetworkSourceInput], Field(max_length=1000)] = Field(default={})
    subnet: SubnetInput | None = Field(None, description="Null: guests use DHCP.")
    tenant: Name | None = Field(
        None,
        description="Only tenant or group that sees and uses it; null: it belongs to the"
        " operators.",
    )
    offered_to: OfferedTo | None = Field(
        None, description="Tenants and groups that may use it; null: all."
    )
    isolated: bool | None = Field(
        None, description="Separate the VMs; null: if several tenants may use it."
    )
    filtered: bool = Field(True, description="Restrict VMs to their own MAC and IP addresses.")


class NetworkChange(Input):
    """Change a network; omitted fields stay as they are. VMs follow at their next start."""

    hosts: Annotated[dict[Name, NetworkSourceInput | None], Field(max_length=1000)] = Field(
        default={}, description="Its name by host; null: its default."
    )
    offered_to: OfferedTo | None = Field(
        None, description="Tenants and groups that may use it; an explicit null: all."
    )
    isolated: bool | None = Field(None, description="Separate the VMs; null: unchanged.")
    filtered: bool | None = Field(
        None, description="Restrict VMs to their own MAC and IP addresses; null: unchanged."
    )

    @model_validator(mode="after")
    def _check_not_empty(self) -> NetworkChange:
        if not (self.hosts or self.model_fields_set & {"offered_to", "isolated", "filtered"}):
            raise ValueError("nothing to change")
        return self


class ResourceInput(Input):
    """Add a resource that hosts offer and VMs hold, such as GPUs."""

    name: Name
    unit: str = Field(
        "units",
        min_length=1,
        max_length=32,
        pattern=patterns.UNIT,
        description="What one of it is, such as `GPUs` or `Mbit/s`; amounts are whole numbers.",
    )


class ResourceChange(Input):
    """Change a resource."""

    overhead_per_vm: Amount = Field(description="Amount that each VM holds beyond its type.")


class ImagesQuery(PageQuery):
    """Selects images."""

    name: Name | None = None
    include_removed: bool = Field(
        default=False, description="Also removed images, and failed ones that a newer one replaced."
    )


#: Lines of printable characters; their content is checked later.
ImageSignature = Annotated[str, Field(pattern=patterns.SIGNATURE)]


class ImageUpload(BaseModel):
    """Describes an uploaded image."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    format: Literal["qcow2", "raw"]
    seed_kind: Literal["none", "nocloud"] = "none"
    min_memory_mib: Annotated[int, Field(ge=0, le=1_000_000_000)] = 0
    sha256: Annotated[str, Field(pattern=patterns.SHA256)] | None = Field(
        None, description="Expected SHA-256 of the content."
    )
    source: Annotated[str, Field(pattern=patterns.SOURCE)] = Field(
        "uploaded", description="Origin to show, such as a file name."
    )
    signature: ImageSignature | None = Field(
        None, description="Contents of the signature file, by minisign or `cosign sign-blob`."
    )


class ImageInput(Input):
    """Have a worker download an image."""

    name: Name
    url: Uri = Field(description="Must be within the URLs that the operator allows.")
    sha256: Annotated[str, Field(pattern=patterns.SHA256)] = Field(
        description="Expected SHA-256 of the content."
    )
    signature: ImageSignature | None = Field(
        None,
        description="Contents of the signature file, by minisign or `cosign sign-blob`. If"
        " images must be"
        " signed, null downloads it from the image's URL with .minisig or .sig appended.",
    )
    format: Literal["qcow2", "raw"] = "qcow2"
    seed_kind: Literal["none", "nocloud"] = "none"
    min_memory_mib: Annotated[int, Field(ge=0, le=1_000_000_000)] = 0


class ImageCopies(BaseModel):
    """All copies of an image: at most one per host."""

    items: list[ImageCopy]
