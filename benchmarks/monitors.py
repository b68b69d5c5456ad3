"""Print what two monitors that share many hosts cost, and how late they look; some hosts hang.

    python -m benchmarks.monitors [--hosts 500,1000,2000] [--interval 10] [--seconds 30]

Hosts are worlds of libvirt's test driver, which live in the processes that look at them; one
in a hundred is an address that takes connections and never speaks, at which libvirt hangs for
good. Two ``fuga monitor`` on a PostgreSQL of its own (fsync on) poll all of them. ``oldest`` is
the oldest report of a host that does not hang, by the database, looked at twice a second;
``late`` how many host-seconds such a report was older than the interval. ``CPU s/s`` is
processor time in a second of both monitors and all their processes, ``ms/look`` the same by
look, and that of PostgreSQL; ``MB`` the memory of all of them: as each counts it (RSS), and
with what they share counted once (PSS). ``takeover`` is the time from a SIGKILL of one monitor
until every host was looked at again since.
"""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg

from benchmarks.kit import a_register, parser, unless
from benchmarks.processor import descendants_cpu_s
from benchmarks.registered import connected, register_worlds
from tests.chaos.processes import Managed, fuga_command, inherited
from tests.servers.postgres import why_not
from tests.servers.running import eventually

MONITORS: Final = 2
ONE_HANGS_IN: Final = 100
WAIT_S: Final = 600.0
_SAMPLE_S: Final = 0.5
_WELL: Final = "SELECT count(*) FROM hosts WHERE uri LIKE 'test:///%'"
_AGES: Final = """
    SELECT coalesce(max(age), 0), count(*) FILTER (WHERE age > %s) FROM (
        SELECT extract(epoch FROM clock_timestamp() - last_polled_at) AS age
        FROM hosts WHERE uri LIKE 'test:///%%') ages
"""
_SINCE: Final = """
    SELECT count(*) FROM hosts
    WHERE uri LIKE 'test:///%%' AND last_polled_at IS NOT NULL AND last_polled_at > %s
"""


@dataclass(frozen=True)
class MonitorsFigures:
    """The figures of two monitors with one number of hosts."""

    oldest_s: float
    late_host_s: float
    looks_per_s: float
    cpu: float  #: seconds of processor time a second
    database_cpu: float
    rss_mb: float
    pss_mb: float
    processes: int
    takeover_s: float


@unless(why_not)
def main(argv: Sequence[str] | None = None) -> None:
    given = parser(
        __doc__,
        hosts=([500, 1000, 2000], "how many, commas between"),
        seconds=(30.0, "of each measurement"),
        interval=(10.0, "seconds between polls"),
    ).parse_args(argv)
    print(f"{MONITORS} monitors, polled each {given.interval:g} s, one in {ONE_HANGS_IN} hangs")
    print(
        f"{'hosts':>6}{'looks/s':>9}{'oldest s':>10}{'late':>6}{'CPU s/s':>9}{'ms/look':>9}"
        f"{'PostgreSQL':>12}{'MB RSS':>8}{'PSS':>6}{'processes':>11}{'takeover s':>12}"
    )
    for count in given.hosts:
        show(count, measured(count, given.interval, given.seconds))


def show(count: int, seen: MonitorsFigures) -> None:
    by_look = 1000 * seen.cpu / seen.looks_per_s
    print(
        f"{count:>6}{seen.looks_per_s:>9.1f}{seen.oldest_s:>10.2f}{seen.late_host_s:>6.0f}"
        f"{seen.cpu:>9.2f}{by_look:>9.2f}{seen.database_cpu:>12.2f}{seen.rss_mb:>8.0f}"
        f"{seen.pss_mb:>6.0f}{seen.processes:>11}{seen.takeover_s:>12.1f}",
        flush=True,
    )


def measured(count: int, interval_s: float, seconds: float) -> MonitorsFigures:
    """Measure two monitors on ``count`` hosts for some seconds, after the first poll of each."""
    with (
        tempfile.TemporaryDirectory(prefix="fuga-bench-") as folder,
        mute_address() as port,
        a_register() as (server, url),
    ):
        postmaster = server.pid
        where = Path(folder)
        register_worlds(url, count, where, lambda number: _uri(number, where, port))
        monitors = [started(number, url, Path(folder), interval_s) for number in range(MONITORS)]
        try:
            return _measured(url, Path(folder), monitors, postmaster, interval_s, seconds)
        finally:
            for monitor in monitors:
                monitor.close()


@contextmanager
def mute_address() -> Iterator[int]:
    """Accept every connection at a loopback port and send nothing; yield the port."""
    kept: list[socket.socket] = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1024)

        def take() -> None:
            while True:
                try:
                    kept.append(listener.accept()[0])
                except OSError:
                    return  # it was closed

        threading.Thread(target=take, daemon=True).start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
    for connection in kept:
        connection.close()


def _uri(number: int, folder: Path, port: int) -> str:
    if number % ONE_HANGS_IN == 1:
        return f"test+tcp://h{number}@127.0.0.1:{port}/default"
    return f"test://{folder}/{number}.xml"


def started(number: int, url: str, folder: Path, interval_s: float) -> Managed:
    """Start a monitor."""
    monitor = Managed(
        f"monitor-{number}",
        fuga_command("monitor"),
        folder / f"monitor-{number}.log",
        env={
            **inherited(),
            "FUGA_STATE_DIR": str(folder),
            "FUGA_DATABASE_URL": url,
            "FUGA_POLL_INTERVAL_S": str(interval_s),
            "FUGA_LOG_LEVEL": "error",
            "FUGA_LOG_FORMAT": "json",
            "FUGA_METRICS_LISTEN": f"unix:{_metrics_of(number, folder)}",
        },
        ready="",
    )
    monitor.start()
    return monitor


def _metrics_of(number: int, folder: Path) -> Path:
    return folder / f"monitor-{number}.sock"


def _measured(
    url: str,
    folder: Path,
    monitors: Sequence[Managed],
    postmaster: int,
    interval_s: float,
    seconds: float,
) -> MonitorsFigures:
    with connected(url) as connection:
        connection.autocommit = True
        [well] = connection.execute(_WELL).fetchone() or (0,)
        eventually(lambda: _seen_since(connection, "-infinity") == well, within_s=WAIT_S)
        time.sleep(interval_s)  # what each has to be known by is known, what hangs is apart
        cpu, database, looks = _cpu_s(monitors), descendants_cpu_s(postmaster), _looks(folder)
        began = time.monotonic()
        oldest_s, late_host_s = _sampled(connection, interval_s, seconds)
        took = time.monotonic() - began
        cpu, database = _cpu_s(monitors) - cpu, descendants_cpu_s(postmaster) - database
        looks = _looks(folder) - looks
        rss_mb, pss_mb, processes = _memory(monitors)
        [now] = connection.execute("SELECT clock_timestamp()::text").fetchone() or ("",)
        killed_at = time.monotonic()
        monitors[0].kill()
        eventually(lambda: _seen_since(connection, now) == well, within_s=WAIT_S, every_s=0.2)
        takeover_s = time.monotonic() - killed_at
    return MonitorsFigures(
        oldest_s=oldest_s,
        late_host_s=late_host_s,
        looks_per_s=looks / took,
        cpu=cpu / took,
        database_cpu=database / took,
        rss_mb=rss_mb,
        pss_mb=pss_mb,
        processes=processes,
        takeover_s=takeover_s,
    )


def _sampled(
    connection: psycopg.Connection[Any], interval_s: float, seconds: float
) -> tuple[float, float]:
    """Return the age of the oldest report, and the seconds of stale reports, summed over hosts."""
    oldest_s = late_host_s = 0.0
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        [age_s, late] = connection.execute(_AGES, [interval_s]).fetchone() or (0, 0)
        oldest_s = max(oldest_s, float(age_s))
        late_host_s += late * _SAMPLE_S
        time.sleep(_SAMPLE_S)
    return oldest_s, late_host_s


def _seen_since(connection: psycopg.Connection[Any], moment: str) -> int:
    [count] = connection.execute(_SINCE, [moment]).fetchone() or (0,)
    return int(count)


def _cpu_s(monitors: Sequence[Managed]) -> float:
    return sum(descendants_cpu_s(monitor.pid) for monitor in monitors)


def _looks(folder: Path) -> int:
    """Return the number of finished polls of both monitors so far."""
    total = 0.0
    for number in range(MONITORS):
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(str(_metrics_of(number, folder)))
            asking.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            metrics = asking.makefile().read()
        total += sum(
            float(line.rpartition(" ")[2])
            for line in metrics.splitlines()
            if line.startswith("fuga_polls_total")
        )
    return int(total)


def _memory(monitors: Sequence[Managed]) -> tuple[float, float, int]:
    """Return the memory of all processes in MB, as RSS and as PSS, and their number."""
    rss_kib = pss_kib = processes = 0
    for monitor in monitors:
        for pid in [monitor.pid, *_children(monitor.pid)]:
            with contextlib.suppress(OSError):  # it ended just now
                fields = dict(
                    line.split(":", 1)
                    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
                )
                rss_kib += int(fields["Rss"].split()[0])
                pss_kib += int(fields["Pss"].split()[0])
                processes += 1
    return rss_kib * 1.024e-3, pss_kib * 1.024e-3, processes


def _children(pid: int) -> list[int]:
    return [
        int(child)
        for task in Path(f"/proc/{pid}/task").glob("*/children")
        for child in task.read_text().split()
    ]


if __name__ == "__main__":
    main()
