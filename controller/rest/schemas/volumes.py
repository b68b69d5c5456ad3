"""Schemas of volumes."""

from __future__ import annotations

import dataclasses
from typing import Annotated
from uuid import UUID

from pydantic import Field

from controller.rest.schemas.values import Input, Name, SearchQuery
from registry import VolumeState
from registry.db import FieldRole
from registry.volumes import MAX_SIZE_GIB, serial_of_volume
from registry.volumes import Volume as StoredVolume


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Volume(StoredVolume):
    """A disk that outlives VMs. Its VM and host are those of its present state."""

    serial: Annotated[
        str,
        FieldRole.OBSERVED,
        Field(description="In a guest, the disk is /dev/disk/by-id/virtio-SERIAL."),
    ]

    @classmethod
    def of(cls, stored: StoredVolume) -> Volume:
        """Return a volume of the register center with its serial number."""
        values = {each.name: getattr(stored, each.name) for each in dataclasses.fields(stored)}
        return cls(**values, serial=serial_of_volume(stored.id))


class VolumeInput(Input):
    """Create a volume. It takes room on a host from its first attachment on."""

    name: Name
    size_gib: Annotated[int, Field(ge=1, le=MAX_SIZE_GIB)]
    tenant: Name | None = Field(
        None, description="Required for operators; a tenant may name itself."
    )


class VolumeChange(Input):
    """Change a volume."""

    protected: bool = Field(description="Whether its removal is refused.")


class VolumeAttachInput(Input):
    """Attach a volume to a VM of its tenant."""

    vm: UUID = Field(strict=False)


class VolumeDetachInput(Input):
    """Detach a volume from its VM."""


class VolumesQuery(SearchQuery):
    """Selects volumes."""

    tenant: Name | None = None
    name: Name | None = None
    vm: Annotated[UUID, Field(description="Only volumes of this VM.")] | None = None
    host: Name | None = Field(None, description="Only volumes whose file is on this host.")
    state: VolumeState | None = Field(None, description="Omitted: all but removed volumes.")
