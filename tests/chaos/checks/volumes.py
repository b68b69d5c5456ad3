"""Volumes: each is one file, has one VM at most, and every count that a guest wrote on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.chaos.findings import Finding, HostSeen, Sql
from tests.chaos.guests import serial_of, volume_file

_AT_REST = ("unplaced", "available", "attached", "removed")


def check_volumes(
    sql: Sql, hosts: Sequence[HostSeen], record: Sequence[Mapping[str, Any]]
) -> Iterable[Finding]:
    yield from lost_volumes(sql, record)
    yield from torn_attachments(sql, hosts)
    yield from damaged_volumes(sql, hosts, record)


def lost_volumes(sql: Sql, record: Sequence[Mapping[str, Any]]) -> Iterable[Finding]:
    """What tenants were told of volumes, against what is registered."""
    rows = {
        str(row["id"]): row
        for row in sql("SELECT id, name, state, last_error, created_by_request FROM volumes")
    }
    created = {each["id"]: each["name"] for each in record if each["what"] == "volume"}
    removed = {each["id"] for each in record if each["what"] == "volume removed"}
    for key, name in created.items():
        if key not in rows:
            yield Finding("lost volume", name, f"{key} was created and is not there")
        elif (rows[key]["state"] == "removed") != (key in removed):
            what = "its tenant removed it" if key in removed else "nobody removed it"
            yield Finding("lost volume", name, f"it is {rows[key]['state']}, and {what}")
    for key, row in rows.items():
        if key not in created and not row["created_by_request"]:
            yield Finding("unknown volume", row["name"], "it is there and nobody was told")
        if row["state"] not in _AT_REST:
            yield Finding("unfinished volume", row["name"], f"{row['state']}: {row['last_error']}")
    for row in sql(
        "SELECT d.name, v.name AS vm, v.desired, d.state FROM volumes d"
        " JOIN vms v ON v.id = d.bound_vm_id"
        " LEFT JOIN assignments a ON a.vm_id = v.id AND a.state = 'active'"
        " WHERE v.desired = 'deleted' OR a.id IS NOT NULL"
    ):
        what = f"{row['state']}, and VM {row['vm']} ({row['desired']}) waits for it no longer"
        yield Finding("bound volume", row["name"], what)


def torn_attachments(sql: Sql, hosts: Sequence[HostSeen]) -> Iterable[Finding]:
    """A disk is in a domain's two definitions and its emulator's nodes, or in none of them."""
    wanted: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for row in sql(
        "SELECT d.id, d.vm_id AS vm, h.name AS host FROM volumes d JOIN hosts h ON h.id = d.host_id"
        " WHERE d.state = 'attached'"
    ):
        wanted[row["host"], f"fuga-{row['vm']}"].add(serial_of(row["id"]))
    for host in hosts:
        for domain, state in host.domains.items():
            expected = wanted.pop((host.name, domain), set())
            disks = host.attached.get(domain)
            places = {} if disks is None else disks.places(running=state == "running")
            for place, serials in places.items():
                if set(serials) != expected:
                    what = f"{place} has {sorted(serials)}, in the ledger {sorted(expected)}"
                    yield Finding("torn attachment", domain, f"on {host.name}: {what}")
    for (name, domain), serials in wanted.items():
        yield Finding("torn attachment", domain, f"{sorted(serials)}: {name} lacks its domain")


def damaged_volumes(
    sql: Sql, hosts: Sequence[HostSeen], record: Sequence[Mapping[str, Any]]
) -> Iterable[Finding]:
    """A volume has every count of its guests in order, whichever VM wrote it."""
    said: defaultdict[str, set[int]] = defaultdict(set)
    for each in record:
        if each["what"] == "volume counted":
            said[each["serial"]] |= set(each["numbers"])
        if each["what"] == "volume fault":
            yield Finding(each["fault"], each["serial"], each["said"])
    disks = {(host.name, name): host.disks[name] for host in hosts for name in host.disks}
    for row in sql(
        "SELECT d.id, d.name, h.name AS host FROM volumes d JOIN hosts h ON h.id = d.host_id"
        " WHERE d.state IN ('available', 'attached')"
    ):
        counts = disks.get((row["host"], volume_file(row["id"])), ())
        wrong = next((at for at, number in enumerate(counts) if number != at), None)
        if wrong is not None:
            what = "nothing" if counts[wrong] < 0 else counts[wrong]
            yield Finding("gap on a volume", row["name"], f"{what} at {wrong} of {len(counts)}")
        last = max(said[serial_of(row["id"])], default=-1)
        if last >= len(counts):
            what = f"a guest said {last}, it has {len(counts)}"
            yield Finding("lost writes on a volume", row["name"], what)
