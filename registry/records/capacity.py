"""Capacity over time, and how much of it was committed, used and waited for: frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPoint:
    """One resource of a class of hosts, or of the site, in an hour or on a day (UTC)."""

    at: datetime  #: the beginning of the hour or day
    resource: str
    samples: int  #: one a minute; fewer where no control centre led, or the class had no hosts
    capacity_mean: int  #: of all hosts that are not retired
    capacity_max: int
    in_service_mean: int  #: of hosts that are active and up
    in_service_max: int
    committed_mean: int  #: held by assignments
    committed_max: int
    used_mean: int | None  #: measured on the hosts; None where nothing is measured
    used_max: int | None
    waiting_mean: int | None  #: demand of VMs that wait for a host; of the site alone
    waiting_max: int | None
