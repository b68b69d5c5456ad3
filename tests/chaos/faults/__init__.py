"""What can go wrong, one class per kind, and in which order it does."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.chaos.faults.fault import ChaosFault
from tests.chaos.faults.hosts import (
    DaemonFrozen,
    DaemonKilled,
    GuestFrozen,
    HostDoubled,
    HostPowered,
    NetworkCut,
    NetworkCutUntilFenced,
    PoolFull,
)
from tests.chaos.faults.moves import (
    INSIDE_MOVES,
    DatabaseCrashedMoving,
    DestinationCut,
    DestinationDaemonFrozen,
    DestinationDaemonKilled,
    DestinationOff,
    LeaderKilledMoving,
    SourceCut,
    SourceDaemonFrozen,
    SourceDaemonKilled,
    SourceOff,
    WorkerKilledOnTheWay,
    WorkerStoppedMoving,
    WorkerStoppedOnTheWay,
    WorkerStruckMoving,
)
from tests.chaos.faults.processes import (
    ApiKilled,
    ApiPaused,
    LeaderKilled,
    LeaderPaused,
    LeaderStruck,
    MonitorKilled,
    MonitorPaused,
    WorkerKilled,
    WorkerPaused,
    WorkerStoppedAtVolume,
    WorkerStoppedInside,
    WorkerStruck,
    WorkerStruckAtVolume,
)
from tests.chaos.faults.servers import (
    Backlog,
    BrokerEmptied,
    BrokerKilled,
    BrokerRestarted,
    BrokerStopped,
    DatabaseClockBack,
    DatabaseCrashed,
    DatabaseDiskFull,
    DatabaseRestarted,
    DatabaseStopped,
    StateDiskFull,
    TasksDelayed,
    TasksRepeated,
)

__all__ = [
    "KINDS",
    "ApiKilled",
    "ApiPaused",
    "Backlog",
    "BrokerEmptied",
    "BrokerKilled",
    "BrokerRestarted",
    "BrokerStopped",
    "ChaosFault",
    "DaemonFrozen",
    "DaemonKilled",
    "DatabaseClockBack",
    "DatabaseCrashed",
    "DatabaseCrashedMoving",
    "DatabaseDiskFull",
    "DatabaseRestarted",
    "DatabaseStopped",
    "DestinationCut",
    "DestinationDaemonFrozen",
    "DestinationDaemonKilled",
    "DestinationOff",
    "GuestFrozen",
    "HostDoubled",
    "HostPowered",
    "LeaderKilled",
    "LeaderKilledMoving",
    "LeaderPaused",
    "LeaderStruck",
    "MonitorKilled",
    "MonitorPaused",
    "NetworkCut",
    "NetworkCutUntilFenced",
    "PoolFull",
    "SourceCut",
    "SourceDaemonFrozen",
    "SourceDaemonKilled",
    "SourceOff",
    "StateDiskFull",
    "TasksDelayed",
    "TasksRepeated",
    "WorkerKilled",
    "WorkerKilledOnTheWay",
    "WorkerPaused",
    "WorkerStoppedAtVolume",
    "WorkerStoppedInside",
    "WorkerStoppedMoving",
    "WorkerStoppedOnTheWay",
    "WorkerStruck",
    "WorkerStruckAtVolume",
    "WorkerStruckMoving",
    "batches",
    "schedule",
]

KINDS: tuple[type[ChaosFault], ...] = (
    ApiKilled,
    WorkerKilled,
    MonitorKilled,
    LeaderKilled,
    ApiPaused,
    WorkerPaused,
    MonitorPaused,
    LeaderPaused,
    WorkerStruck,
    WorkerStoppedInside,
    WorkerStruckAtVolume,
    WorkerStoppedAtVolume,
    LeaderStruck,
    BrokerKilled,
    BrokerStopped,
    BrokerEmptied,
    BrokerRestarted,
    DatabaseRestarted,
    DatabaseCrashed,
    DatabaseStopped,
    Backlog,
    TasksRepeated,
    TasksDelayed,
    NetworkCut,
    NetworkCutUntilFenced,
    DaemonKilled,
    DaemonFrozen,
    HostPowered,
    GuestFrozen,
    PoolFull,
    DatabaseDiskFull,
    StateDiskFull,
    DatabaseClockBack,
    HostDoubled,
    *INSIDE_MOVES,
)


def schedule(
    count: int, seed: int, kinds: Sequence[type[ChaosFault]] = KINDS
) -> list[type[ChaosFault]]:
    """So many kinds in an order drawn from a seed; each comes once before any comes again."""
    rng = random.Random(f"schedule {seed}")
    drawn: list[type[ChaosFault]] = []
    while len(drawn) < count:
        drawn += rng.sample(kinds, len(kinds))
    return drawn[:count]


def batches(kinds: Sequence[type[ChaosFault]], at_once: int) -> list[list[type[ChaosFault]]]:
    """Put faults together that may strike at once: no two of them the same part of the site."""
    left, found = list(kinds), []
    while left:
        batch: list[type[ChaosFault]] = []
        for kind in list(left):
            taken = {part for each in batch for part in each.strikes}
            if len(batch) < at_once and taken.isdisjoint(kind.strikes):
                batch.append(kind)
                left.remove(kind)
        found.append(batch)
    return found
