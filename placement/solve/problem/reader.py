"""From the bytes of a problem file to a validated `Problem`."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import Final, TypeVar

from placement.solve.problem.faults import (
    Place,
    ProblemFaults,
    describe_value,
    quote_text,
    refuse_file,
)
from placement.solve.problem.fields import (
    MAX_COUNT,
    JsonObject,
    nullable_reader,
    read_amounts,
    read_count,
    read_list,
    read_name,
    read_names,
    read_ratio,
    resolve_name,
)
from placement.solve.problem.model import Amounts, DemandEntry, HostEntry, Problem, TenantEntry
from placement.solve.problem.strict_json import NotANumber, RepeatedKeys, decode_json

#: Tenants from the root's child down to a leaf.
MAX_LEVELS: Final = 100


def check_tree(tenants: Sequence[TenantEntry], faults: ProblemFaults) -> None:
    """Record cycles and too deep leaves of a problem file's tenants as faults."""
    before = len(faults)
    depth: dict[int, int] = {}
    for start in range(len(tenants)):
        path: dict[int, None] = {}
        node: int | None = start
        while node is not None and node not in depth and node not in path:
            path[node] = None
            node = tenants[node].parent
        if node is not None and node in path:
            walked = list(path)
            circle = [tenants[index].name for index in walked[walked.index(node) :]]
            shown = " → ".join(map(quote_text, [*circle[:6], circle[0]]))
            faults.add(("tenants", node, "parent"), f"the tenants' tree has a cycle: {shown}")
        below = 0 if node is None else depth.get(node, 0)
        depth.update((index, below + n) for n, index in enumerate(reversed(path), start=1))
    if len(faults) > before:
        return  # no depth in a circle
    for index, level in depth.items():
        if level == MAX_LEVELS + 1:
            faults.add(
                ("tenants", index, "parent"),
                f"the tenants' tree must have at most {MAX_LEVELS} levels",
            )


def check_groups(
    tenants: Sequence[TenantEntry], demands: Sequence[DemandEntry], faults: ProblemFaults
) -> None:
    """Record groups of tenants that have demands or holdings of their own as faults."""
    groups = {tenant.parent for tenant in tenants}
    for index, tenant in enumerate(tenants):
        if index in groups and any(tenant.held):
            faults.add(
                ("tenants", index, "held"),
                f"{quote_text(tenant.name)} is the parent of others and must hold nothing itself",
            )
    for index, demand in enumerate(demands):
        if demand.tenant in groups:
            name = quote_text(tenants[demand.tenant].name)
            faults.add(
                ("demands", index, "tenant"),
                f"{name} is the parent of others; only tenants without children may have demands",
            )


MAX_RESOURCES: Final = 256
#: Hosts one by one, classes spread out; tenants and demands have the same limit.
MAX_HOSTS: Final = 200_000
MAX_LABELS: Final = 100
MAX_SEED: Final = 2**63 - 1
_DEEPEST_PARAMETER: Final = 6

_Read = TypeVar("_Read")


def read_problem(data: bytes) -> Problem:
    """Read and check a problem file.

    Parameters
    ----------
    data : bytes
        The file: JSON in UTF-8.

    Returns
    -------
    Problem
        Names resolved to indices, defaults filled in, quantities exact.

    Raises
    ------
    ProblemError
        With the place of each of the first faults.
    """
    faults = ProblemFaults()
    top = JsonObject(
        decode_json(data),
        (),
        faults,
        required=("resources", "hosts", "tenants", "demands"),
        optional=("parameters",),
    )
    reader = _ProblemReader(top, faults)
    problem = reader.read()
    faults.raise_if_any()
    return problem


class _ProblemReader:
    """Reads the parts of a problem file, each after the parts to which it refers."""

    def __init__(self, top: JsonObject, faults: ProblemFaults) -> None:
        self._top = top
        self._faults = faults
        self._resources: tuple[str, ...] = ()
        self._host_index: dict[str, int] = {}
        self._tenant_index: dict[str, int] = {}
        self._zeros: Amounts = ()

    def read(self) -> Problem:
        """Read all parts of the problem file."""
        self._resources = self._read_resources()
        self._zeros = (Decimal(0),) * len(self._resources)
        hosts = self._read_hosts()
        tenants = self._read_tenants()
        demands = self._read_demands(tenants)
        parameters, seed = self._top.read("parameters", ({}, None), self._read_parameters)
        return Problem(
            resources=self._resources,
            hosts=hosts,
            tenants=tenants,
            demands=demands,
            parameters=MappingProxyType(parameters),
            seed=seed,
        )

    def _read_list(self, key: str, maximum: int) -> list[object]:
        """Read a list of the problem file; empty if the key is absent."""
        return self._top.read(key, [], read_list, maximum=maximum)

    def _read_resources(self) -> tuple[str, ...]:
        """Read the names of the resources; every amount has one value for each."""
        before = len(self._faults)
        values = self._read_list("resources", MAX_RESOURCES)
        names = read_names(values, ("resources",), self._faults, maximum=MAX_RESOURCES)
        if not names or len(self._faults) > before:
            # without the axis every vector that follows would look wrong
            self._faults.raise_if_any()
        return tuple(names)

    # ------------------------------------------------------------------ hosts

    def _read_hosts(self) -> tuple[HostEntry, ...]:
        """Read the host entries; all their hosts together are limited."""
        values = self._read_list("hosts", MAX_HOSTS)
        self._host_index = self._index_names(values, "hosts")
        read = [self._read_host(value, ("hosts", i)) for i, value in enumerate(values)]
        hosts = _drop_missing(read)
        total = sum(host.count for host in hosts)
        if total > MAX_HOSTS:
            self._faults.add(
                ("hosts",), f"must be at most {MAX_HOSTS:,} hosts in all, found {total:,}"
            )
        return hosts

    def _read_host(self, value: object, place: Place) -> HostEntry | None:
        """Read one host entry; None after a fault."""
        faults = self._faults
        entry = JsonObject(
            value,
            place,
            faults,
            required=("name", "capacity"),
            optional=("free", "count", "labels"),
        )
        name = entry.read("name", None, read_name)
        capacity = entry.read("capacity", None, read_amounts, self._resources)
        free = entry.read("free", capacity, read_amounts, self._resources)
        count = entry.read("count", 1, read_count, minimum=1, maximum=MAX_HOSTS)
        labels = entry.read("labels", [], read_names, maximum=MAX_LABELS)
        if name is None or capacity is None or free is None or count is None:
            return None
        for resource, (left, whole) in enumerate(zip(free, capacity, strict=True)):
            if left > whole:
                faults.add(
                    (*entry.place_of("free"), resource),
                    f"must be at most the capacity ({whole}), found {left}",
                )
        return HostEntry(
            name=name, capacity=capacity, free=free, count=count, labels=frozenset(labels)
        )

    # ---------------------------------------------------------------- tenants

    def _read_tenants(self) -> tuple[TenantEntry, ...]:
        """Read the tenants and groups, and check their tree."""
        values = self._read_list("tenants", MAX_HOSTS)
        self._tenant_index = self._index_names(values, "tenants")
        read = [self._read_tenant(value, ("tenants", i)) for i, value in enumerate(values)]
        tenants = _drop_missing(read)
        if len(tenants) == len(values):
            check_tree(tenants, self._faults)
        return tenants

    def _read_tenant(self, value: object, place: Place) -> TenantEntry | None:
        """Read one tenant or group; None after a fault."""
        faults = self._faults
        entry = JsonObject(
            value, place, faults, required=("name",), optional=("weight", "parent", "held")
        )
        name = entry.read("name", None, read_name)
        weight = entry.read("weight", 1.0, read_ratio)
        parent = entry.read("parent", None, nullable_reader(self._read_known_tenant))
        held = entry.read("held", self._zeros, read_amounts, self._resources)
        if name is None or weight is None or held is None:
            return None
        return TenantEntry(name=name, weight=weight, parent=parent, held=held)

    def _read_known_tenant(self, value: object, place: Place, faults: ProblemFaults) -> int | None:
        """Read the name of a tenant of the file; return its index, None after a fault."""
        name = read_name(value, place, faults)
        return (
            None
            if name is None
            else resolve_name(name, self._tenant_index, "tenant", place, faults)
        )

    # ---------------------------------------------------------------- demands

    def _read_demands(self, tenants: Sequence[TenantEntry]) -> tuple[DemandEntry, ...]:
        """Read the demands of tenants, and check that no group has one."""
        values = self._read_list("demands", MAX_HOSTS)
        self._index_names(values, "demands")
        read = [self._read_demand(value, ("demands", i)) for i, value in enumerate(values)]
        demands = _drop_missing(read)
        if not len(self._faults):  # groups are known only among sound tenants
            check_groups(tenants, demands, self._faults)
        return demands

    def _read_demand(self, value: object, place: Place) -> DemandEntry | None:
        """Read one demand of a tenant; None after a fault."""
        faults = self._faults
        entry = JsonObject(
            value,
            place,
            faults,
            required=("name", "tenant", "per_vm"),
            optional=("count", "min_count", "hosts", "requires", "speed"),
        )
        name = entry.read("name", None, read_name)
        tenant = entry.read("tenant", None, self._read_known_tenant)
        per_vm = entry.read("per_vm", None, read_amounts, self._resources)
        count, min_count = self._read_counts(entry)
        hosts = entry.read("hosts", None, nullable_reader(self._read_eligible_hosts))
        requires = entry.read("requires", [], read_names, maximum=MAX_LABELS)
        speed = entry.read("speed", MappingProxyType({}), self._read_speed)
        if name is None or tenant is None or per_vm is None:
            return None
        return DemandEntry(
            name=name,
            tenant=tenant,
            per_vm=per_vm,
            count=count,
            min_count=min_count,
            hosts=hosts,
            requires=frozenset(requires),
            speed=speed,
        )

    def _read_counts(self, entry: JsonObject) -> tuple[int | None, int]:
        """Read ``count`` and ``min_count`` of a demand; a null count has no limit."""
        count = entry.read("count", None, nullable_reader(read_count), minimum=0, maximum=MAX_COUNT)
        min_count = entry.read("min_count", 1, read_count, minimum=0, maximum=MAX_COUNT)
        minimum = max(1, min_count or 0)
        if count is not None and minimum > max(1, count):
            self._faults.add(
                entry.place_of("min_count"), f"must be at most the count ({count}), found {minimum}"
            )
        return count, minimum

    def _read_eligible_hosts(
        self, value: object, place: Place, faults: ProblemFaults
    ) -> tuple[int, ...] | None:
        """Read the host entries that a demand may use; return their indices, sorted."""
        if value == []:
            faults.add(place, "must not be empty; null stands for all hosts")
        found = (
            resolve_name(name, self._host_index, "host", (*place, position), faults)
            for position, name in enumerate(read_names(value, place, faults, maximum=MAX_HOSTS))
        )
        return tuple(sorted(index for index in found if index is not None))

    def _read_speed(
        self, value: object, place: Place, faults: ProblemFaults
    ) -> MappingProxyType[int, float]:
        """Read a demand's speed by host name; return it by index of the host entry."""
        if not isinstance(value, dict):
            faults.add(
                place, f"must be an object of host names and numbers, found {describe_value(value)}"
            )
            return MappingProxyType({})
        self._refuse_repeated(value, place)
        speed: dict[int, float] = {}
        for name, each in value.items():
            at = (*place, name)
            index = resolve_name(name, self._host_index, "host", at, faults)
            ratio = read_ratio(each, at, faults)
            if index is not None and ratio is not None:
                speed[index] = ratio
        return MappingProxyType(speed)

    # ------------------------------------------------------------- parameters

    def _read_parameters(
        self, value: object, place: Place, faults: ProblemFaults
    ) -> tuple[dict[str, object], int | None]:
        """Read the parameters of the policy, and the seed by itself."""
        if not isinstance(value, dict):
            faults.add(place, f"must be an object, found {describe_value(value)}")
            return {}, None
        self._refuse_repeated(value, place)
        seed: int | None = None
        if "seed" in value:
            seed = read_count(value["seed"], (*place, "seed"), faults, minimum=0, maximum=MAX_SEED)
        plain = {
            key: self._plain_value(each, (*place, key), 1)
            for key, each in value.items()
            if key != "seed"
        }
        return plain, seed

    def _plain_value(self, value: object, place: Place, depth: int) -> object:
        """Turn exact numbers in a parameter into ints and floats."""
        if depth > _DEEPEST_PARAMETER:
            refuse_file(place, "is nested too deeply")
        if isinstance(value, NotANumber):
            self._faults.add(place, f"must be a finite number, found {value}")
            return None
        if isinstance(value, Decimal):
            return self._plain_decimal(value, place)
        if isinstance(value, list):
            return [self._plain_value(each, (*place, i), depth + 1) for i, each in enumerate(value)]
        if isinstance(value, dict):
            self._refuse_repeated(value, place)
            return {
                key: self._plain_value(each, (*place, key), depth + 1)
                for key, each in value.items()
            }
        return value

    def _plain_decimal(self, value: Decimal, place: Place) -> int | float:
        """Turn an exact number into an int or a float."""
        if value.adjusted() > 30:
            self._faults.add(place, f"must be a number below 1e30, found {value}")
            return 0
        return int(value) if value == value.to_integral_value() else float(value)

    # ----------------------------------------------------------------- shared

    def _index_names(self, values: Sequence[object], kind: str) -> dict[str, int]:
        """Return the position of each name in a list of entries; a repeated name is a fault."""
        index: dict[str, int] = {}
        for position, value in enumerate(values):
            name = value.get("name") if isinstance(value, dict) else None
            if not isinstance(name, str):
                continue
            if name in index:
                first = f"{kind}[{index[name]}]"
                self._faults.add(
                    (kind, position, "name"), f"{quote_text(name)} is the name of {first} already"
                )
            else:
                index[name] = position
        return index

    def _refuse_repeated(self, value: dict[str, object], place: Place) -> None:
        """Record the keys that stand more than once in an object as faults."""
        if isinstance(value, RepeatedKeys):
            for key in value.repeated:
                self._faults.add((*place, key), "this key stands more than once")


def _drop_missing(read: Sequence[_Read | None]) -> tuple[_Read, ...]:
    """Return the entries that were read without a fault."""
    return tuple(each for each in read if each is not None)
