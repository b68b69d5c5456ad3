"""From the bytes of a problem file to a validated `Problem`."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import Final, TypeVar

from placement.solve.problem.faults import Faults, Place, described, quoted, refuse
from placement.solve.problem.fields import (
    MOST_COUNT,
    Entry,
    read_amounts,
    read_count,
    read_list,
    read_name,
    read_names,
    read_ratio,
    resolve,
)
from placement.solve.problem.jsontext import NotANumber, RepeatedKeys, decode
from placement.solve.problem.model import Amounts, DemandEntry, HostEntry, Problem, TenantEntry
from placement.solve.problem.tree_rules import check_groups, check_tree

MOST_RESOURCES: Final = 256
#: Hosts one by one, classes spread out; tenants and demands have the same limit.
MOST_HOSTS: Final = 200_000
MOST_LABELS: Final = 100
MOST_SEED: Final = 2**63 - 1
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
    faults = Faults()
    top = Entry(
        decode(data),
        (),
        faults,
        required=("resources", "hosts", "tenants", "demands"),
        optional=("parameters",),
    )
    reader = _Reader(top, faults)
    problem = reader.problem()
    faults.raise_if_any()
    return problem


class _Reader:
    """Reads the parts in the order in which they refer to one another."""

    def __init__(self, top: Entry, faults: Faults) -> None:
        self._top = top
        self._faults = faults
        self._resources: tuple[str, ...] = ()
        self._host_index: dict[str, int] = {}
        self._tenant_index: dict[str, int] = {}
        self._zeros: Amounts = ()

    def problem(self) -> Problem:
        self._resources = self._read_resources()
        self._zeros = (Decimal(0),) * len(self._resources)
        hosts = self._read_hosts()
        tenants = self._read_tenants()
        demands = self._read_demands(tenants)
        parameters, seed = self._read_parameters()
        return Problem(
            resources=self._resources,
            hosts=hosts,
            tenants=tenants,
            demands=demands,
            parameters=MappingProxyType(parameters),
            seed=seed,
        )

    def _list(self, key: str, most: int) -> list[object]:
        if not self._top.has(key):
            return []
        return read_list(self._top.get(key), (key,), self._faults, most=most)

    def _read_resources(self) -> tuple[str, ...]:
        before = len(self._faults)
        values = self._list("resources", MOST_RESOURCES)
        names = read_names(values, ("resources",), self._faults, most=MOST_RESOURCES)
        if not names or len(self._faults) > before:
            # without the axis every vector that follows would look wrong
            self._faults.raise_if_any()
        return tuple(names)

    # ------------------------------------------------------------------ hosts

    def _read_hosts(self) -> tuple[HostEntry, ...]:
        values = self._list("hosts", MOST_HOSTS)
        self._host_index = self._index(values, "hosts")
        read = [self._read_host(value, ("hosts", i)) for i, value in enumerate(values)]
        hosts = _present(read)
        total = sum(host.count for host in hosts)
        if total > MOST_HOSTS:
            self._faults.add(
                ("hosts",), f"must be at most {MOST_HOSTS:,} hosts in all, found {total:,}"
            )
        return hosts

    def _read_host(self, value: object, place: Place) -> HostEntry | None:
        faults = self._faults
        entry = Entry(
            value,
            place,
            faults,
            required=("name", "capacity"),
            optional=("free", "count", "labels"),
        )
        name = read_name(entry.get("name"), entry.at("name"), faults) if entry.has("name") else None
        capacity = self._amounts(entry, "capacity")
        free = self._amounts(entry, "free") if entry.has("free") else capacity
        count: int | None = 1
        if entry.has("count"):
            count = read_count(
                entry.get("count"), entry.at("count"), faults, least=1, most=MOST_HOSTS
            )
        labels = self._names(entry, "labels", MOST_LABELS)
        if name is None or capacity is None or free is None or count is None:
            return None
        for resource, (left, whole) in enumerate(zip(free, capacity, strict=True)):
            if left > whole:
                faults.add(
                    (*entry.at("free"), resource),
                    f"must be at most the capacity ({whole}), found {left}",
                )
        return HostEntry(
            name=name, capacity=capacity, free=free, count=count, labels=frozenset(labels)
        )

    # ---------------------------------------------------------------- tenants

    def _read_tenants(self) -> tuple[TenantEntry, ...]:
        values = self._list("tenants", MOST_HOSTS)
        self._tenant_index = self._index(values, "tenants")
        read = [self._read_tenant(value, ("tenants", i)) for i, value in enumerate(values)]
        tenants = _present(read)
        if len(tenants) == len(values):
            check_tree(tenants, self._faults)
        return tenants

    def _read_tenant(self, value: object, place: Place) -> TenantEntry | None:
        faults = self._faults
        entry = Entry(
            value, place, faults, required=("name",), optional=("weight", "parent", "held")
        )
        name = read_name(entry.get("name"), entry.at("name"), faults) if entry.has("name") else None
        weight: float | None = 1.0
        if entry.has("weight"):
            weight = read_ratio(entry.get("weight"), entry.at("weight"), faults)
        parent: int | None = None
        if entry.has("parent") and entry.get("parent") is not None:
            parent = self._tenant(entry, "parent")
        held = self._amounts(entry, "held") if entry.has("held") else self._zeros
        if name is None or weight is None or held is None:
            return None
        return TenantEntry(name=name, weight=weight, parent=parent, held=held)

    def _tenant(self, entry: Entry, key: str) -> int | None:
        name = read_name(entry.get(key), entry.at(key), self._faults)
        if name is None:
            return None
        return resolve(name, self._tenant_index, "tenant", entry.at(key), self._faults)

    # ---------------------------------------------------------------- demands

    def _read_demands(self, tenants: Sequence[TenantEntry]) -> tuple[DemandEntry, ...]:
        values = self._list("demands", MOST_HOSTS)
        self._index(values, "demands")
        read = [self._read_demand(value, ("demands", i)) for i, value in enumerate(values)]
        demands = _present(read)
        if not len(self._faults):  # what is a group can be told of sound tenants alone
            check_groups(tenants, demands, self._faults)
        return demands

    def _read_demand(self, value: object, place: Place) -> DemandEntry | None:
        faults = self._faults
        entry = Entry(
            value,
            place,
            faults,
            required=("name", "tenant", "per_vm"),
            optional=("count", "min_count", "hosts", "requires", "speed"),
        )
        name = read_name(entry.get("name"), entry.at("name"), faults) if entry.has("name") else None
        tenant = self._tenant(entry, "tenant") if entry.has("tenant") else None
        per_vm = self._amounts(entry, "per_vm")
        count, min_count = self._read_counts(entry)
        hosts = self._read_eligible_hosts(entry)
        requires = self._names(entry, "requires", MOST_LABELS)
        speed = self._read_speed(entry)
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

    def _read_counts(self, entry: Entry) -> tuple[int | None, int]:
        count: int | None = None
        if entry.has("count") and entry.get("count") is not None:
            place = entry.at("count")
            count = read_count(entry.get("count"), place, self._faults, least=0, most=MOST_COUNT)
        min_count: int | None = 1
        if entry.has("min_count"):
            place = entry.at("min_count")
            min_count = read_count(
                entry.get("min_count"), place, self._faults, least=0, most=MOST_COUNT
            )
        least = max(1, min_count or 0)
        if count is not None and least > max(1, count):
            self._faults.add(
                entry.at("min_count"), f"must be at most the count ({count}), found {least}"
            )
        return count, least

    def _read_eligible_hosts(self, entry: Entry) -> tuple[int, ...] | None:
        if not entry.has("hosts") or entry.get("hosts") is None:
            return None
        place = entry.at("hosts")
        if entry.get("hosts") == []:
            self._faults.add(place, "must not be empty; null stands for all hosts")
        names = self._names(entry, "hosts", MOST_HOSTS)
        found = (
            resolve(name, self._host_index, "host", (*place, position), self._faults)
            for position, name in enumerate(names)
        )
        return tuple(sorted(index for index in found if index is not None))

    def _read_speed(self, entry: Entry) -> MappingProxyType[int, float]:
        speed: dict[int, float] = {}
        if entry.has("speed"):
            value, place = entry.get("speed"), entry.at("speed")
            if not isinstance(value, dict):
                self._faults.add(
                    place, f"must be an object of host names and numbers, found {described(value)}"
                )
                value = {}
            self._refuse_repeated(value, place)
            for name, each in value.items():
                at = (*place, name)
                index = resolve(name, self._host_index, "host", at, self._faults)
                ratio = read_ratio(each, at, self._faults)
                if index is not None and ratio is not None:
                    speed[index] = ratio
        return MappingProxyType(speed)

    # ------------------------------------------------------------- parameters

    def _read_parameters(self) -> tuple[dict[str, object], int | None]:
        if not self._top.has("parameters"):
            return {}, None
        value, place = self._top.get("parameters"), ("parameters",)
        if not isinstance(value, dict):
            self._faults.add(place, f"must be an object, found {described(value)}")
            return {}, None
        self._refuse_repeated(value, place)
        seed: int | None = None
        if "seed" in value:
            at = (*place, "seed")
            seed = read_count(value["seed"], at, self._faults, least=0, most=MOST_SEED)
        plain = {
            key: self._plain(each, (*place, key), 1) for key, each in value.items() if key != "seed"
        }
        return plain, seed

    def _plain(self, value: object, place: Place, depth: int) -> object:
        """Turn exact numbers into ints and floats; what they mean is the policy's to judge."""
        if depth > _DEEPEST_PARAMETER:
            refuse(place, "is nested too deeply")
        if isinstance(value, NotANumber):
            self._faults.add(place, f"must be a finite number, found {value}")
            return None
        if isinstance(value, Decimal):
            return self._plain_decimal(value, place)
        if isinstance(value, list):
            return [self._plain(each, (*place, i), depth + 1) for i, each in enumerate(value)]
        if isinstance(value, dict):
            self._refuse_repeated(value, place)
            return {key: self._plain(each, (*place, key), depth + 1) for key, each in value.items()}
        return value

    def _plain_decimal(self, value: Decimal, place: Place) -> int | float:
        if value.adjusted() > 30:
            self._faults.add(place, f"must be a number below 1e30, found {value}")
            return 0
        return int(value) if value == value.to_integral_value() else float(value)

    # ----------------------------------------------------------------- shared

    def _amounts(self, entry: Entry, key: str) -> Amounts | None:
        if not entry.has(key):
            return None
        return read_amounts(entry.get(key), entry.at(key), self._faults, self._resources)

    def _names(self, entry: Entry, key: str, most: int) -> list[str]:
        if not entry.has(key):
            return []
        return read_names(entry.get(key), entry.at(key), self._faults, most=most)

    def _index(self, values: Sequence[object], kind: str) -> dict[str, int]:
        """Return the position of each name; a name that stands twice is a fault."""
        index: dict[str, int] = {}
        for position, value in enumerate(values):
            name = value.get("name") if isinstance(value, dict) else None
            if not isinstance(name, str):
                continue
            if name in index:
                first = f"{kind}[{index[name]}]"
                self._faults.add(
                    (kind, position, "name"), f"{quoted(name)} is the name of {first} already"
                )
            else:
                index[name] = position
        return index

    def _refuse_repeated(self, value: dict[str, object], place: Place) -> None:
        if isinstance(value, RepeatedKeys):
            for key in value.repeated:
                self._faults.add((*place, key), "this key stands more than once")


def _present(read: Sequence[_Read | None]) -> tuple[_Read, ...]:
    return tuple(each for each in read if each is not None)
