"""Elastic requests: what they may borrow, and for whom borrowed VMs end (ADR 0104)."""

from __future__ import annotations

import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.chaos.findings import Finding, Sql

#: Of an assignment: its VM certainly counts in the share of its tenant.
_SURELY_HELD = ("reserved", "creating", "active")
_TOLERANCE = 1e-9


def check_elastic(sql: Sql, record: Sequence[Mapping[str, Any]]) -> Iterable[Finding]:
    yield from wrong_counts(sql, record)
    yield from placeless_borrowed_vms(sql)
    yield from ends_of_ordinary_vms(sql)
    yield from unfair_ends(sql)


def wrong_counts(sql: Sql, record: Sequence[Mapping[str, Any]]) -> Iterable[Finding]:
    """The bounds of a request are those that its tenant set last, and its VMs are within them."""
    bounds: dict[str, tuple[int, int]] = {}
    body = {each["name"]: each for each in record if each["what"] == "asking"}
    for each in record:
        if each["what"] == "accepted" and body[each["name"]].get("max_count"):
            bounds[each["id"]] = (body[each["name"]]["count"], body[each["name"]]["max_count"])
        if each["what"] == "scaled":
            bounds[each["id"]] = (each["count"], each["max_count"])
    given_back = {each["id"] for each in record if each["what"] == "deleting"}
    for row in sql(
        "SELECT r.id, r.name, r.count, coalesce(r.max_count, r.count) AS most,"
        " count(v.id) FILTER (WHERE NOT v.borrowed) AS ordinary,"
        " count(v.id) FILTER (WHERE v.borrowed) AS borrowed"
        " FROM requests r LEFT JOIN vms v ON v.request_id = r.id AND v.desired <> 'deleted'"
        " WHERE r.state NOT IN ('released', 'cancelled', 'expired') GROUP BY r.id"
    ):
        key = str(row["id"])
        if key in given_back:
            continue
        if row["ordinary"] != row["count"]:
            yield Finding("wrong count", row["name"], f"{row['ordinary']} VMs of {row['count']}")
        if row["borrowed"] > row["most"] - row["count"]:
            what = f"{row['borrowed']} borrowed VMs, of {row['count']}..{row['most']}"
            yield Finding("borrows too many", row["name"], what)
        if key in bounds and bounds[key] != (row["count"], row["most"]):
            what = f"set to {bounds[key]}, it is {row['count']}..{row['most']}"
            yield Finding("lost bounds", row["name"], what)


def placeless_borrowed_vms(sql: Sql) -> Iterable[Finding]:
    """A borrowed VM is created with its place, and ends when it has none any more."""
    for row in sql(
        "SELECT v.name, v.desired, count(a.id) AS ever FROM vms v"
        " LEFT JOIN assignments a ON a.vm_id = v.id WHERE v.borrowed GROUP BY v.id"
        " HAVING count(a.id) = 0 OR (v.desired <> 'deleted' AND count(a.id)"
        " FILTER (WHERE a.state NOT IN ('released', 'arriving', 'leaving')) = 0)"
    ):
        what = f"{row['desired']}, and had {row['ever']} places before"
        yield Finding("borrowed VM without a place", row["name"], what)


def ends_of_ordinary_vms(sql: Sql) -> Iterable[Finding]:
    """What is neither a spot VM nor borrowed is not ended for anybody."""
    for row in sql(
        "SELECT v.name, e.id FROM events e JOIN vms v ON v.id::text = e.subject_id"
        " WHERE e.kind = 'spot_ending' AND e.event = 'due' AND NOT v.spot AND NOT v.borrowed"
    ):
        yield Finding("ordinary VM ended", row["name"], f"its room was taken at event {row['id']}")


# ---- for whom borrowed VMs end -------------------------------------------------------------


def unfair_ends(sql: Sql) -> Iterable[Finding]:
    """A tenant for which a borrowed VM ends then holds no more than the borrower keeps.

    What tenants hold is taken from the history of the ledger, and who takes from whom from the
    round. A round decides on what it read some time before its commit: here the taker has the
    least, and the borrower the most, that it had since the round before committed.
    """
    rounds = _rounds_that_end_borrowed_vms(sql)
    if not rounds:
        return
    wanted: defaultdict[int, set[str]] = defaultdict(set)
    for row in sql(
        "SELECT id, (data ->> 'round')::bigint AS round, subject_id AS vm FROM events"
        " WHERE kind = 'spot_ending' AND event = 'announced' ORDER BY id"
    ):
        if row["round"] in rounds:
            wanted[row["round"]].add(row["vm"])
            rounds[row["round"]]["at"] = row["id"]
    ledger = _Ledger(sql)
    for number, taken in sorted(rounds.items()):
        announced = [each for each in taken["ends"] if each[0] in wanted[number]]
        if not announced:
            continue
        hosts = {host for _, host, _ in announced}
        let_in = [(request, count) for request, host, count in taken["lets_in"] if host in hosts]
        least, most = ledger.extremes(number, taken["at"])
        lost = {vm for vm, _, _ in announced}
        for vm, _, request in announced:
            taker, borrower = ledger.tenant_of_request[request], ledger.tenant_of_vm[vm]
            if taker == borrower:
                continue
            then = ledger.share(taker, least[taker], let_in)
            keeps = ledger.share(borrower, most[borrower] - lost, taken["given"])
            if then > keeps + _TOLERANCE:
                what = f"{taker} then holds {then:.3f} at least, {borrower} keeps {keeps:.3f}"
                yield Finding("unfair end", vm, f"round {number}: {what} at most")


def _rounds_that_end_borrowed_vms(sql: Sql) -> dict[int, dict[str, Any]]:
    """Return by round the borrowed VMs that it ends, and the requests that it lets in."""
    found: dict[int, dict[str, Any]] = {}
    for row in sql(
        "SELECT i.round, i.inputs, i.outcome, i.packed_outcome FROM round_inputs i WHERE i.round IN"
        " (SELECT (data ->> 'round')::bigint FROM events"
        "  WHERE kind = 'spot_ending' AND event = 'announced')"
    ):
        outcome = row["outcome"] or json.loads(zlib.decompress(row["packed_outcome"]))
        details = outcome["details"].get("borrowed", {})
        if not details.get("ends"):
            continue
        inputs = json.loads(zlib.decompress(row["inputs"]))
        names, snapshot = inputs["names"], inputs["snapshot"]
        borrowed, spot = snapshot["borrowed"], snapshot.get("spot", {})
        requests = [each[0] for each in names["requests"]]
        given = [each for each in outcome["placed"] if not borrowed["asks"][each[0]]]
        given += [*spot.get("kept", ()), *details["lets_in"]]
        given += outcome["details"].get("spot", {}).get("lets_in", ())
        found[row["round"]] = {
            "ends": [
                (names["borrowed"][vm][0], borrowed["host"][vm], requests[request])
                for vm, request in details["ends"]
            ],
            "lets_in": [
                (requests[request], host, count) for request, host, count in details["lets_in"]
            ],
            # What tenants get in this round, or are promised: it counts as theirs.
            "given": [(requests[request], count) for request, _, count in given],
        }
    return found


class _Ledger:
    """Who held which VMs at which moment of the history."""

    def __init__(self, sql: Sql) -> None:
        self.tenant_of_request: dict[str, str] = {}
        self._amounts: defaultdict[str, dict[str, int]] = defaultdict(dict)  #: of a request's VM
        for row in sql(
            "SELECT r.id, t.name AS tenant, d.resource, d.amount FROM requests r"
            " JOIN tenants t ON t.id = r.tenant_id"
            " JOIN vm_type_resources d ON d.vm_type_id = r.vm_type_id"
        ):
            self.tenant_of_request[str(row["id"])] = row["tenant"]
            self._amounts[str(row["id"])][row["resource"]] = row["amount"]
        self.tenant_of_vm: dict[str, str] = {}
        self._request_of_vm: dict[str, str] = {}
        for row in sql(
            "SELECT v.id, v.request_id, t.name AS tenant FROM vms v"
            " JOIN tenants t ON t.id = v.tenant_id WHERE NOT v.spot"
        ):
            self.tenant_of_vm[str(row["id"])] = row["tenant"]
            self._request_of_vm[str(row["id"])] = str(row["request_id"])
        self._pool = {
            row["resource"]: row["amount"]
            for row in sql("SELECT resource, sum(capacity) AS amount FROM inventories GROUP BY 1")
        }
        self._weight = {
            row["name"]: row["weight"] for row in sql("SELECT name, weight FROM tenants")
        }
        self._history = sql(
            "SELECT e.id, e.kind, e.to_state, e.subject_id, a.vm_id AS vm, a.round FROM events e"
            " LEFT JOIN assignments a ON a.id::text = e.subject_id"
            " WHERE e.kind IN ('assignment_state', 'spot_ending') AND e.to_state IS NOT NULL"
            " ORDER BY e.id"
        )

    def extremes(self, number: int, until: int) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
        """Return which VMs each tenant surely held, and perhaps, until an event of a round.

        That is from the last placement by an earlier round on. VMs that end are not held.
        """
        began = max(
            (
                row["id"]
                for row in self._history
                if row["to_state"] == "reserved" and row["round"] < number and row["id"] < until
            ),
            default=0,
        )
        states: defaultdict[str, dict[str, str]] = defaultdict(dict)  #: by VM and assignment
        ending: set[str] = set()
        sure: set[str] | None = None
        possible: set[str] = set()
        for row in self._history:
            if row["id"] > until:
                break
            if row["kind"] == "spot_ending":
                (ending.discard if row["to_state"] == "stays" else ending.add)(row["subject_id"])
            elif row["to_state"] == "released":
                states[str(row["vm"])].pop(row["subject_id"], None)
            else:
                states[str(row["vm"])][row["subject_id"]] = row["to_state"]
            if row["id"] < began:
                continue
            kept = {vm: [*each.values()] for vm, each in states.items() if vm not in ending}
            now = {vm for vm, each in kept.items() if {*each} & {*_SURELY_HELD}}
            sure = now if sure is None else sure & now
            possible |= {vm for vm, each in kept.items() if each}
        return self._by_tenant(sure or set()), self._by_tenant(possible)

    def _by_tenant(self, vms: set[str]) -> dict[str, set[str]]:
        found: defaultdict[str, set[str]] = defaultdict(set)
        for vm in vms:
            if vm in self.tenant_of_vm:
                found[self.tenant_of_vm[vm]].add(vm)
        return found

    def share(self, tenant: str, vms: Iterable[str], given: Iterable[tuple[str, int]]) -> float:
        """Return the dominant share per weight of VMs and of what a tenant's requests are given."""
        held: Counter[str] = Counter()
        for vm in vms:
            held.update(self._amounts[self._request_of_vm[vm]])
        for request, count in given:
            if self.tenant_of_request[request] == tenant:
                held.update({name: count * n for name, n in self._amounts[request].items()})
        largest = max((held[each] / pool for each, pool in self._pool.items() if pool), default=0.0)
        return float(largest) / float(self._weight[tenant])
