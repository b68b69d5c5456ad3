"""Inventories: hosts and their events."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from plain_text import dict_of_unique_names
from registry import InvalidError
from registry.db import check_labels, check_single_values
from simulation.errors import InputError
from simulation.topology.hosts import HostEvent, HostEventKind
from simulation.traces import azure_packing
from simulation.traces.native import ordered_resources
from simulation.traces.table_files import read_columns, read_rows
from simulation.traces.workload import LARGEST_CORES, LARGEST_MIB, PREFIX, hosts_like_google

_SHORT: Final = re.compile(r"\d+:[^,]+(,\d+:[^,]+)*")
_LABEL: Final = "label="
_PART: Final = re.compile(r"(\d+)([a-zA-Z_]*)")
#: Endings of the short form, and what they count.
_UNITS: Final = {"c": ("vcpus", 1), "g": ("memory_mib", 1024), "d": ("disk_gib", 1)}
_WORDS: Final = ("name", "count", "labels", "class", "join_s", "drain_s", "leave_s")
_MAX_HOSTS: Final = 200_000
#: ``azure:N``: N of the machines that VMs of Azure's packing trace share.
_AZURE: Final = re.compile(r"azure:(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpec:
    """One host of a simulation's inventory."""

    name: str
    host_class: str  #: hosts of one class are reported together
    labels: tuple[str, ...]
    capacity: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostInventory:
    """The hosts of a simulation in order of name, and their events in order of time."""

    hosts: tuple[HostSpec, ...]
    events: tuple[HostEvent, ...] = ()

    @property
    def resources(self) -> tuple[str, ...]:
        """All resources that some host of the inventory offers."""
        return ordered_resources({name for host in self.hosts for name in host.capacity})

    def with_hosts(self, more: HostInventory) -> HostInventory:
        """Return this inventory of hosts with more hosts."""
        return checked_inventory(
            [*self.hosts, *more.hosts], [*self.events, *more.events], "--add-hosts"
        )

    def without_hosts(self, names: Sequence[str]) -> HostInventory:
        """Return this inventory without hosts of these names, or patterns such as ``rack3-*``."""
        gone: set[str] = set()
        for pattern in names:
            found = {host.name for host in self.hosts if fnmatchcase(host.name, pattern)}
            if not found:
                some = ", ".join(host.name for host in self.hosts[:5])
                raise InputError(f"--without-hosts {pattern}", f"no host of that name; {some}, …")
            gone |= found
        return checked_inventory(
            [host for host in self.hosts if host.name not in gone],
            [event for event in self.events if event.host not in gone],
            f"--without-hosts {','.join(names)}",
        )

    def with_prefix(self, prefix: str) -> HostInventory:
        """Return the hosts with a prefix in their names, so that they can join others."""
        return HostInventory(
            hosts=tuple(replace(host, name=f"{prefix}-{host.name}") for host in self.hosts),
            events=tuple(replace(each, host=f"{prefix}-{each.host}") for each in self.events),
        )

    def in_thousandths(self) -> HostInventory:
        """Return the same hosts with cores counted in thousandths, as some traces request them."""
        return HostInventory(
            hosts=tuple(
                replace(
                    host,
                    capacity={
                        "cpu_milli" if name == "vcpus" else name: amount
                        * (1000 if name == "vcpus" else 1)
                        for name, amount in host.capacity.items()
                    },
                )
                for host in self.hosts
            ),
            events=self.events,
        )


def checked_inventory(
    hosts: Iterable[HostSpec], events: Iterable[HostEvent], where: str
) -> HostInventory:
    """Return an inventory of hosts and events, sorted; raise `InputError` if it is invalid."""
    listed = sorted(hosts, key=lambda host: host.name)
    names = [host.name for host in listed]
    twice = sorted({a for a, b in itertools.pairwise(names) if a == b})
    if twice:
        raise InputError(where, f"host {twice[0]} stands twice")
    if not listed:
        raise InputError(where, "no hosts")
    if len(listed) > _MAX_HOSTS:
        raise InputError(where, f"{len(listed)} hosts, allowed are {_MAX_HOSTS}")
    for host in listed:
        try:
            check_single_values("labels", host.labels)
        except InvalidError as error:
            raise InputError(f"{where}: host {host.name}", str(error)) from None
    ordered = sorted(events, key=lambda event: event.at_s)
    known = set(names)
    for event in ordered:
        if event.host not in known:
            raise InputError(where, f"an event at {event.at_s:g} s names host {event.host!r}")
    return HostInventory(hosts=tuple(listed), events=tuple(ordered))


def read_inventory(spec: str) -> HostInventory:
    """Return the inventory of a file or a short form: ``20:64c:256g``, ``google:200``.

    ``azure:N`` are N of the machines that VMs of Azure's packing trace take parts of.
    """
    if _SHORT.fullmatch(spec) and not Path(spec).exists():
        return _read_short_form(spec)
    if spec.startswith(PREFIX):
        return _make_google_hosts(spec)
    if found := _AZURE.fullmatch(spec):
        whole = dict.fromkeys(azure_packing.RESOURCES, azure_packing.MACHINE)
        return checked_inventory(
            _make_alike_hosts("azure", int(found[1]), whole, host_class="azure"), (), spec
        )
    path = Path(spec)
    if path.suffix == ".json":
        return _read_json(path)
    return _table_reader(path)(path)


def _table_reader(path: Path) -> Callable[[Path], HostInventory]:
    """Return the reader of inventories for a table with these columns."""
    columns = read_columns(path)
    if set(columns) == {"machine_id", "cpu", "memory"}:
        return _read_google_machines
    if {"sn", "cpu_milli", "memory_mib", "gpu", "model"} <= set(columns):
        return _read_alibaba_nodes
    if len(columns) == 6 and columns[0].isdigit() and columns[2] in ("0", "1", "2"):
        return _read_google_events
    if "name" not in columns:
        found = ", ".join(columns[:12])
        raise InputError(str(path), f"columns {found}: an inventory has name")
    return _read_csv


def _parse_short_host(spec: str) -> tuple[int, dict[str, int], tuple[str, ...]]:
    """Parse hosts in short form, as ``20:64c:256g:label=ssd``: number, capacity and labels."""
    count, *parts = spec.split(":")
    capacity: dict[str, int] = {}
    labels = tuple(sorted(part.removeprefix(_LABEL) for part in parts if part.startswith(_LABEL)))
    try:
        check_labels("label", labels)
    except InvalidError as error:
        raise InputError(spec, str(error)) from None
    for part in parts:
        if part.startswith(_LABEL):
            continue
        found = _PART.fullmatch(part)
        if found is None or not found[2]:
            raise InputError(
                spec, f"{part!r} is neither a number with c, g, d or a resource, nor label=NAME"
            )
        name, factor = _UNITS.get(found[2], (found[2], 1))
        capacity[name] = int(found[1]) * factor
    if not capacity or int(count) < 1:
        raise InputError(spec, "expected COUNT:CORESc:MEMORYg, as in 20:64c:256g")
    return int(count), capacity, labels


def _read_short_form(spec: str) -> HostInventory:
    """Return the inventory of hosts in short form, several separated by commas."""
    hosts: list[HostSpec] = []
    for place, part in enumerate(spec.split(",")):
        count, capacity, labels = _parse_short_host(part)
        prefix = "abcdefghijklmnopqrstuvwxyz"[place % 26]
        host_class = ":".join(part.removeprefix(_LABEL) for part in part.split(":")[1:])
        hosts += _make_alike_hosts(prefix, count, capacity, host_class=host_class, labels=labels)
    return checked_inventory(hosts, (), spec)


def _make_google_hosts(spec: str) -> HostInventory:
    """Return the inventory ``google:HOSTS``: hosts in the proportions of Google's table."""
    number = spec.removeprefix(PREFIX)
    if not number.isdecimal() or not 1 <= int(number) <= _MAX_HOSTS:
        raise InputError(spec, f"expected google:HOSTS, 1 to {_MAX_HOSTS}")
    hosts: list[HostSpec] = []
    for place, (count, cores, memory_mib) in enumerate(hosts_like_google(int(number))):
        capacity = {"vcpus": cores, "memory_mib": memory_mib}
        prefix = "abcdefghijklmnopqrstuvwxyz"[place]
        hosts += _make_alike_hosts(prefix, count, capacity, host_class=_short_capacity(capacity))
    return checked_inventory(hosts, (), spec)


def _make_alike_hosts(
    prefix: str,
    count: int,
    capacity: Mapping[str, int],
    *,
    host_class: str,
    labels: tuple[str, ...] = (),
) -> list[HostSpec]:
    """Return numbered hosts of one capacity."""
    width = len(str(count))
    return [
        HostSpec(
            name=f"{prefix}-{number:0{width}}" if count > 1 else prefix,
            host_class=host_class,
            labels=labels,
            capacity=capacity,
        )
        for number in range(1, count + 1)
    ]


def _read_csv(path: Path) -> HostInventory:
    """Read an inventory from a CSV or Parquet table of hosts, or of hosts and events."""
    hosts: list[HostSpec] = []
    events: list[HostEvent] = []
    for line, row, _ in read_rows(path):
        where = f"{path}:{line}"
        if not isinstance(row, Mapping):
            raise InputError(where, str(row))
        capacity = {
            name: _read_whole(row[name], f"{where}: {name}")
            for name in row
            if name not in _WORDS and row[name] not in (None, "")
        }
        count = _read_whole(row.get("count") or 1, f"{where}: count")
        labels = tuple(sorted(filter(None, str(row.get("labels") or "").split(";"))))
        new = _make_alike_hosts(
            str(row["name"]),
            count,
            capacity,
            host_class=str(row.get("class") or _short_capacity(capacity)),
            labels=labels,
        )
        hosts += new
        for what in (HostEventKind.JOIN, HostEventKind.DRAIN, HostEventKind.LEAVE):
            length = row.get(f"{what.value}_s")
            if length not in (None, ""):
                at_s = _read_seconds(length, f"{where}: {what.value}_s")
                events += [HostEvent(at_s=at_s, host=host.name, what=what) for host in new]
    return checked_inventory(hosts, events, str(path))


def _read_json(path: Path) -> HostInventory:
    """Read an inventory from a JSON object with "hosts" and, optionally, "events"."""
    try:
        document = json.loads(
            path.read_text(encoding="utf-8"), object_pairs_hook=dict_of_unique_names
        )
    except OSError as error:
        raise InputError(str(path), error.strerror or str(error)) from error
    except ValueError as error:
        raise InputError(str(path), f"no JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("hosts"), list):
        raise InputError(str(path), 'expected an object with "hosts"')
    hosts: list[HostSpec] = []
    events: list[HostEvent] = []
    for place, each in enumerate(document["hosts"]):
        where = f"{path}: hosts[{place}]"
        if not isinstance(each, dict) or not isinstance(each.get("capacity"), dict):
            raise InputError(where, 'expected an object with "name" and "capacity"')
        capacity = {
            str(name): _read_whole(amount, f"{where}.capacity.{name}")
            for name, amount in each["capacity"].items()
        }
        hosts += _make_alike_hosts(
            str(each.get("name") or f"host{place}"),
            _read_whole(each.get("count", 1), f"{where}.count"),
            capacity,
            host_class=str(each.get("class") or _short_capacity(capacity)),
            labels=tuple(sorted(map(str, each.get("labels", ())))),
        )
    for place, each in enumerate(document.get("events", ())):
        where = f"{path}: events[{place}]"
        try:
            what = HostEventKind(each["event"])
        except (KeyError, TypeError, ValueError):
            allowed = ", ".join(each.value for each in HostEventKind)
            raise InputError(where, f"event: expected one of {allowed}") from None
        at_s = _read_seconds(each.get("at_s"), f"{where}.at_s")
        events.append(HostEvent(at_s=at_s, host=str(each.get("host")), what=what))
    return checked_inventory(hosts, events, str(path))


def _read_google_machines(path: Path) -> HostInventory:
    """Read an inventory from a table of Google's machines."""
    hosts = []
    for line, row, _ in read_rows(path):
        if not isinstance(row, Mapping):
            raise InputError(f"{path}:{line}", str(row))
        hosts.append(
            _make_google_host(row["machine_id"], row["cpu"], row["memory"], f"{path}:{line}")
        )
    return checked_inventory(hosts, (), str(path))


def _read_google_events(path: Path) -> HostInventory:
    """Read an inventory from Google's machine events: join (0), leave (1), join again."""
    names = ("time_us", "machine_id", "event", "platform", "cpus", "memory")
    hosts: dict[str, HostSpec] = {}
    events: list[HostEvent] = []
    for line, row, _ in read_rows(path, names):
        where = f"{path}:{line}"
        if not isinstance(row, Mapping):
            raise InputError(where, str(row))
        at_s = _read_seconds(row["time_us"], where) / 1e6
        if row["event"] == "0" and row["cpus"] and row["memory"]:
            host = _make_google_host(row["machine_id"], row["cpus"], row["memory"], where)
            known = host.name in hosts
            hosts.setdefault(host.name, host)
            if known or at_s > 0:
                events.append(HostEvent(at_s=at_s, host=host.name, what=HostEventKind.JOIN))
        elif row["event"] == "1" and f"m{row['machine_id']}" in hosts:
            name = f"m{row['machine_id']}"
            events.append(HostEvent(at_s=at_s, host=name, what=HostEventKind.LEAVE))
    return checked_inventory(hosts.values(), events, str(path))


def _make_google_host(machine: Any, cpu: Any, memory: Any, where: str) -> HostSpec:
    """Return a host from the parts of Google's largest machine that it has."""
    capacity = {
        "vcpus": round(_read_seconds(cpu, where) * LARGEST_CORES),
        "memory_mib": round(_read_seconds(memory, where) * LARGEST_MIB),
    }
    return HostSpec(
        name=f"m{machine}", host_class=_short_capacity(capacity), labels=(), capacity=capacity
    )


def _read_alibaba_nodes(path: Path) -> HostInventory:
    """Read an inventory from a table of Alibaba's nodes with GPUs."""
    hosts = []
    for line, row, _ in read_rows(path):
        where = f"{path}:{line}"
        if not isinstance(row, Mapping):
            raise InputError(where, str(row))
        capacity = {
            "cpu_milli": _read_whole(row["cpu_milli"], where),
            "memory_mib": _read_whole(row["memory_mib"], where),
            "gpu_milli": 1000 * _read_whole(row["gpu"], where),
        }
        model = row["model"]
        hosts.append(
            HostSpec(
                name=str(row["sn"]),
                host_class=str(model or "no GPU"),
                labels=(f"gpu={model}",) if model else (),
                capacity=capacity,
            )
        )
    return checked_inventory(hosts, (), str(path))


def _short_capacity(capacity: Mapping[str, int]) -> str:
    """Return a host's capacity in the short form: ``64c:256g``."""
    ending = {name: (unit, factor) for unit, (name, factor) in _UNITS.items()}
    parts = []
    for name, amount in capacity.items():
        unit, factor = ending.get(name, (name, 1))
        parts.append(f"{amount / factor:g}{unit}")
    return ":".join(parts)


def _read_whole(found: Any, where: str) -> int:
    """Read a whole number of an inventory, 0 or more."""
    try:
        value = int(found)
    except (TypeError, ValueError):
        raise InputError(where, f"found {found!r}, expected a whole number") from None
    if not 0 <= value <= 2**40:
        raise InputError(where, f"found {found!r}, expected 0 or more")
    return value


def _read_seconds(found: Any, where: str) -> float:
    """Read a number of an inventory, 0 or more: seconds, or parts of a machine."""
    try:
        value = float(found)
    except (TypeError, ValueError):
        raise InputError(where, f"found {found!r}, expected a number") from None
    if not 0 <= value < 1e15:
        raise InputError(where, f"found {found!r}, expected 0 or more")
    return value
