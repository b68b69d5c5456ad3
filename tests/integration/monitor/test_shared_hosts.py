"""Several monitors share the hosts, and take over those of one that ends or hangs."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest

from lab.cluster import LabHost
from monitor.host_shards import rendezvous_rank
from registry import HostAdminEvent
from registry.hosts import MonitorRecord
from tests.integration.workers.site import ServiceProcess, Site, open_site
from tests.servers.lab_hosts import driver_hosts  # noqa: F401
from tests.servers.running import eventually

pytestmark = [pytest.mark.sqlite, pytest.mark.test_driver, pytest.mark.slow]

HOSTS = 8
SETTINGS = {"FUGA_POLL_INTERVAL_S": "2", "FUGA_POLL_DEADLINE_S": "2"}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with open_site(tmp_path) as site:
        yield site


@pytest.fixture
def hosts(
    driver_hosts: Callable[[int], list[LabHost]],  # noqa: F811
    site: Site,
) -> list[LabHost]:
    found = driver_hosts(HOSTS)
    for host in found:
        site.add_host(host, reported=False)
    return found


def seen(site: Site, monitor: ServiceProcess) -> MonitorRecord | None:
    ends = f":{monitor.pid}"
    return next((each for each in site.registry.monitors.all() if each.name.endswith(ends)), None)


def watched(site: Site, *monitors: ServiceProcess) -> list[int]:
    """Return how many hosts each looks at; none of one that is not live."""
    found = [seen(site, each) for each in monitors]
    return [each.watched if each is not None and each.is_live else 0 for each in found]


def shares(site: Site, *monitors: ServiceProcess) -> list[int] | None:
    """Return how many hosts fall to each by their common rule; None until all were seen."""
    found = [each.id for each in (seen(site, monitor) for monitor in monitors) if each is not None]
    if len(found) < len(monitors):
        return None
    hosts = site.registry.hosts.all()
    return [sum(rendezvous_rank(host.id, each, found) == 0 for host in hosts) for each in found]


def all_are_looked_at_since(site: Site, moment: datetime, names: set[str]) -> bool:
    return all((site.registry.hosts.get(name).last_polled_at or moment) > moment for name in names)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_hosts_of_a_monitor_that_ends_or_hangs_are_taken_over(
    site: Site, hosts: list[LabHost], how: signal.Signals
) -> None:
    monitors = [site.start("monitor", **SETTINGS) for _ in range(2)]
    # The first one polls all hosts until it knows the second.
    eventually(lambda: watched(site, *monitors) == shares(site, *monitors))
    victim, other = sorted(monitors, key=lambda each: -watched(site, each)[0])
    share = watched(site, victim)[0]
    assert share >= HOSTS / 2

    victim.send(how)
    eventually(lambda: watched(site, victim, other) == [0, HOSTS])

    moment = site.registry.now()
    eventually(lambda: all_are_looked_at_since(site, moment, {host.name for host in hosts}))
    if how == signal.SIGSTOP:
        victim.send(signal.SIGCONT)
        eventually(lambda: watched(site, victim, other) == [share, HOSTS - share])
    # Nothing of it was a host's fault.
    assert {site.registry.hosts.get(host.name).missed_polls for host in hosts} == {0}
    assert [
        event
        for event in site.registry.events.list(kind="host_health", limit=500)
        if event.to_state != "up"
    ] == []


def test_hosts_that_come_drain_and_go_are_noticed_by_whoever_they_fall_to(
    site: Site, hosts: list[LabHost]
) -> None:
    gone, drained, *rest = (host.name for host in hosts)
    site.retire(gone)
    monitors = [site.start("monitor", **SETTINGS) for _ in range(2)]
    eventually(lambda: sum(watched(site, *monitors)) == HOSTS - 1)

    site.registry.hosts.change_admin(drained, HostAdminEvent.DRAIN, actor="test")
    site.add_host(hosts[0], reported=False)
    moment = site.registry.now()
    eventually(lambda: all_are_looked_at_since(site, moment, {gone, drained, *rest}))
    site.retire(rest[0])

    eventually(lambda: any(each.logged("watch_stopped", host=rest[0]) for each in monitors))
    eventually(lambda: sum(watched(site, *monitors)) == HOSTS - 1)
    for monitor in monitors:
        monitor.send(signal.SIGTERM)
        assert monitor.process.wait(30) == 0
    assert site.registry.monitors.all() == ()
