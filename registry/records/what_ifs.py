"""What-ifs: frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from registry.lifecycle import WhatIfState


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A simulation of the site with something changed, compared with the site as it is."""

    id: UUID
    state: WhatIfState
    arguments: Mapping[str, Any]  #: what is changed, and for how many hours
    requested_by: str
    requested_at: datetime
    began_at: datetime | None
    ended_at: datetime | None
    progress: float  #: simulated part of the time of both runs, 0 to 1
    cancelled_by: str | None
    last_error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfResult(WhatIf):
    """A what-if with its report."""

    report: Mapping[str, Any] | None  #: None if it did not finish
