"""Images, and where they are: frozen values."""

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
    """What an operator says of an image; its content says the rest."""

    name: str
    format: ImageFormat
    seed_kind: SeedKind = "none"
    min_memory_mib: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One revision of a disk image that VMs' disks rest on."""

    id: UUID
    name: str
    revision: int
    state: ImageState
    sha256: str
    format: ImageFormat
    seed_kind: SeedKind  #: how its guests get their name, keys and address
    min_memory_mib: int  #: that a VM of it needs; 0: not known
    size_bytes: int | None  #: of the file; None until it is here
    virtual_size_bytes: int | None  #: of the disk in it
    source: str | None  #: the file's name or the URL that it came from; shown to operators
    received_bytes: int  #: of an import under way
    last_error: str | None
    created_at: datetime
    removed_at: datetime | None
    signed_by: str | None = None  #: the operators' key that it was checked with
    held_at: datetime | None = None  #: since when it is brought to no host
    held_reason: str | None = None

    @property
    def reference(self) -> str:
        """``NAME:REVISION``: the reference to this revision and no later one."""
        return f"{self.name}:{self.revision}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageCopy:
    """An image on one host."""

    id: UUID
    host: str
    image: str  #: its reference
    state: CopyState
    disk_gib: int  #: what it takes of the host's disk
    uploaded_bytes: int
    size_bytes: int
    attempts: int
    last_error: str | None
    present_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildImage:
    """The image that a VM's disk rests on, as it lies on the VM's host."""

    reference: str
    format: ImageFormat
    seed_kind: SeedKind
    volume: str
