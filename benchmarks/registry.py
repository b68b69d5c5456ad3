"""Print how long the register center takes over a round: on SQLite and on PostgreSQL.

    python -m benchmarks.registry [--vms 10000] [--hosts 1000] [--repeats 3]

PostgreSQL is a server of its own, started for this with its usual settings
(fsync on), as SQLite is opened as always; compared with SQLite with synchronous=NORMAL, which
syncs no commit and may lose the last ones when power fails. The medians of the repeats, in
seconds: reading the cluster, committing the round's placements, claiming one
build, and one host's report; behind each the ratio to SQLite, and below the
growth from a fifth of the VMs and hosts.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import event

from benchmarks.kit import by_clock, parser
from registry import Registry, upgrade
from registry.rounds import Placement
from tests.register import (
    a_commit,
    a_report,
    add_host,
    add_request,
    add_tenant,
    add_vm_type,
    take_lease,
)
from tests.servers.postgres import DURABLE, postgres_server, why_not

BASE = "SQLite"
UNSYNCED = "SQLite NORMAL"
STEPS = ("read", "commit", "claim", "report")


def main(argv: Sequence[str] | None = None) -> None:
    given = parser(__doc__, vms=10_000, hosts=1_000, repeats=3).parse_args(argv)
    print(f"{given.vms} VMs on {given.hosts} hosts, seconds (times {BASE})")
    print(f"{'':<14}" + "".join(f"{step:>16}" for step in STEPS))
    base: list[float] = []
    for name in (BASE, UNSYNCED, "PostgreSQL"):
        if name == "PostgreSQL" and (reason := why_not()):
            print(f"{name:<14} not here: {reason}")
            continue
        with a_database(name) as url:
            fewer = measure(_opened(url, name), given.vms // 5, given.hosts // 5, given.repeats)
        with a_database(name) as url:
            measured = measure(_opened(url, name), given.vms, given.hosts, given.repeats)
        base = base or measured
        cells = [f"{now:.3f} ({now / of:.1f})" for now, of in zip(measured, base, strict=True)]
        print(f"{name:<14}" + "".join(f"{cell:>16}" for cell in cells), flush=True)
        grown = [f"× {now / then:.1f}" for now, then in zip(measured, fewer, strict=True)]
        print(f"{'':<14}" + "".join(f"{cell:>16}" for cell in grown), flush=True)


@contextmanager
def a_database(name: str) -> Iterator[str]:
    with ExitStack() as stack:
        if name != "PostgreSQL":
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fuga-bench-"))
            url = f"sqlite:///{Path(folder) / 'fuga.db'}"
        else:
            server = stack.enter_context(postgres_server(DURABLE, on_disk=True))
            url = stack.enter_context(server.database())
        upgrade(url)
        yield url


def _opened(url: str, name: str) -> Registry:
    registry = Registry.connect(url)
    if name == UNSYNCED:

        @event.listens_for(registry._database._write, "connect")
        def _relax(connection: Any, _: Any) -> None:
            connection.execute("PRAGMA synchronous = NORMAL").close()

    return registry


def measure(registry: Registry, vms: int, hosts: int, repeats: int) -> list[float]:
    """Return the seconds of a read, a commit, a claim and a report."""
    add_vm_type(registry)
    add_tenant(registry)
    per_host = -(-vms // hosts)
    room = {"vcpus": per_host * repeats, "memory_mib": 3072 * per_host * repeats}
    for number in range(hosts):
        add_host(registry, f"h{number:05}", disk_gib=15 * per_host * repeats, **room)
    lease = take_lease(registry, length_s=3600)
    taken: dict[str, list[float]] = {step: [] for step in STEPS}
    for _ in range(repeats):
        for start in range(0, vms, 1000):
            add_request(registry, min(1000, vms - start))
        view, seconds = by_clock(lambda: registry.rounds.read_cluster(lease))
        taken["read"].append(seconds)
        left = [request.count for request in view.requests]
        parts = []
        for host in view.hosts:
            wanted = per_host
            for index, request in enumerate(view.requests):
                count = min(wanted, left[index])
                if count:
                    parts.append(Placement(request_id=request.id, host_id=host.id, count=count))
                    left[index] -= count
                    wanted -= count
        versions = {host.id: host.version for host in view.hosts}
        commit = a_commit(lease, tuple(parts), versions)
        done, seconds = by_clock(lambda commit=commit: registry.rounds.commit_round(commit))
        taken["commit"].append(seconds)
        assert len(done.assignment_ids) == vms
        for key in done.assignment_ids[:: per_host * 20][:50]:
            _, seconds = by_clock(lambda key=key: registry.assignments.claim_build(key, "w", 60))
            taken["claim"].append(seconds)
        for host in view.hosts[:50]:
            report = a_report(disk_gib=15 * per_host * repeats, **room)
            _, seconds = by_clock(
                lambda host=host, report=report: registry.hosts.record_report(host.id, report)
            )
            taken["report"].append(seconds)
    registry.close()
    return [statistics.median(each) for each in taken.values()]


if __name__ == "__main__":
    main()
