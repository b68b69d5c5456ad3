"""Images and their copies on hosts: frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from registry.lifecycle import CopyState, ImageState

ImageFormat = Literal["qcow2", "raw"]


SeedKind = Literal["none", "nocloud"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewImage:
    """An image to register: the properties that its content does not have."""

    name: str
    format: ImageFormat
    seed_kind: SeedKind = "none"
    min_memory_mib: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One revision of an image, the backing file of VMs' disks."""

    id: UUID
    name: str
    revision: int
    state: ImageState
    sha256: str
    format: ImageFormat
    seed_kind: SeedKind  #: how its guests get their name, keys and address
    min_memory_mib: int  #: memory that a VM with it needs; 0 if unknown
    size_bytes: int | None  #: size of the file; None until it is in the store
    virtual_size_bytes: int | None  #: virtual size of the disk
    source: str | None  #: the file's name or the URL that it came from; shown to operators
    received_bytes: int  #: bytes received by an import under way
    last_error: str | None
    created_at: datetime
    removed_at: datetime | None
    signed_by: str | None = None  #: operators' key that verified the signature
    held_at: datetime | None = None  #: when the image was put on hold, so that it goes to no host
    held_reason: str | None = None

    @property
    def reference(self) -> str:
        """``NAME:REVISION``: the reference to this revision and no later one."""
        return f"{self.name}:{self.revision}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageCopy:
    """The copy of an image on one host."""

    id: UUID
    host: str
    image: str  #: reference of the image
    state: CopyState
    disk_gib: int  #: GiB of the host's disk that it takes
    uploaded_bytes: int
    size_bytes: int
    attempts: int
    last_error: str | None
    present_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildImage:
    """The copy on a VM's host that is the backing file of the VM's disk."""

    reference: str
    format: ImageFormat
    seed_kind: SeedKind
    volume: str
