"""Print what each process of a site takes, by number of hosts.

    python -m benchmarks.site.sizing [--hosts 10,100,1000] [--seconds 60]

Two sites per size, each with its own PostgreSQL (fsync on) and Redis, one of each process, polls
each 10 s and slots each 10 s. *polled*: hosts are worlds of libvirt's test driver without VMs, and
all that happens is polling. *busy*: rows of hosts that run eight VMs each, which no monitor polls,
and in each slot a request for one VM per ten hosts comes; no worker builds, so the rounds alone
write. ``MiB`` is the memory of a process and its children, with what they share counted once
(PSS), ``CPU s/min`` their processor time. ``statements``, ``commits`` and ``WAL MiB`` are
PostgreSQL's, in a minute; ``by poll`` and ``by slot`` the processor time of the monitor and of
the control centre with all their children, in milliseconds.

Memory, statements and processor time hardly depend on what else the machine does.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg

from benchmarks import registered
from benchmarks.kit import parser, unless
from benchmarks.processor import descendants_cpu_s
from registry import upgrade
from tests.chaos.processes import Managed, fuga_command, inherited
from tests.servers.postgres import (
    DURABLE,
    RUN_ROLE,
    PostgresServer,
    as_run_role,
    postgres_server,
    why_not,
)
from tests.servers.redis_server import redis_server
from tests.servers.running import eventually

PROCESSES: Final = ("api", "control", "monitor", "worker")
VMS_PER_HOST: Final = 8
HOSTS_PER_VM_ASKED: Final = 10
SLOT_S: Final = 10.0
WAIT_S: Final = 900.0
_STATEMENTS: Final = "-c shared_preload_libraries=pg_stat_statements"
_COUNTS: Final = """
    SELECT (SELECT sum(calls) FROM pg_stat_statements JOIN pg_database ON dbid = pg_database.oid
            WHERE datname = current_database())::float8,
        (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database())::float8,
        pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8,
        pg_database_size(current_database())::float8
"""
_POLLED: Final = "SELECT count(*) FROM hosts WHERE last_polled_at IS NOT NULL"
_ROUNDS: Final = "SELECT count(*) FROM rounds"


@dataclass(frozen=True, slots=True, kw_only=True)
class MinuteLoad:
    """The resources that a site used in a minute."""

    pss_mib: Mapping[str, float]
    cpu_s: Mapping[str, float]
    database_cpu_s: float
    statements: float
    commits: float
    wal_mib: float
    size_mib: float
    rounds: int


@unless(why_not)
def main(argv: Sequence[str] | None = None) -> None:
    hosts = ([10, 100, 1000], "how many, commas between")
    given = parser(__doc__, hosts=hosts, seconds=(60.0, "of each measurement")).parse_args(argv)
    columns = [f"{name:>9}" for name in PROCESSES]
    print(f"{'hosts':>6}  {'site':<7}{'':<11}{''.join(columns)}{'PostgreSQL':>12}")
    for count in given.hosts:
        show(count, "polled", polled(count, given.seconds))
        show(count, "busy", busy(count, given.seconds))


def show(hosts: int, site: str, seen: MinuteLoad) -> None:
    for what, values in (("MiB", seen.pss_mib), ("CPU s/min", seen.cpu_s)):
        cells = [f"{values[name]:>9.1f}" if name in values else f"{'-':>9}" for name in PROCESSES]
        database = f"{seen.database_cpu_s:>12.1f}" if what != "MiB" else ""
        print(f"{hosts:>6}  {site:<7}{what:<11}{''.join(cells)}{database}")
    by_poll = 1000 * seen.cpu_s.get("monitor", 0) / (hosts * 60 / 10)
    by_slot = 1000 * seen.cpu_s["control"] / (60 / SLOT_S)
    one = f"by poll {by_poll:.1f} ms" if "monitor" in seen.cpu_s else f"by slot {by_slot:.0f} ms"
    print(
        f"{hosts:>6}  {site:<7}in a minute: {seen.statements:.0f} statements, {seen.commits:.0f}"
        f" commits, {seen.wal_mib:.2f} MiB WAL, {seen.rounds} rounds; {one}; database"
        f" {seen.size_mib:.0f} MiB",
        flush=True,
    )


def polled(hosts: int, seconds: float) -> MinuteLoad:
    """Measure a site whose hosts are polled and run nothing."""
    with site() as (url, folder, server):
        registered.register_worlds(url, hosts, folder)
        with running(PROCESSES, url, folder) as processes, registered.connected(url) as connection:
            connection.autocommit = True
            eventually(lambda: _count(connection, _POLLED) == hosts, within_s=WAIT_S)
            return taken(processes, connection, server, seconds, lambda: None)


def busy(hosts: int, seconds: float) -> MinuteLoad:
    """Measure a site that gets requests in each slot."""
    with site() as (url, folder, server):
        loaded = registered.load(url, hosts=hosts, running=VMS_PER_HOST * hosts)
        some = ("api", "control")
        with running(some, url, folder) as processes, registered.connected(url) as connection:
            connection.autocommit = True

            def ask() -> None:
                registered.ask(loaded, max(1, hosts // HOSTS_PER_VM_ASKED))

            before = _count(connection, _ROUNDS)
            ask()
            eventually(lambda: _count(connection, _ROUNDS) > before, within_s=WAIT_S)
            return taken(processes, connection, server, seconds, ask)


@contextmanager
def site() -> Iterator[tuple[str, Path, PostgresServer]]:
    """Start PostgreSQL and make a register center."""
    with (
        tempfile.TemporaryDirectory(prefix="fuga-sizing-") as folder,
        postgres_server(f"{DURABLE} {_STATEMENTS}", on_disk=True) as server,
        server.database() as url,
    ):
        name = url.partition("?")[0].rpartition("/")[2]
        server.run("CREATE EXTENSION pg_stat_statements", name)
        upgrade(url)
        server.run(RUN_ROLE, name)
        yield url, Path(folder), server


@contextmanager
def running(names: Sequence[str], url: str, folder: Path) -> Iterator[dict[str, Managed]]:
    """Run one process of each kind, as the role of processes."""
    with ExitStack() as stack:
        broker = stack.enter_context(redis_server(folder))
        env = {
            **inherited(),
            "FUGA_STATE_DIR": str(folder),
            "FUGA_DATABASE_URL": as_run_role(url),
            "FUGA_BROKER_URL": broker.url,
            "FUGA_LISTEN": "127.0.0.1:0",
            "FUGA_SLOT_LENGTH_S": str(SLOT_S),
            "FUGA_LOG_LEVEL": "error",
            "FUGA_LOG_FORMAT": "json",
        }
        found = {}
        for name in names:
            process = Managed(name, fuga_command(name), folder / f"{name}.log", env=env, ready="")
            process.start()
            stack.callback(process.close)
            found[name] = process
        yield found


def taken(
    processes: Mapping[str, Managed],
    connection: psycopg.Connection[Any],
    server: PostgresServer,
    seconds: float,
    ask: Any,
) -> MinuteLoad:
    """Measure a site for some seconds after a warm-up, with one request in each slot."""
    _for(2 * SLOT_S, ask)
    before, counts = _cpu(processes, server), _counts(connection)
    rounds = _count(connection, _ROUNDS)
    began = time.monotonic()
    _for(seconds, ask)
    minutes = (time.monotonic() - began) / 60
    after, counts_after = _cpu(processes, server), _counts(connection)
    grown = [(late - early) / minutes for early, late in zip(counts, counts_after, strict=True)]
    cpu_s = {name: (after[name] - before[name]) / minutes for name in after}
    database_cpu_s = cpu_s.pop("database")
    return MinuteLoad(
        pss_mib={name: _pss_mib(each.pid) for name, each in processes.items()},
        cpu_s=cpu_s,
        database_cpu_s=database_cpu_s,
        statements=grown[0],
        commits=grown[1],
        wal_mib=grown[2] / 2**20,
        size_mib=counts_after[3] / 2**20,
        rounds=round((_count(connection, _ROUNDS) - rounds) / minutes),
    )


def _for(seconds: float, ask: Any) -> None:
    ends_at = time.monotonic() + seconds
    while (left_s := ends_at - time.monotonic()) > 0:
        ask()
        time.sleep(min(left_s, SLOT_S))


def _cpu(processes: Mapping[str, Managed], server: PostgresServer) -> dict[str, float]:
    found = {name: descendants_cpu_s(each.pid) for name, each in processes.items()}
    return found | {"database": descendants_cpu_s(server.pid)}


def _counts(connection: psycopg.Connection[Any]) -> list[float]:
    row = connection.execute(_COUNTS).fetchone()
    assert row is not None
    return [float(each) for each in row]


def _count(connection: psycopg.Connection[Any], statement: str) -> int:
    row = connection.execute(statement.encode()).fetchone()
    assert row is not None
    return int(row[0])


def _pss_mib(pid: int) -> float:
    total, left = 0, [pid]
    while left:
        each = left.pop()
        with contextlib.suppress(OSError):  # it ended just now
            for line in Path(f"/proc/{each}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
            for task in Path(f"/proc/{each}/task").glob("*/children"):
                left += [int(child) for child in task.read_text().split()]
    return total / 1024


if __name__ == "__main__":
    main()
