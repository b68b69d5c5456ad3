"""Print what a sweep of the control centre costs, however much is due, and what expiry holds up.

    python -m benchmarks.sweeps [--due 100,1000,10000] [--requests 20] [--vms 2000] [--repeats 5]

First ``--due`` builds are due, four to a host, with one stop and one removal: ``ms`` is the
least that a sweep took to find what it sends, ``ratio`` that against the first row, ``urgent``
whether it sent the stop and the removal, and these before any build. Then ``--requests``
requests of ``--vms`` running VMs end at the same moment: ``longest`` is the longest transaction of
it, for which everything else that is to be sent waits, ``sweep`` the longest sweep between two of
them.
PostgreSQL is a server of its own with its usual settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from benchmarks.kit import by_clock, parser, unless
from benchmarks.registered import connected, load, tidy
from registry import Registry, VmDesiredEvent, upgrade
from registry.tasks import CREATE, DELETE, SWITCH_POWER, Due
from tests.register import ACTOR
from tests.servers.postgres import DURABLE, postgres_server, why_not

_PER_HOST: Final = 4


@unless(why_not)
def main(argv: Sequence[str] | None = None) -> None:
    given = parser(
        __doc__,
        due=([100, 1000, 10000], "builds, with commas between"),
        requests=(20, "that end together"),
        vms=(2000, "of each of these"),
        repeats=5,
    ).parse_args(argv)
    counts = given.due
    with postgres_server(DURABLE, on_disk=True) as server:
        with server.database() as url:
            show_due(url, counts, given.repeats)
        with server.database() as url:
            show_expiry(url, given.requests, given.vms)


def show_due(url: str, counts: Sequence[int], repeats: int) -> None:
    """Print the time of sweeps as more builds are due."""
    hosts = -(-max(counts) // _PER_HOST)
    upgrade(url)
    load(url, hosts=hosts, running=max(counts) + hosts)
    registry = Registry.connect(url)
    stopped, deleted = _two_that_run(url)
    registry.vms.change_power(stopped, VmDesiredEvent.STOP, actor=ACTOR)
    registry.vms.delete(deleted, actor=ACTOR)
    print(f"{'due':>8}{'ms':>10}{'ratio':>8}{'sent':>7}{'urgent':>9}", flush=True)
    first = None
    for count in counts:
        _have_due(url, count)
        taken = []
        for _ in range(repeats):
            _forget_sent(url)
            found, took_s = by_clock(lambda: registry.assignments.send_due_tasks(waiting={}))
            taken.append(1000 * took_s)
        first = first or min(taken)
        ratio = min(taken) / first
        urgent = "first" if _is_urgent_first(found) else "NOT first"
        print(f"{count:>8}{min(taken):>10.1f}{ratio:>8.2f}{len(found):>7}{urgent:>9}", flush=True)
    registry.close()


def show_expiry(url: str, requests: int, vms: int) -> None:
    """Print how long the expiry of large requests delays other work."""
    upgrade(url)
    load(url, hosts=max(20, requests * vms // 8), running=requests * vms)
    _gather(url, requests, vms)
    registry = Registry.connect(url)
    ended, pieces, sweeps = 0, [], []
    while ended < requests:
        found, took_s = by_clock(registry.requests.expire)
        ended += len(found)
        pieces.append(1000 * took_s)
        sweeps.append(1000 * by_clock(lambda: registry.assignments.send_due_tasks(waiting={}))[1])
    registry.close()
    print(f"{requests} requests of {vms} VMs end: {len(pieces)} transactions,")
    print(
        f"longest {max(pieces):.0f} ms, all {sum(pieces) / 1000:.1f} s; sweep {max(sweeps):.0f} ms"
    )


def _is_urgent_first(found: Sequence[Due]) -> bool:
    tasks = [each.task for each in found]
    return tasks[:2] == [SWITCH_POWER, DELETE] and set(tasks[2:]) == {CREATE}


def _two_that_run(url: str) -> list[Any]:
    """Return two running VMs on hosts that will have no due work."""
    with connected(url) as connection:
        rows = connection.execute("SELECT vm_id FROM assignments ORDER BY id DESC LIMIT 2")
        return [row[0] for row in rows]


def _have_due(url: str, count: int) -> None:
    """Make ``count`` builds due, at most as many on each host as it takes at once."""
    with connected(url) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(
            "WITH numbered AS (SELECT id, vm_id, row_number() OVER"
            " (PARTITION BY host_id ORDER BY id) AS nth FROM assignments WHERE state = 'active'),"
            " taken AS (SELECT * FROM numbered WHERE nth <= %s AND vm_id NOT IN"
            "  (SELECT vm_id FROM power_actions) ORDER BY nth, id LIMIT %s - (SELECT count(*)"
            "  FROM assignments WHERE state = 'reserved')),"
            " absent AS (UPDATE vms SET observed = 'absent' FROM taken WHERE vms.id = taken.vm_id)"
            " UPDATE assignments SET state = 'reserved', activated_at = NULL"
            " FROM taken WHERE assignments.id = taken.id",
            (_PER_HOST, count),
        )
    tidy(url)


def _forget_sent(url: str) -> None:
    with connected(url) as connection:
        for table in ("assignments", "power_actions"):
            connection.execute(f"UPDATE {table} SET sent_at = NULL WHERE sent_at IS NOT NULL")


def _gather(url: str, requests: int, vms: int) -> None:
    """Group running VMs into ``requests`` expired requests."""
    with connected(url) as connection:
        connection.execute(
            "WITH kept AS (SELECT id, row_number() OVER (ORDER BY id) - 1 AS nth FROM requests"
            " ORDER BY id LIMIT %(requests)s), numbered AS (SELECT id, (row_number() OVER"
            " (ORDER BY id) - 1) / %(vms)s AS nth FROM vms) UPDATE vms SET request_id = kept.id"
            " FROM numbered, kept WHERE numbered.id = vms.id AND kept.nth = numbered.nth",
            {"requests": requests, "vms": vms},
        )
        connection.execute(
            "UPDATE requests SET count = %s, expires_at = now() WHERE id IN"
            " (SELECT request_id FROM vms)",
            (vms,),
        )
    tidy(url)


if __name__ == "__main__":
    main()
