"""Resources and VM types: frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceDef:
    """One resource: a name, its unit, and its place on the resource axis."""

    name: str
    unit: str
    position: int
    overhead_per_vm: int = 0  #: amount that each VM holds beyond its type


@dataclass(frozen=True, slots=True, kw_only=True)
class VmType:
    """A named resource vector on offer."""

    id: UUID
    name: str
    revision: int
    resources: Mapping[str, int]
    created_at: datetime
    #: upper limits of a VM's load: disk_iops, disk_mib_s, net_mbps; a missing one does not apply
    limits: Mapping[str, int] = field(default_factory=dict)
