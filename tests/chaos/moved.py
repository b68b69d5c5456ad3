"""What the checker looks for in what moved: moves, plans of moves, and guests' disks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.chaos.clock import true_time
from tests.chaos.findings import Finding, HostSeen, Sql


def unfinished_moves(sql: Sql) -> Iterable[Finding]:
    """Nothing of a move or of a plan may be half done."""
    for row in sql(
        "SELECT id, state, last_error FROM moves"
        " WHERE state NOT IN ('moved', 'failed', 'cancelled')"
        " OR ended_at IS NULL OR lease_until IS NOT NULL"
    ):
        yield Finding("unfinished move", str(row["id"]), f"{row['state']}: {row['last_error']}")
    for row in sql("SELECT id, kind, state FROM plans WHERE state IN ('pending', 'approved')"):
        yield Finding("unfinished plan", str(row["id"]), f"{row['kind']} is {row['state']}")
    for row in sql(
        "SELECT p.id, count(*) AS left FROM plans p JOIN plan_moves m ON m.plan_id = p.id"
        " WHERE p.state = 'done' AND m.move_id IS NULL AND m.refused IS NULL GROUP BY p.id"
    ):
        yield Finding("unfinished plan", str(row["id"]), f"it is done without {row['left']} moves")


def lost_moves(sql: Sql, record: Sequence[Mapping[str, Any]]) -> Iterable[Finding]:
    """What operators were told is there, and each move says what became of its VM."""
    rows = sql(
        "SELECT m.id, m.vm_id, m.state, EXISTS (SELECT 1 FROM events e"
        " WHERE e.kind = 'assignment_state' AND e.subject_id = m.to_id::text"
        " AND e.event = 'arrived') AS arrived FROM moves m"
    )
    by_id = {str(row["id"]): row for row in rows}
    for each in record:
        if each["what"] == "moving":
            found = by_id.get(each["id"])
            if found is None or str(found["vm_id"]) != each["vm"]:
                yield Finding("lost move", each["id"], "it was accepted and is not there")
    times = Counter(each["id"] for each in record if each["what"] == "moving")
    for key, number in times.items():
        if number > 1:
            yield Finding("lost move", key, f"it is the answer to {number} calls")
    for key, row in by_id.items():
        if (row["state"] == "moved") != row["arrived"]:
            yield Finding(
                "torn move",
                key,
                f"{row['state']}, and its VM {'has' if row['arrived'] else 'has not'} arrived",
            )


def damaged_disks(
    sql: Sql, hosts: Sequence[HostSeen], record: Sequence[Mapping[str, Any]]
) -> Iterable[Finding]:
    """A disk has every count of its guest in order, whatever host it was on, since it was made.

    A VM that a round placed again has a new disk: what was heard before does not count.
    """
    heard = [each for each in record if each["what"] == "counted"]
    made_at = {
        str(row["vm"]): true_time(row["at"], record)
        for row in sql(
            "SELECT DISTINCT ON (a.vm_id) a.vm_id AS vm, extract(epoch FROM e.at)::float AS at"
            " FROM events e JOIN assignments a ON e.subject_id = a.id::text"
            " WHERE e.kind = 'assignment_state' AND e.to_state = 'reserved'"
            " ORDER BY a.vm_id, e.id DESC"
        )
    }
    disks = {(host.name, name): host.disks[name] for host in hosts for name in host.disks}
    for row in sql(
        "SELECT a.id, a.vm_id AS vm, h.name AS host FROM assignments a"
        " JOIN hosts h ON h.id = a.host_id WHERE a.state = 'active'"
    ):
        vm, name = str(row["vm"]), f"fuga-{row['id']}.qcow2"
        counts = disks.get((row["host"], name), ())
        said = {
            number
            for each in heard
            if each["vm"] == vm and each["counted_at"] > made_at.get(vm, 0)
            for number in each["numbers"]
        }
        wrong = next((at for at, number in enumerate(counts) if number != at), None)
        if wrong is not None:
            what = "nothing" if counts[wrong] < 0 else counts[wrong]
            guest = "its guest said it" if wrong in said else "its guest never said it"
            yield Finding("gap on a disk", name, f"{what} at {wrong} of {len(counts)}; {guest}")
        last = max(said, default=-1)
        if last >= len(counts):
            yield Finding("lost writes", name, f"its guest said {last}, it has {len(counts)}")
