"""The inputs of waiting-time forecasts: frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from registry.records.cluster import ClusterView, RequestView


@dataclass(frozen=True, slots=True, kw_only=True)
class LivingVms:
    """VMs of one request that hold room on one host, and were first placed at one time."""

    host_id: UUID
    tenant_id: UUID
    request_id: UUID
    vm_type_id: UUID
    placed_at: datetime
    ends_at: datetime | None  #: announced end, or that of their request; None: neither
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PastLife:
    """VMs of one request that were placed and ended together, or still live."""

    tenant_id: UUID
    vm_type_id: UUID
    lived_s: float  #: seconds of life, until now for VMs that still live
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentRequest:
    """VMs that were recently requested together."""

    kind: int  #: an index of `ForecastInputs.kinds`
    requested_at: datetime
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastInputs:
    """The cluster, what runs on it and for how long, and what happened to VMs before."""

    cluster: ClusterView
    living: tuple[LivingVms, ...]
    lives: tuple[PastLife, ...]
    kinds: tuple[RequestView, ...]  #: kinds of recent requests, each of one VM
    came: tuple[RecentRequest, ...]  #: recent requests, by time
    came_since: datetime  #: start of the period of `came`
    ends: Mapping[UUID, datetime]  #: end times of open requests, by request
    demand: Mapping[UUID, tuple[int, ...]]  #: demand of one VM, by type
    #: by names of types, which may have several revisions
    vm_types: Mapping[UUID, str]
    slot_length_s: float | None  #: None if no slot was decided yet
    inputs: bytes | None  #: inputs of the latest round, which name the policy; None if not kept
