"""Specs of simulations as plain values, for child processes and for resuming."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from registry.catalogue import VMS
from registry.requests import zone_of
from simulation.errors import InputError
from simulation.slots.moving.movable_vms import MEMORY
from simulation.slots.moving.move_options import MoveOptions
from simulation.slots.moving.roll import matching_hosts
from simulation.slots.slot_decider import SimulatedPolicy
from simulation.topology.failure_domains import failure_domains_of
from simulation.topology.hierarchy import TimedHierarchy, read_hierarchy
from simulation.topology.hosts import SimHost
from simulation.topology.inventory import HostInventory, HostSpec, read_inventory
from simulation.traces.bad_rows import BadRows
from simulation.traces.chunks import Trace
from simulation.traces.formats import detect_format, make_row_reader, resources_in
from simulation.traces.native import Keep, NativeTrace, ordered_resources
from simulation.traces.table_files import read_table
from simulation.traces.workload import PREFIX, parse_workload

_PARTS = 10_000  #: number of parts in which tenants are sampled


#: Resources of which every VM takes some where any request does, and the ends of their numbers.
_OF_EVERY_VM: Final[Mapping[str, str]] = {"vcpus": "c", "memory_mib": "memory_mib", "disk_gib": "d"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSpec:
    """Where a simulation's requests come from."""

    path: str
    format: str | None = None
    types: str | None = None  #: a CSV file of VM types
    tenants: int = 0  #: number of tenants after folding; 0: not folded
    sample: float = 1.0  #: part of the tenants that takes part, others for each seed


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec(SimulatedPolicy):
    """One simulation: one policy, one seed, one length of slots."""

    name: str
    trace: TraceSpec
    hosts: str
    add_hosts: tuple[str, ...] = ()  #: more of them, in the same forms
    without_hosts: tuple[str, ...] = ()  #: names, or patterns of names, of those left out
    weights: str | None = None  #: a CSV file of tenants and their weights
    tree: str | None = None  #: a CSV file of groups and tenants, and their parents
    quotas: str | None = None  #: a CSV file of what tenants and groups may hold at most
    until_s: float | None = None
    drain: bool = False  #: go on until everything that ends has ended
    ideal_every: int = 12

    def document(self) -> dict[str, Any]:
        """Return the spec of a simulation as JSON values."""
        document: dict[str, Any] = json.loads(json.dumps(asdict(self), default=str))
        return document

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> RunSpec:
        """Read a spec from the JSON values that `document` returned.

        Raises
        ------
        InputError
            If it is of another version, and knows other words.
        """
        try:
            values = {**document, "trace": TraceSpec(**document["trace"])}
            values["moving"] = MoveOptions.of(document["moving"])
            for name in ("add_hosts", "without_hosts"):
                values[name] = tuple(values[name])
            return cls(**values)
        except (KeyError, TypeError) as error:
            raise InputError("a run", f"it is of another version of fuga: {error}") from None

    def digest(self) -> str:
        """Return a digest of a simulation: its spec, and names, sizes and times of its files."""
        document = self.document()
        files = (self.trace.path, self.trace.types, self.hosts, *self.add_hosts)
        for path in (*files, self.weights, self.tree, self.quotas):
            if path is not None and Path(path).is_file():
                stat = Path(path).stat()
                document[f"file {path}"] = [stat.st_size, stat.st_mtime_ns]
        text = json.dumps(document, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class SimulationInputs:
    """The inputs of a simulation, on one axis of resources."""

    trace: Trace
    inventory: HostInventory
    resources: tuple[str, ...]
    weights: Mapping[str, float]
    hierarchies: tuple[TimedHierarchy, ...]  #: groups, weights and quotas; the first from 0 on
    faults: BadRows


def open_inputs(spec: RunSpec) -> SimulationInputs:
    """Open the trace and read the hosts, weights, tree and quotas of a simulation.

    Raises
    ------
    InputError
        For files that are not what they should be, or a resource that requests
        need and no host has.
    """
    inventory = read_inventory(spec.hosts)
    named = list(inventory.hosts)
    if spec.without_hosts:
        inventory = inventory.without_hosts(spec.without_hosts)
    for number, more in enumerate(spec.add_hosts, 1):
        prefix = "added" if number == 1 else f"added{number}"
        inventory = inventory.with_hosts(read_inventory(more).with_prefix(prefix))
    _check_zones(spec, [*named, *inventory.hosts])
    _check_move_options(spec, inventory)
    weights = read_weights(spec.weights)
    hierarchies = read_hierarchy(spec.tree, spec.quotas)
    faults = BadRows(spec.trace.path)
    if spec.trace.path.startswith(PREFIX):
        resources = ordered_resources({"vcpus", "memory_mib", *inventory.resources})
        _check_offered_resources(("vcpus", "memory_mib"), inventory, spec)
        made = parse_workload(spec.trace.path, resources, spec.seed)
        _check_quotas(hierarchies, resources, spec)
        return SimulationInputs(made, inventory, resources, weights, hierarchies, faults)
    path = Path(spec.trace.path)
    its = detect_format(path, spec.trace.format)
    types = read_types(spec.trace.types)
    requested = resources_in(path, its, types)
    if not requested:
        raise InputError(str(path), "no column names a resource, as vcpus or memory_mib")
    _check_added_hosts(requested, inventory, spec)
    if "cpu_milli" in requested and "cpu_milli" not in inventory.resources:
        inventory = inventory.in_thousandths()
    _check_offered_resources(requested, inventory, spec)
    resources = ordered_resources({*requested, *inventory.resources})
    if spec.moving.is_enabled and MEMORY not in requested:
        raise InputError(
            str(path),
            f"requests have {', '.join(requested)}; moves need {MEMORY} for their transfer",
        )
    trace = NativeTrace(
        source=make_row_reader(path, its),
        resources=resources,
        faults=faults,
        types=types,
        keep=_tenant_sample(spec.trace.sample, spec.seed),
        fold=spec.trace.tenants,
    )
    _check_quotas(hierarchies, resources, spec)
    return SimulationInputs(trace, inventory, resources, weights, hierarchies, faults)


def _check_offered_resources(
    resources: Sequence[str], inventory: HostInventory, spec: RunSpec
) -> None:
    """Raise if requests need a resource that no host has."""
    missing = sorted(set(resources) - set(inventory.resources))
    if missing:
        raise InputError(
            spec.hosts,
            f"no host has {', '.join(missing)}, which requests of {spec.trace.path} need",
        )


def _check_added_hosts(resources: Sequence[str], inventory: HostInventory, spec: RunSpec) -> None:
    """Raise if added hosts lack a resource that every VM takes: they would stay empty."""
    needed = [name for name in _OF_EVERY_VM if name in resources and name in inventory.resources]
    for added in spec.add_hosts:
        for host in read_inventory(added).hosts:
            lacking = [name for name in needed if not host.capacity.get(name)]
            if not lacking:
                continue
            there = sorted(
                each.capacity[lacking[0]]
                for each in inventory.hosts
                if each.capacity.get(lacking[0])
            )
            usual = f"{there[len(there) // 2]}{_OF_EVERY_VM[lacking[0]]}"
            raise InputError(
                f"--add-hosts {added}",
                f"{host.name} has no {', '.join(lacking)}, which requests need, so no VM would"
                f" fit; add it, as in {added.partition(',')[0]}:{usual}, which hosts there have",
            )


def _check_zones(spec: RunSpec, hosts: Sequence[HostSpec]) -> None:
    """Raise if no host is in one of the zones, before or after hosts are left out."""
    known = {zone_of(host.labels) for host in hosts}
    for zone, policy in spec.zone_policies.items():
        if zone not in known:
            raise InputError(f"--zone-policy {zone}={policy}", f"no host is labelled zone={zone}")


def _check_move_options(spec: RunSpec, inventory: HostInventory) -> None:
    """Raise if hosts of a roll, or failure domains of spare capacity, do not exist."""
    labels = [SimHost(name=host.name, labels=host.labels) for host in inventory.hosts]
    moving = spec.moving
    if moving.roll is not None and not matching_hosts(moving.roll.hosts, labels):
        some = ", ".join(host.name for host in inventory.hosts[:5])
        raise InputError(f"--roll hosts={moving.roll.hosts}", f"no such host; {some}, …")
    if moving.spare is not None and (failure_domains_of(moving.spare, labels) < 0).all():
        raise InputError(
            f"--spare {moving.spare}", f"no host is labelled {moving.spare}=…; or give host"
        )


def _check_quotas(
    hierarchies: Sequence[TimedHierarchy], resources: Sequence[str], spec: RunSpec
) -> None:
    """Raise for a quota of a resource that requests do not have."""
    for quota in (quota for _, hierarchy in hierarchies for quota in hierarchy.quotas):
        if quota.resource != VMS and quota.resource not in resources:
            known = ", ".join((VMS, *resources))
            raise InputError(
                str(spec.quotas), f"resource {quota.resource!r} of {quota.owner!r}: one of {known}"
            )


def _tenant_sample(part: float, seed: int) -> Keep | None:
    """Return the filter of tenants that take part, drawn by the seed; None: all take part."""
    if part >= 1.0:
        return None
    maximum = int(part * _PARTS)
    return lambda tenant: zlib.crc32(f"{seed} {tenant}".encode()) % _PARTS < maximum


def read_types(path: str | None) -> Mapping[str, Mapping[str, int]]:
    """Read the resources of each VM type from a CSV file of name and resources."""
    if path is None:
        return {}
    types: dict[str, Mapping[str, int]] = {}
    for line, row in read_table(path, ("name",)):
        try:
            types[row["name"]] = {
                name: int(amount) for name, amount in row.items() if name != "name" and amount
            }
        except (TypeError, ValueError) as error:
            raise InputError(f"{path}:{line}", str(error)) from None
    return types


def read_weights(path: str | None) -> Mapping[str, float]:
    """Read the weight of each tenant from a CSV file of tenant and weight."""
    if path is None:
        return {}
    weights = {}
    for line, row in read_table(path, ("tenant",)):
        try:
            weights[row["tenant"]] = float(row["weight"])
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{path}:{line}", "expected tenant and weight") from None
        if not 0 < weights[row["tenant"]] < 1e9:
            raise InputError(f"{path}:{line}", "weight: expected a number above 0")
    return weights
