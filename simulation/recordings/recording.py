"""Record a period of the register center as files that a simulation reads.

A study runs on such a recording, not on the register center: its runs read the same,
also when they are resumed a week later, and it can be handed to others.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import shlex
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from registry.admin import HostTransition, PastHost, PastPeriod, PastRequest, PastTenant, PastVm
from registry.requests import MembershipRule, zone_of
from simulation.errors import InputError
from simulation.recordings.pseudonyms import FileNames, trace_seconds
from simulation.topology.hosts import HostEventKind
from simulation.traces.native import COLUMNS


def tree_rows(past: PastPeriod, names: FileNames) -> Iterator[tuple[str, str, float, float]]:
    """Yield parent and weight of tenants and groups of a recording, with the times they hold from.

    The first row of a tenant that came later holds its first parent.
    """
    groups = _ancestor_groups(past.tenants, names)
    for tenant in past.tenants:
        named = _name_in_files(tenant.name, names, groups)
        if named is None:
            continue
        rows = {}  # of two changes in one millisecond the later one counts
        for number, standing in enumerate(tenant.standings):
            parent = "" if standing.parent is None else names.groups.alias_of(standing.parent)
            at_s = trace_seconds(standing.since, past.since) if number else 0.0
            rows[at_s] = (named, parent, standing.weight, at_s)
        yield from rows.values()


def quota_rows(past: PastPeriod, names: FileNames) -> Iterator[tuple[str, str, int | str, float]]:
    """Yield the quotas of a recording's tenants and groups, with the times they hold from."""
    groups = _ancestor_groups(past.tenants, names)
    for quota in past.quotas:
        named = _name_in_files(quota.owner, names, groups)
        if named is None:
            continue
        rows = {max(0.0, trace_seconds(at, past.since)): limit for at, limit in quota.limits}
        for at_s, limit in rows.items():
            if limit is not None or at_s:
                yield named, quota.resource, "" if limit is None else limit, at_s


def _ancestor_groups(tenants: Iterable[PastTenant], names: FileNames) -> frozenset[str]:
    """Return the groups above any tenant of the trace, at any time, directly or indirectly."""
    above: dict[str, set[str]] = {
        tenant.name: {each.parent for each in tenant.standings if each.parent is not None}
        for tenant in tenants
    }
    found: set[str] = set()
    layer = {group for name in above if names.tenants.knows(name) for group in above[name]}
    while layer:
        found |= layer
        layer = {group for name in layer for group in above.get(name, ())} - found
    return frozenset(found)


def _name_in_files(name: str, names: FileNames, groups: frozenset[str]) -> str | None:
    """Return a tenant's or group's name in the recording's files; None if it is in none."""
    if name in groups:
        return names.groups.alias_of(name)
    return names.tenants.alias_of(name) if names.tenants.knows(name) else None


_TRACE, _HOSTS, _WINDOW = "trace.csv", "hosts.json", "window.json"
_TREE, _QUOTAS, _ZONES = "tree.csv", "quotas.csv", "zones.json"
_COLUMNS: Final = tuple(name for name in COLUMNS if name != "vm_type")
_HAPPENINGS: Final = {
    HostTransition.CLOSED: HostEventKind.DRAIN,
    HostTransition.OPENED: HostEventKind.RETURN,
    HostTransition.FENCED: HostEventKind.FAIL,
    HostTransition.RETIRED: HostEventKind.LEAVE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedRounds:
    """The policies and parameters that decided the rounds of a recorded period."""

    source: str  #: where this is known from
    policy: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    slot_length_s: float
    budget_units: int | None
    fairness_memory_s: int = 0  #: half-life of past holdings; 0: they did not count
    zone_policies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The files of a recorded period."""

    folder: Path
    since: str  #: the time 0 of the trace
    until: str
    length_s: float
    hosts_there: int
    vms_running: int  #: at the beginning
    vms_waiting: int  #: at the beginning, without a place
    vms_requested: int  #: later
    groups: int  #: of tenants
    quotas: int
    decided: DecidedRounds

    @property
    def trace(self) -> str:
        """The path of the recorded trace."""
        return str(self.folder / _TRACE)

    @property
    def hosts(self) -> str:
        """The path of the recorded inventory of hosts."""
        return str(self.folder / _HOSTS)

    @property
    def tree(self) -> str:
        """The path of the recorded tree: tenants, in order, with their groups and weights."""
        return str(self.folder / _TREE)

    @property
    def quota_file(self) -> str | None:
        """The path of the recorded quotas; None if there are none."""
        return str(self.folder / _QUOTAS) if self.quotas else None

    @property
    def zones(self) -> str | None:
        """The path of the recorded policies of zones; None if there are none."""
        return str(self.folder / _ZONES) if self.decided.zone_policies else None

    @property
    def began_at_s(self) -> float:
        """When the recorded period began, in seconds since 1970."""
        return datetime.fromisoformat(self.since).timestamp()

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters of the recorded policy, as ``NAME=VALUE``."""
        return tuple(
            f"{name}={json.dumps(value)}" for name, value in self.decided.parameters.items()
        )

    def command(self) -> str:
        """Return the `fuga simulate` command that repeats the recorded rounds."""
        decided = self.decided
        words = ["fuga", "simulate", self.trace, "--hosts", self.hosts, "--tree", self.tree]
        words += ["--quotas", self.quota_file] if self.quota_file else []
        words += ["--zone-policy", self.zones] if self.zones else []
        words += ["--policy", decided.policy, "--slot", f"{decided.slot_length_s:g}"]
        words += [word for parameter in self.parameters for word in ("-p", parameter)]
        words += ["--budget", str(decided.budget_units or 0)]
        if decided.fairness_memory_s:
            words += ["--fairness-memory", str(decided.fairness_memory_s)]
        words += ["--began-at", self.since, "--until", f"{self.length_s:.3f}"]
        return shlex.join(words)


#: Names in recordings of earlier versions, and what they are called now.
_RENAMED: Final = {"vms_asked": "vms_requested", "told_by": "source"}


def _rename_fields(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recording's JSON values with fields by their present names."""
    return {_RENAMED.get(name, name): value for name, value in document.items()}


def read_recording(folder: Path) -> Recording:
    """Read the recording in a folder; raise `InputError` if there is none."""
    path = folder / _WINDOW
    try:
        document = _rename_fields(json.loads(path.read_text(encoding="utf-8")))
        decided = DecidedRounds(**_rename_fields(document["decided"]))
        return Recording(folder=folder, **{**document, "decided": decided})
    except OSError as error:
        raise InputError(str(path), error.strerror or str(error)) from error
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(str(path), f"no recording: {error!r}") from error


def record_period(
    past: PastPeriod, folder: Path, decided: DecidedRounds, *, anonymous: bool = False
) -> Recording:
    """Record a period of the register center as files that a simulation reads.

    Parameters
    ----------
    past : PastPeriod
        Its requests are read here.
    decided : DecidedRounds
        How its rounds were decided; of zones that no host is in, nothing is kept.
    anonymous : bool
        Tenants, groups of tenants and of VMs, and hosts get numbers for names.

    Notes
    -----
    VMs that held a place at the beginning stay on their host. VMs of one request are
    a row together that were on one host, or first placed in one slot, and were gone in
    one slot; of a gang, and of a request that is spread, all that waited are one
    row, which lives as long as the longest of them. A life is counted from the start of
    the slot that first placed a VM, or, if none did, from when it was requested: such a VM
    also waits for no longer. A VM that outlived the time has no end. Tenants without VMs and
    requests are left out.
    """
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    names = FileNames(past.hosts, anonymous=anonymous)
    slots = _RecordedSlots(past.since, decided.slot_length_s)
    decided = _zones_with_hosts(decided, past.hosts)
    counted: Counter[str] = Counter()
    with (partial / _TRACE).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*_COLUMNS, *past.resources], restval="")
        writer.writeheader()
        for request in past.requests:
            for row in _native_rows(request, past, names, slots):
                writer.writerow(row)
                counted[_request_state(row)] += row["count"]
    _write_json(partial / _HOSTS, _inventory_document(past, names))
    tree, quotas = list(tree_rows(past, names)), list(quota_rows(past, names))
    _write_csv(partial / _TREE, ("name", "parent", "weight", "at_s"), tree)
    if quotas:
        _write_csv(partial / _QUOTAS, ("owner", "resource", "limit", "at_s"), quotas)
    if decided.zone_policies:
        _write_json(partial / _ZONES, decided.zone_policies)
    recording = Recording(
        folder=folder,
        since=past.since.isoformat(),
        until=past.until.isoformat(),
        length_s=(past.until - past.since).total_seconds(),
        hosts_there=len(past.hosts),
        vms_running=counted["running"],
        vms_waiting=counted["waiting"],
        vms_requested=counted["requested"],
        groups=len({parent for _, parent, *_ in tree if parent}),
        quotas=len({(owner, resource) for owner, resource, *_ in quotas}),
        decided=decided,
    )
    document = {name: value for name, value in asdict(recording).items() if name != "folder"}
    _write_json(partial / _WINDOW, document)
    shutil.rmtree(folder, ignore_errors=True)
    partial.replace(folder)
    return recording


def _zones_with_hosts(decided: DecidedRounds, hosts: Sequence[PastHost]) -> DecidedRounds:
    """Drop the recorded policies of zones that no host is in."""
    known = {zone_of(host.labels) for host in hosts}
    zones = {zone: its for zone, its in decided.zone_policies.items() if zone in known}
    return replace(decided, zone_policies=zones)


def _request_state(row: Mapping[str, Any]) -> str:
    """Return whether a recorded row of VMs ran, waited or was requested later."""
    if row.get("on_host"):
        return "running"
    return "requested" if row["arrival_s"] > 0 else "waiting"


def _native_rows(
    request: PastRequest, past: PastPeriod, names: FileNames, slots: _RecordedSlots
) -> Iterator[dict[str, Any]]:
    """Yield rows of the trace format for the recorded VMs of one request."""
    there: defaultdict[str, list[PastVm]] = defaultdict(list)
    waiting: list[PastVm] = []
    for vm in request.vms:
        host = None if vm.host_id is None else names.of_host.get(vm.host_id)
        (waiting if host is None else there[host]).append(vm)
    rules = request.rules
    shared = {
        "arrival_s": max(0.0, trace_seconds(request.requested_at, past.since)),
        "tenant": names.tenants.alias_of(request.tenant),
        "min_count": 1,
        "requires": ";".join(request.requires),
        "forbids": ";".join(rules.forbids),
        "prefers": ";".join(rules.prefers),
        "zone": rules.zone or "",
        "hosts": ";".join(names.hosts.alias_of(host) for host in request.hosts or ()),
        "spread": rules.spread or "",
        "anti_affinity": _group_alias(rules.anti_affinity, names),
        "affinity": _group_alias(rules.affinity, names),
        **request.demand,
    }
    for host, standing in sorted(there.items()):
        for ended_at, vms in _group_vms(standing, slots, placed_alike=False):
            lifetime = "" if ended_at is None else trace_seconds(ended_at, past.since)
            yield {**shared, "lifetime_s": lifetime, "count": len(vms), "on_host": host}
    whole = request.min_count > 1 or rules.spread is not None
    begun = any(vm.placed_at is not None and vm.placed_at < past.since for vm in request.vms)
    given_up = [vm for vm in waiting if _was_given_up(vm)]
    others = [vm for vm in waiting if not _was_given_up(vm)]
    if whole and others:
        given_up, others = [], waiting
    lots = [_group_vms(each, slots, whole=whole) for each in (others, given_up)]
    for ended_at, vms in itertools.chain.from_iterable(lots):
        first = min(vm.placed_at or request.requested_at for vm in vms)
        minimum = 1 if begun else min(request.min_count, len(vms))
        row: dict[str, Any] = {"count": len(vms), "min_count": minimum}
        if ended_at is not None:
            row["lifetime_s"] = trace_seconds(ended_at, max(first, past.since))
            if given_up and _was_given_up(vms[0]):
                row["wait_at_most_s"] = trace_seconds(
                    ended_at, max(request.requested_at, past.since)
                )
        yield {**shared, **row}


def _was_given_up(vm: PastVm) -> bool:
    """Return whether a recorded VM was deleted before it was ever placed."""
    return vm.placed_at is None and vm.ended_at is not None


def _group_vms(
    vms: Sequence[PastVm], slots: _RecordedSlots, *, placed_alike: bool = True, whole: bool = False
) -> list[tuple[datetime | None, list[PastVm]]]:
    """Group recorded VMs that ended in one slot, with the last end of each group; None: running.

    ``placed_alike``: and that were first placed in one slot, the earlier ones first.
    ``whole``: all of them.
    """
    lots: defaultdict[tuple[float, float], list[PastVm]] = defaultdict(list)
    for vm in vms:
        placed = slots.slot_at(vm.placed_at) if placed_alike else 0.0
        lots[(0.0, 0.0) if whole else (placed, slots.slot_at(vm.ended_at))].append(vm)
    return [(_last_end(lot), lot) for _, lot in sorted(lots.items(), key=lambda pair: pair[0])]


def _last_end(vms: Sequence[PastVm]) -> datetime | None:
    """Return when the last of some recorded VMs ended; None if one has not ended."""
    ends = [vm.ended_at for vm in vms if vm.ended_at is not None]
    return max(ends) if len(ends) == len(vms) else None


@dataclass(frozen=True, slots=True)
class _RecordedSlots:
    """The slots of the recorded system, from the beginning of the period."""

    since: datetime
    length_s: float

    def slot_at(self, at: datetime | None) -> float:
        """Return the number of the first slot that does not start before a time; inf for None."""
        if at is None:
            return math.inf
        return math.ceil((at - self.since).total_seconds() / self.length_s)


def _group_alias(rule: MembershipRule | None, names: FileNames) -> str:
    """Return a VM group as the trace has it, ``name`` or ``name:soft``; "" for none."""
    if rule is None:
        return ""
    return names.vm_groups.alias_of(rule.group) + (":soft" if rule.soft else "")


def _inventory_document(past: PastPeriod, names: FileNames) -> Mapping[str, Any]:
    """Return the recorded hosts and their events as an inventory's JSON values."""
    hosts, events = [], []
    for host in past.hosts:
        name = names.of_host[host.id]
        hosts.append({"name": name, "labels": list(host.labels), "capacity": dict(host.capacity)})
        begins = max(0.0, trace_seconds(host.created_at, past.since))
        if begins > 0:
            events.append({"at_s": begins, "host": name, "event": HostEventKind.JOIN.value})
        if not host.was_open:
            events.append({"at_s": begins, "host": name, "event": HostEventKind.DRAIN.value})
        events += [
            {
                "at_s": max(begins, trace_seconds(at, past.since)),
                "host": name,
                "event": _HAPPENINGS[change].value,
            }
            for at, change in host.changes
        ]
    return {"hosts": hosts, "events": events}


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file of a recording."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)


def _write_json(path: Path, document: object) -> None:
    """Write a JSON file of a recording."""
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
