"""Print how long a commit takes while more VMs wait than it places.

    python -m benchmarks.backlog [--waiting 10,100,1000,5000] [--repeats 7]

Twenty requests, of each of which one VM is placed while ``--waiting`` others wait: medians of the
repeats in seconds of the clock, behind each the ratio to the fewest. PostgreSQL is a
server of its own with its usual settings (fsync on).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

from benchmarks.kit import by_clock, parser
from benchmarks.registry import a_database
from registry import Registry
from registry.requests import WaitingStatus
from registry.rounds import Placement
from tests.register import a_commit, add_host, add_request, add_tenant, add_vm_type, take_lease
from tests.servers.postgres import why_not

REQUESTS: Final = 20
DATABASES: Final = ("SQLite", "PostgreSQL")


def main(argv: Sequence[str] | None = None) -> None:
    given = parser(
        __doc__, waiting=([10, 100, 1000, 5000], "of each request"), repeats=7
    ).parse_args(argv)
    sizes = given.waiting
    print(f"One VM of each of {REQUESTS} requests is placed, seconds (times the fewest)")
    print(f"{'waiting':<12}" + "".join(f"{size * REQUESTS:>16,}" for size in sizes))
    for name in DATABASES:
        if name == "PostgreSQL" and (reason := why_not()):
            print(f"{name:<12} not here: {reason}")
            continue
        taken = []
        for size in sizes:
            with a_database(name) as url:
                taken.append(measure(url, size, given.repeats))
        cells = [f"{seconds:.4f} ({seconds / taken[0]:.2f})" for seconds in taken]
        print(f"{name:<12}" + "".join(f"{cell:>16}" for cell in cells), flush=True)


def measure(url: str, waiting: int, repeats: int) -> float:
    """Return the seconds of a commit."""
    registry = Registry.connect(url)
    add_vm_type(registry)
    add_tenant(registry)
    room = REQUESTS * repeats
    host = add_host(registry, "h1", vcpus=room, memory_mib=3072 * room, disk_gib=15 * room)
    requests = [add_request(registry, waiting + repeats, name=f"r{n}") for n in range(REQUESTS)]
    lease = take_lease(registry, length_s=3600)
    parts = tuple(Placement(request_id=each.id, host_id=host.id, count=1) for each in requests)
    taken = []
    for _ in range(repeats):
        why = {each.id: WaitingStatus(count=waiting, reason="no_room") for each in requests}
        version = registry.hosts.get("h1").version
        commit = a_commit(lease, parts, {host.id: version}, waiting=why)
        placed, seconds = by_clock(lambda commit=commit: registry.rounds.commit_round(commit))
        assert len(placed.assignment_ids) == REQUESTS
        taken.append(seconds)
    registry.close()
    return statistics.median(taken)


if __name__ == "__main__":
    main()
