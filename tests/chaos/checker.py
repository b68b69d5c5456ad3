"""Looks for what must not be: reads the database by SQL, hosts by virsh, and the tenants' record.

Nothing of the product is imported here: what it promises is stated once more.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.chaos import look, moved, signs
from tests.chaos.checks import elastic, proofs, volumes
from tests.chaos.clock import true_time
from tests.chaos.findings import Finding, HostSeen, Sql
from tests.chaos.guests import volume_file
from tests.chaos.tables import FIRST, MACHINES

#: What begins to hold capacity, and what ends it; in between it stays the same.
_SIGN_OF_HOLD = {"reserved": 1, "arriving": 1, "released": -1}
_OVER = ("released", "cancelled", "expired")


def seen_by_virsh(hosts: Mapping[str, tuple[str, Path]]) -> list[HostSeen]:
    """Look at hosts, of each its socket and the folder of its pool."""
    found = []
    for name, (uri, pool) in hosts.items():
        domains = look.domains(uri)
        found.append(
            HostSeen(
                name=name,
                domains=domains,
                volumes=frozenset(look.volumes(uri)),
                disks=look.disks(pool),
                attached={each: look.attached_disks(uri, each) for each in domains},
            )
        )
    return found


def check(
    sql: Sql, hosts: Sequence[HostSeen], record: Sequence[Mapping[str, Any]]
) -> list[Finding]:
    """Return everything that is wrong at a time when nothing is under way any more."""
    return [
        *lost_requests(sql, record),
        *unsettled_requests(sql),
        *misplaced_vms(sql, hosts),
        *leftover_volumes(sql, hosts),
        *moved.unfinished_moves(sql),
        *moved.lost_moves(sql, record),
        *moved.damaged_disks(sql, hosts, record),
        *untidy_register(sql),
        *overcommitted(sql),
        *promised_twice(sql),
        *placed_twice(sql),
        *illegal_steps(sql),
        *unfenced(sql, record),
        *elastic.check_elastic(sql, record),
        *volumes.check_volumes(sql, hosts, record),
        *proofs.check_months(sql, record),
        *told_by_record(record),
        *invisible_faults(sql, record),
        *unmeasured_faults(record),
    ]


# ---- requests ------------------------------------------------------------------------


def lost_requests(sql: Sql, record: Sequence[Mapping[str, Any]]) -> Iterable[Finding]:
    """What tenants were told, against what is registered."""
    rows = sql(
        "SELECT r.id, r.name, r.state, t.name AS tenant,"
        " (SELECT count(*) FROM vms v WHERE v.request_id = r.id) AS vms"
        " FROM requests r JOIN tenants t ON t.id = r.tenant_id"
    )
    by_id = {str(row["id"]): row for row in rows}
    asked = {each["name"]: each for each in record if each["what"] == "asking"}
    accepted = {each["id"]: each for each in record if each["what"] == "accepted"}
    answers = ("accepted", "refused", "not_drawn")
    answered = {each["name"] for each in record if each["what"] in answers}
    for key, told in accepted.items():
        found = by_id.get(key)
        if found is None:
            yield Finding("lost request", told["name"], f"{key} was accepted and is not there")
        elif (found["name"], found["tenant"]) != (told["name"], told["tenant"]):
            yield Finding("lost request", told["name"], f"{key} is {found['name']} now")
        elif (
            asked[told["name"]].get("max_count") is None
            and found["vms"] != asked[told["name"]]["count"]
        ):
            yield Finding("lost request", told["name"], f"{found['vms']} VMs belong to it")
    for name in asked.keys() - answered:
        yield Finding("lost request", name, "nobody ever answered")
    for name, times in Counter(row["name"] for row in rows).items():
        if times > 1:
            yield Finding("request made twice", name, f"{times} requests of one call")
    for key, row in by_id.items():
        if key not in accepted:
            yield Finding("unknown request", row["name"], "it is there and was not accepted")
    for each in record:
        row = by_id.get(each["id"]) if each["what"] == "deleted" else None
        if row is not None and row["state"] not in _OVER:
            yield Finding("not deleted", row["name"], f"it is {row['state']}")
        if each["what"] in ("refused", "not_deleted"):
            yield Finding("refused", each.get("name") or each["id"], each["said"])


def unsettled_requests(sql: Sql) -> Iterable[Finding]:
    """What has no place has to say why, and nothing may be half done."""
    for row in sql("SELECT name, state, waiting FROM requests"):
        if row["state"] in ("pending", "partly_placed") and not row["waiting"]:
            yield Finding("no reason", row["name"], f"it is {row['state']} and does not say why")
    for row in sql(
        "SELECT a.id, a.state, a.last_error FROM assignments a"
        " WHERE a.state NOT IN ('active', 'released')"
    ):
        yield Finding("unfinished", str(row["id"]), f"{row['state']}: {row['last_error']}")


# ---- hosts ---------------------------------------------------------------------------


def misplaced_vms(sql: Sql, hosts: Sequence[HostSeen]) -> Iterable[Finding]:
    """Each VM that should run runs exactly once, where the ledger says; nothing else is there."""
    ledger = {
        f"fuga-{row['vm']}": row
        for row in sql(
            "SELECT a.vm_id AS vm, h.name AS host, v.desired, v.observed FROM assignments a"
            " JOIN hosts h ON h.id = a.host_id JOIN vms v ON v.id = a.vm_id"
            " WHERE a.state = 'active'"
        )
    }
    places: defaultdict[str, list[str]] = defaultdict(list)
    for host in hosts:
        for name, state in host.domains.items():
            places[name].append(host.name)
            row = ledger.get(name)
            if row is None:
                yield Finding("leftover domain", name, f"{state} on {host.name}, not in the ledger")
            elif row["host"] != host.name:
                yield Finding("wrong host", name, f"on {host.name}, in the ledger {row['host']}")
            elif state != ("running" if row["desired"] == "running" else "shut off"):
                yield Finding(
                    "wrong state",
                    name,
                    f"{state} on {host.name}, wanted {row['desired']}, observed {row['observed']}",
                )
            elif state == "running" and row["observed"] != "running":
                yield Finding("unseen", name, f"it runs and is registered as {row['observed']}")
    for name, where in places.items():
        if len(where) > 1:
            yield Finding("VM twice", name, f"on {' and '.join(where)}")
    for name in ledger.keys() - places.keys():
        yield Finding("missing VM", name, f"{ledger[name]['host']} does not have it")


def leftover_volumes(sql: Sql, hosts: Sequence[HostSeen]) -> Iterable[Finding]:
    wanted = {
        f"fuga-{row['id']}{end}": row["host"]
        for row in sql(
            "SELECT a.id, h.name AS host FROM assignments a JOIN hosts h ON h.id = a.host_id"
            " WHERE a.state = 'active'"
        )
        for end in (".qcow2", "-seed.img")
    } | {
        volume_file(row["id"]): row["host"]
        for row in sql(
            "SELECT d.id, h.name AS host FROM volumes d JOIN hosts h ON h.id = d.host_id"
            " WHERE d.state IN ('available', 'attached')"
        )
    }
    copies = {
        (row["volume"], row["host"])
        for row in sql(
            "SELECT c.volume, h.name AS host FROM image_copies c JOIN hosts h ON h.id = c.host_id"
        )
    }
    found = {(name, host.name) for host in hosts for name in host.volumes} - copies
    for name, host in sorted(found - set(wanted.items())):
        yield Finding("leftover volume", name, f"on {host}")
    for name, host in sorted(set(wanted.items()) - found):
        yield Finding("missing volume", name, f"on {host}")


def untidy_register(sql: Sql) -> Iterable[Finding]:
    for row in sql(
        "SELECT h.name, l.name AS leftover FROM leftovers l JOIN hosts h ON h.id = l.host_id"
    ):
        yield Finding("leftover", row["leftover"], f"still to be removed from {row['name']}")
    for row in sql(
        "SELECT h.name, s.name AS domain FROM strangers s JOIN hosts h ON h.id = s.host_id"
    ):
        yield Finding("stranger", row["domain"], f"on {row['name']}, where all is ours")
    for row in sql(
        "SELECT h.name, i.resource, i.committed, coalesce(sum(r.amount), 0) AS held"
        " FROM inventories i JOIN hosts h ON h.id = i.host_id LEFT JOIN"
        " (SELECT r.host_id, r.resource, r.amount FROM assignment_resources r"
        "  JOIN assignments a ON a.id = r.assignment_id AND a.state <> 'released'"
        "  UNION ALL SELECT host_id, 'disk_gib', size_gib FROM volumes WHERE host_id IS NOT NULL)"
        " r ON r.host_id = i.host_id AND r.resource = i.resource"
        " GROUP BY 1, 2, 3 HAVING i.committed <> coalesce(sum(r.amount), 0)"
    ):
        yield Finding(
            "ledger", f"{row['name']} {row['resource']}", f"{row['committed']} is not {row['held']}"
        )


# ---- history -------------------------------------------------------------------------


def _holds(sql: Sql) -> list[dict[str, Any]]:
    """Begin and end of every hold, in the order in which the database let them happen."""
    return sql(
        "SELECT e.id, e.to_state, a.id AS assignment, a.vm_id AS vm, h.name AS host FROM events e"
        " JOIN assignments a ON e.subject_id = a.id::text JOIN hosts h ON h.id = a.host_id"
        " WHERE e.kind = 'assignment_state'"
        " AND e.to_state IN ('reserved', 'arriving', 'active', 'leaving', 'released')"
        " ORDER BY e.id"
    )


def overcommitted(sql: Sql) -> Iterable[Finding]:
    """No host above its capacity at any moment; what moves holds both its hosts."""
    amounts: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for row in sql("SELECT assignment_id, resource, amount FROM assignment_resources"):
        amounts[str(row["assignment_id"])][row["resource"]] = row["amount"]
    capacity = {
        (row["host"], row["resource"]): row["most"]
        for row in sql(
            "SELECT h.name AS host, i.resource, (coalesce(i.override, i.detected, 0) - i.reserved)"
            " * i.ratio_thousandths / 1000 AS most"
            " FROM inventories i JOIN hosts h ON h.id = i.host_id"
        )
    }
    held: Counter[tuple[str, str]] = Counter()
    for row in _holds(sql):
        sign = _SIGN_OF_HOLD.get(row["to_state"], 0)
        for resource, amount in amounts[str(row["assignment"])].items():
            place = (row["host"], resource)
            held[place] += sign * amount
            if held[place] > capacity[place]:
                yield Finding(
                    "over-committed",
                    f"{row['host']} {resource}",
                    f"{held[place]} of {capacity[place]} at event {row['id']}",
                )


def promised_twice(sql: Sql) -> Iterable[Finding]:
    """Room of reservations is there, for VMs that are reserved, and for no others."""
    for row in sql(
        "SELECT h.name, i.resource, i.capacity, i.committed, sum(k.count * d.amount) AS kept"
        " FROM reservation_holds k JOIN reservations r ON r.id = k.reservation_id"
        " JOIN hosts h ON h.id = k.host_id JOIN inventories i ON i.host_id = h.id"
        " JOIN vm_type_resources d ON d.vm_type_id = r.vm_type_id AND d.resource = i.resource"
        " GROUP BY 1, 2, 3, 4 HAVING i.committed + sum(k.count * d.amount) > i.capacity"
    ):
        yield Finding(
            "promised twice",
            f"{row['name']} {row['resource']}",
            f"{row['kept']} are kept beside {row['committed']} of {row['capacity']}",
        )
    for row in sql(
        "SELECT r.name, r.state, r.count, r.used, coalesce(sum(k.count), 0) AS kept"
        " FROM reservations r LEFT JOIN reservation_holds k ON k.reservation_id = r.id"
        " GROUP BY r.id HAVING r.used + coalesce(sum(k.count), 0) > r.count"
        " OR r.state NOT IN ('accepted', 'in_force') AND coalesce(sum(k.count), 0) > 0"
    ):
        yield Finding(
            "promised twice",
            row["name"],
            f"{row['state']}, {row['used']} used and {row['kept']} kept of {row['count']}",
        )


def placed_twice(sql: Sql) -> Iterable[Finding]:
    """No VM with two places at any moment, nor with two besides its place while it moves."""
    held: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for row in _holds(sql):
        mine, state = held[str(row["vm"])], row["to_state"]
        if state == "released":
            mine.pop(str(row["assignment"]), None)
            continue
        mine[str(row["assignment"])] = state if state in ("arriving", "leaving") else "place"
        roles = Counter(mine.values())
        if max(roles.values()) > 1 or roles.total() > 2:
            yield Finding("VM placed twice", str(row["vm"]), f"{dict(roles)} at event {row['id']}")


def illegal_steps(sql: Sql) -> Iterable[Finding]:
    """Every change of state is in a table, begins where the last one ended, and is the last one."""
    machine_of = {kind: name for name, each in MACHINES.items() for kind in each.kinds}
    now: dict[tuple[str, str], str | None] = {}
    for row in sql(
        "SELECT id, kind, from_state, event, to_state, CASE WHEN kind = 'image_copy_state'"
        " THEN subject_id || ' ' || (data ->> 'host') ELSE subject_id END AS subject_id"
        " FROM events WHERE to_state IS NOT NULL ORDER BY id"
    ):
        machine = machine_of.get(row["kind"])
        step = (row["from_state"], row["event"], row["to_state"])
        text = f"{step[0]} - {step[1]} -> {step[2]} at event {row['id']}"
        if machine is None:
            yield Finding("unknown change", row["subject_id"], f"{row['kind']}: {text}")
            continue
        if step not in MACHINES[machine].steps:
            yield Finding("illegal change", f"{machine} {row['subject_id']}", text)
        subject = (machine, row["subject_id"])
        before = now.get(subject, FIRST[machine])
        if before != row["from_state"]:
            yield Finding(
                "untold change", f"{machine} {row['subject_id']}", f"{before}, then {text}"
            )
        now[subject] = row["to_state"]
    for name, machine_ in MACHINES.items():
        if machine_.stored is None:
            continue
        for row in sql(machine_.stored):
            key, state = (str(each) for each in row.values())
            told = now.get((name, key), FIRST[name])
            if told != state:
                yield Finding("untold change", f"{name} {key}", f"told is {told}, it is {state}")


def unfenced(sql: Sql, record: Sequence[Mapping[str, Any]]) -> Iterable[Finding]:
    """A place is freed under a host that does not answer only after that host was switched off."""
    off_at: defaultdict[str, list[float]] = defaultdict(list)
    for each in record:
        if each["what"] == "switched off":
            off_at[each["host"]].append(each["at"])
    requested_at: dict[str, float] = {}
    fenced: set[str] = set()
    for row in sql(
        "SELECT id, extract(epoch FROM at)::float AS at, kind, subject_id, to_state, event,"
        " data ->> 'name' AS name, data ->> 'host' AS host FROM events"
        " WHERE kind = 'host_fence' OR kind = 'assignment_state' AND event = 'fenced' ORDER BY id"
    ):
        if row["kind"] == "assignment_state":
            if row["host"] not in fenced:
                yield Finding(
                    "not fenced", row["host"], f"it was released from at event {row['id']}"
                )
            continue
        host = row["name"]
        (fenced.add if row["to_state"] == "fenced" else fenced.discard)(host)
        written_at = true_time(row["at"], record)
        if row["event"] == "requested":
            requested_at[host] = written_at
        if row["event"] == "succeeded" and not any(
            requested_at[host] <= at <= written_at for at in off_at[host]
        ):
            yield Finding("not fenced", host, f"nobody switched it off before event {row['id']}")


# ---- what the run itself wrote down ------------------------------------------------------


def told_by_record(record: Sequence[Mapping[str, Any]]) -> Iterable[Finding]:
    for each in record:
        if each["what"] == "twice":
            what = each.get("said", "both say that it runs")
            yield Finding("VM ran twice", each["vm"], f"on {' and '.join(each['hosts'])}: {what}")
        if each["what"] == "over" and each.get("counts"):
            yield Finding("machine counted twice", each["host"], f"as {each['twin']} as well")
        if each["what"] == "failed":
            yield Finding("API failed", each["call"], each["said"])


def invisible_faults(sql: Sql, record: Sequence[Mapping[str, Any]]) -> Iterable[Finding]:
    """Every fault that changed who does what, or what runs, is told of by an event."""
    history = sql(
        "SELECT id, extract(epoch FROM at)::float AS at, actor, kind, subject_id, event, to_state,"
        " reason, data FROM events ORDER BY id"
    )
    epochs = [row["epoch"] for row in sql("SELECT epoch FROM leases WHERE name = 'control'")]
    struck_at = {each["fault"]: each["at"] for each in record if each["what"] == "strike"}
    for each in record:
        if each["what"] == "over":
            struck = struck_at[each["fault"]]
            after = [row for row in history if true_time(row["at"], record) >= struck]
            if missing := _untold_of(each, after, epochs):
                yield Finding("invisible fault", each["kind"], missing)


def _untold_of(
    fault: Mapping[str, Any], after: Sequence[Mapping[str, Any]], epochs: Sequence[int]
) -> str | None:
    """Say what a fault left no trace of; None: nothing that had to be told."""
    if "epoch" in fault and max(epochs, default=0) <= fault["epoch"]:
        return f"nobody took the lease over, its epoch is {epochs} still"
    if "until" in fault:
        states = [
            row["to_state"]
            for row in after
            if row["kind"] == "host_health" and row["data"].get("name") == fault["host"]
        ]
        if not {"unreachable", "down"} & set(states):
            return f"no event says that {fault['host']} was out of reach"
        if "up" not in states:
            return f"no event says that {fault['host']} came back"
    if fault.get("fenced") and not any(
        row["kind"] == "host_fence"
        and row["to_state"] == "fenced"
        and row["data"].get("name") == fault["host"]
        for row in after
    ):
        return f"no event says that {fault['host']} was fenced"
    if fault.get("failed_builds") and not any(
        row["event"] == "failed" and "space" in (row["reason"] or "") for row in after
    ):
        return f"no build failed for want of space: {fault}"
    if "move" in fault and not any(
        row["subject_id"] == fault["move"] and row["to_state"] in ("moved", "failed", "cancelled")
        for row in after
    ):
        return f"no event says what became of move {fault['move']}"
    if held := set(fault.get("held", ())):
        others = {row["subject_id"] for row in after if f":{fault['pid']}:" not in row["actor"]}
        if not held & others:
            return f"nobody took over what {fault['process']} held: {sorted(held)}"
    return None


def unmeasured_faults(record: Sequence[Mapping[str, Any]]) -> Iterable[Finding]:
    """Every fault that anybody had to notice shows in metrics, from its strike until all healed.

    A process that was struck did not answer, or started over. Of a server or host that was
    away, others say so.
    """
    reading = signs.Reading()
    shown: dict[int, set[str]] = {}  #: by fault that is not healed yet
    over: dict[int, Mapping[str, Any]] = {}
    for each in [*record, {"what": "healed"}]:
        if each["what"] == "strike":
            shown[each["fault"]] = set()
        elif each["what"] == "over":
            over[each["fault"]] = each
        elif each["what"] == "scrape":
            new = reading.note(each["process"], each)
            shown = {number: labels | new for number, labels in shown.items()}
        elif each["what"] == "healed":
            for number, fault in over.items():
                if missing := signs.missing(fault, shown[number]):
                    yield Finding(
                        "unmeasured fault", fault["kind"], f"no {' and no '.join(missing)}"
                    )
            shown, over = {}, {}
