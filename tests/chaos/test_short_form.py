"""A whole site is struck where it hurts, each kind of part at least once, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import cluster
from tests.chaos import faults
from tests.chaos.run import run
from tests.chaos.site import running_site
from tests.servers.postgres import programs

pytestmark = [pytest.mark.postgresql, pytest.mark.qemu, pytest.mark.slow, pytest.mark.alone]

# Those of a batch strike at once: what each waits for is most of the time that it takes.
BATCHES = (
    (
        faults.WorkerStoppedInside,
        faults.NetworkCutUntilFenced,
        faults.LeaderPaused,
        faults.BrokerKilled,
        faults.ApiKilled,
    ),
    (
        faults.WorkerStruck,
        faults.DestinationDaemonKilled,
        faults.DatabaseCrashedMoving,
        faults.MonitorKilled,
        faults.TasksRepeated,
    ),
    (
        faults.BrokerStopped,
        faults.DatabaseStopped,
        faults.WorkerStoppedOnTheWay,
        faults.ApiPaused,
        faults.DaemonFrozen,
    ),
    (faults.TasksDelayed, faults.SourceOff, faults.GuestFrozen, faults.PoolFull),
)
#: Without these a run would have tried nothing.
TRIED = (
    *("accepted", "moves accepted", "spot VMs asked for"),
    *("live moves moved", "reservations asked for"),
    *("counts heard of guests", "disks with counts"),
    *("elastic requests scaled", "VMs borrowed", "rounds with a memory", "months closed"),
)
SEED = 1


def test_nothing_is_lost_whatever_is_struck(tmp_path: Path) -> None:
    for batch in BATCHES:
        parts = [part for fault in batch for part in fault.strikes]
        assert len({*parts}) == len(parts), f"two strike one part: {batch}"
    if programs() is None:
        pytest.skip("PostgreSQL is not installed: make install installs it")
    if reason := cluster.real_hosts_obstacle():
        pytest.skip(f"no real hosts here: {reason}")

    with running_site(keep=tmp_path / "logs") as site:
        outcome = run(site, BATCHES, SEED, print, volumes=False)

    print(outcome.table())
    assert [str(finding) for finding in outcome.findings] == []
    assert len(outcome.struck) == sum(map(len, BATCHES))
    assert [what for what in TRIED if not outcome.counts[what]] == []
