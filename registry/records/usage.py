"""Usage of resources over time: frozen values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageItem:
    """The usage of one resource, in its unit times seconds, exact to the microsecond."""

    name: str | None  #: of the tenant, group, type or label value; None: no such, or all together
    resource: str  #: "vms" counts VMs
    held: Decimal  #: held by assignments, failed builds and both hosts of a move included
    charged: Decimal  #: held by VMs that were built, each counted once


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The usage of a period; each amount is in one item."""

    since: datetime
    until: datetime  #: the end of the period, or the time of the answer if that was earlier
    by: str | None  #: what the items are by: `tenant`, `group`, `type` or `label:KEY`
    items: Sequence[UsageItem]
