"""Print how late a monitor looks at its hosts, one of which is frozen, and what it costs.

    python -m benchmarks.monitor [--hosts 25,50,100,200] [--seconds 20]

Each host is a libvirtd of its own with libvirt's test driver; the last one is stopped
(SIGSTOP), so that calls to it never return. ``fuga monitor`` on a PostgreSQL of its own
(fsync on) polls all of them each 2 s. A report of a host that answers is to get no older
than that: ``gap`` is the time from the end of one look at a host to the end of the next,
over all hosts but the frozen one, and ``late`` how many looks came after more than 2 s.
``CPU s/s`` is processor time in a second, of the monitor's own process and of its
children, which alone call libvirt; ``PostgreSQL`` is what the register center takes
as well. ``bare`` is one thread that looks at the same hosts in turn, as often, by the same
calls, without children, deadlines or a register center, and without the frozen host, at
which it would hang for good. Count on 80 MiB of memory for each host: its libvirtd. Many
more hosts than that are in `benchmarks.monitors`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from benchmarks.kit import a_register, parser, unless
from benchmarks.processor import descendants_cpu_s, family_cpu_s, own_cpu_s
from lab import cluster, driver_hosts, processes
from lab.cluster import LabHost
from registry import Registry
from tests.chaos.processes import Managed, fuga_command, inherited, state_of
from tests.register import add_host
from tests.servers.postgres import why_not
from tests.servers.running import eventually

INTERVAL_S: Final = 2.0
#: Polling period, below the interval so that each report is renewed in time.
PERIOD_S: Final = 1.5
DEADLINE_S: Final = 1.5
WAIT_S: Final = 300.0


@dataclass(frozen=True)
class MonitorFigures:
    """The figures of a monitor with one number of hosts."""

    gaps_s: Sequence[float]
    own_cpu: float  #: seconds of processor time a second
    children_cpu: float
    database_cpu: float
    bare_cpu: float
    looks_per_s: float


@unless(why_not)
def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser(
        __doc__,
        hosts=([25, 50, 100, 200], "how many, commas between"),
        seconds=(20.0, "of each measurement"),
    )
    arguments.add_argument("--bare", nargs="+", help=argparse.SUPPRESS)  # look at these
    given = arguments.parse_args(argv)
    if given.bare is not None:
        look_bare(given.bare, given.seconds)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and the hosts end with us
    print(f"polled each {INTERVAL_S:g} s, one host frozen, {given.seconds:g} s each")
    print(
        f"{'hosts':>6}{'looks/s':>9}{'gap p50 s':>11}{'p99 s':>8}{'max s':>8}{'late':>6}"
        f"{'CPU s/s: own':>14}{'children':>10}{'both':>7}{'PostgreSQL':>12}{'bare':>7}"
    )
    with tempfile.TemporaryDirectory(prefix="fuga-bench-") as folder:
        lab = Path(folder) / "lab"
        try:
            for count in given.hosts:
                show(count, measured(count, lab, Path(folder), given.seconds))
        finally:
            _resume_all(lab)
            cluster.stop_hosts(lab, purge=True)


def show(count: int, seen: MonitorFigures) -> None:
    gaps = sorted(seen.gaps_s)
    late = sum(gap > INTERVAL_S for gap in gaps)
    centiles = statistics.quantiles(gaps, n=100)
    print(
        f"{count:>6}{seen.looks_per_s:>9.1f}{centiles[49]:>11.2f}{centiles[98]:>8.2f}{gaps[-1]:>8.2f}"
        f"{late:>6}{seen.own_cpu:>14.2f}{seen.children_cpu:>10.2f}"
        f"{seen.own_cpu + seen.children_cpu:>7.2f}{seen.database_cpu:>12.2f}{seen.bare_cpu:>7.2f}",
        flush=True,
    )


def measured(count: int, lab: Path, folder: Path, seconds: float) -> MonitorFigures:
    """Measure a monitor on ``count`` hosts for some seconds, after the first poll of each."""
    hosts = cluster.start_test_hosts(count, lab)
    frozen = hosts[-1]
    daemon = processes.running_pid(driver_hosts.started_hosts(lab)[count - 1].daemon_pid)
    assert daemon is not None
    with a_register() as (server, url):
        postmaster = server.pid
        registry = Registry.connect(url)
        for host in hosts:
            add_host(
                registry, host.name, uri=host.uri, pool=host.pool, network=host.network, up=False
            )
        registry.close()
        monitor = Managed(
            "monitor",
            fuga_command("monitor"),
            folder / f"monitor-{count}.log",
            env={
                **inherited(),
                "FUGA_STATE_DIR": str(folder),
                "FUGA_DATABASE_URL": url,
                "FUGA_POLL_INTERVAL_S": str(INTERVAL_S),
                "FUGA_POLL_DEADLINE_S": str(DEADLINE_S),
                "FUGA_METRICS_LISTEN": "127.0.0.1:0",
                "FUGA_LOG_LEVEL": "debug",
                "FUGA_LOG_FORMAT": "json",
            },
            ready="monitor_started",
        )
        monitor.start()
        try:
            monitor.wait_until_ready()
            eventually(lambda: len(_looks(monitor.said())) == count, within_s=WAIT_S, every_s=1.0)
            os.kill(daemon, signal.SIGSTOP)
            eventually(lambda: state_of(daemon) == "T", within_s=WAIT_S)
            time.sleep(2 * INTERVAL_S)  # the frozen one is missed by now
            before = len(monitor.said())
            cpu = own_cpu_s(monitor.pid), family_cpu_s(monitor.pid), descendants_cpu_s(postmaster)
            started = time.monotonic()
            time.sleep(seconds)
            took = time.monotonic() - started
            own, both = own_cpu_s(monitor.pid) - cpu[0], family_cpu_s(monitor.pid) - cpu[1]
            database = descendants_cpu_s(postmaster) - cpu[2]
            said = monitor.said()[before:]
        finally:
            monitor.close()
            os.kill(daemon, signal.SIGCONT)
    looks = _looks(said)
    gaps = [
        later - sooner
        for name, ends in looks.items()
        if name != frozen.name
        for sooner, later in itertools.pairwise(ends)
    ]
    return MonitorFigures(
        gaps_s=gaps,
        own_cpu=own / took,
        children_cpu=(both - own) / took,
        database_cpu=database / took,
        bare_cpu=_bare_cpu(hosts[:-1], seconds),
        looks_per_s=sum(map(len, looks.values())) / took,
    )


def look_bare(uris: Sequence[str], seconds: float) -> None:
    """Poll hosts in turn, as often as the monitor does, and print the processor time."""
    from hypervisor.child.driver import LibvirtHost, start_event_loop  # noqa: PLC0415 - loads libvirt

    start_event_loop()
    hosts = [LibvirtHost(uri) for uri in uris]
    arguments = {"pool": "default-pool", "patience_s": DEADLINE_S}
    for host in hosts:
        host.perform("report", arguments)
    cpu, started = time.process_time(), time.monotonic()
    due = started
    while due < started + seconds:
        time.sleep(max(0.0, due - time.monotonic()))
        for host in hosts:
            host.perform("report", arguments)
        due += PERIOD_S
    print((time.process_time() - cpu) / (time.monotonic() - started))


def _bare_cpu(hosts: Sequence[LabHost], seconds: float) -> float:
    uris = [host.uri for host in hosts]
    command = [sys.executable, "-m", "benchmarks.monitor", "--seconds", str(seconds), "--bare"]
    done = subprocess.run([*command, *uris], check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout)


def _looks(said: str) -> dict[str, list[float]]:
    """Return the end times of the polls of each host, from the monitor's log."""
    ends: defaultdict[str, list[float]] = defaultdict(list)
    for line in said.splitlines():
        if '"looked"' in line and line.endswith("}"):
            entry = json.loads(line)
            ends[entry["host"]].append(datetime.fromisoformat(entry["timestamp"]).timestamp())
    return ends


def _resume_all(lab: Path) -> None:
    """Resume every stopped daemon, as a stopped process could not be terminated."""
    for host in driver_hosts.started_hosts(lab):
        daemon = processes.running_pid(host.daemon_pid)
        if daemon is not None:
            os.kill(daemon, signal.SIGCONT)


if __name__ == "__main__":
    main()
