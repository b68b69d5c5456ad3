"""Operators' tasks: upgrade, check, back up and purge the register center, and list processes."""

from registry.admin.borrowed_totals import BorrowedTotals
from registry.admin.clock_steps import HELD, LeaseLengths
from registry.admin.fleet import FleetCounts, FleetHost, FleetMoves
from registry.admin.history import (
    HostTransition,
    PastDecision,
    PastHost,
    PastPeriod,
    PastRequest,
    PastVm,
)
from registry.admin.past_tenants import PastQuota, PastStanding, PastTenant
from registry.admin.processes import BEAT_S, LATE_S, is_late
from registry.admin.retention import Periods, PurgeCounts
from registry.lifecycle import WhatIfEvent, WhatIfState
from registry.records.liveness import (
    ClockStep,
    HostPollSummary,
    Liveness,
    ProcessHeartbeat,
    ProcessSettings,
)
from registry.records.what_ifs import WhatIf, WhatIfResult

__all__ = [
    "BEAT_S",
    "HELD",
    "LATE_S",
    "BorrowedTotals",
    "ClockStep",
    "FleetCounts",
    "FleetHost",
    "FleetMoves",
    "HostPollSummary",
    "HostTransition",
    "LeaseLengths",
    "Liveness",
    "PastDecision",
    "PastHost",
    "PastPeriod",
    "PastQuota",
    "PastRequest",
    "PastStanding",
    "PastTenant",
    "PastVm",
    "Periods",
    "ProcessHeartbeat",
    "ProcessSettings",
    "PurgeCounts",
    "WhatIf",
    "WhatIfEvent",
    "WhatIfResult",
    "WhatIfState",
    "is_late",
]
