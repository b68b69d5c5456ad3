"""From a `Problem` to the `Snapshot` that a policy decides on, host by host."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import numpy as np

from placement.model.arrays import BoolArray, IntArray
from placement.model.snapshot import Snapshot
from placement.model.vm_kinds import total_vms_that_fit
from placement.solve.problem.faults import Place, ProblemFaults
from placement.solve.problem.model import Amounts, Problem
from placement.solve.problem.tenant_trees import build_tree, leaf_tenants

_MICRO: Final = 10**6
#: What arithmetic with doubles leaves of a decimal, in parts of it: 0.0025870000000000003
#: was meant to be 0.002587.
_ROUNDING_PARTS: Final = 10**14


def common_divisor(amounts: Iterable[int]) -> int:
    """Return the largest number that divides all amounts of a resource, given in millionths.

    A memory given in bytes or in GiB thus ends in the same integers, small ones,
    and no share changes: every share is a ratio within one resource.
    """
    grid = 0
    for amount in set(amounts):
        grid = math.gcd(grid, amount)
        if grid == 1:
            break
    return grid or 1


def millionths(amount: Decimal) -> int | None:
    """Return an amount in millionths; None if it has more than six decimal places."""
    numerator, denominator = amount.as_integer_ratio()
    numerator *= _MICRO
    whole = (2 * numerator + denominator) // (2 * denominator)
    rest = abs(numerator - whole * denominator)
    return whole if rest * _ROUNDING_PARTS <= numerator else None


#: What hosts offer, tenants hold and demands want of one resource, each in all,
#: counted in the resource's grid: sums of several such totals stay within int64.
MAX_TOTAL: Final = 10**18
#: VMs that a problem may leave room for: policies place them one by one.
MAX_VMS: Final = 2_000_000
#: Numbers of one array (hosts × resources, demands × host classes, ...).
MAX_CELLS: Final = 50_000_000
#: Demands × hosts: policies look for room for each demand on each host.
MAX_PAIRS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class WholeVmProblem:
    """A problem as whole-VM policies see it: one row per host, amounts as integers."""

    problem: Problem
    snapshot: Snapshot  #: hosts, tenants and demands in file order
    entry: IntArray  #: (H,) index of `Problem.hosts` that each host belongs to
    tenants: tuple[int, ...]  #: (N,) indices of `Problem.tenants`: those that are no groups

    def host_names(self) -> tuple[str, ...]:
        """Names of the snapshot's hosts one by one; see `HostEntry.member_names`."""
        return tuple(name for host in self.problem.hosts for name in host.member_names())

    def host_indices(self) -> dict[str, tuple[int, ...]]:
        """Return the snapshot's hosts behind each name of the file: an entry's, or one member's."""
        indices: dict[str, tuple[int, ...]] = {}
        start = 0
        for host in self.problem.hosts:
            members = range(start, start + host.count)
            if host.count > 1:
                for name, index in zip(host.member_names(), members, strict=True):
                    indices[name] = (index,)
            indices[host.name] = tuple(members)
            start += host.count
        return indices


def to_whole_vms(problem: Problem) -> WholeVmProblem:
    """Convert a problem file into the snapshot that a policy decides on, host by host.

    Every resource is scaled to integers, exactly. A class of n hosts becomes n
    hosts. A demand without a count gets the most VMs that the free capacity of
    its eligible hosts, taken together, could hold, but no fewer than its
    ``min_count``.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    WholeVmProblem

    Raises
    ------
    ProblemError
        If the problem uses what only mechanisms know (speeds), or needs more
        than the documented limits.
    """
    faults = ProblemFaults()
    _refuse_unsupported_fields(problem, faults)
    _refuse_ambiguous_members(problem, faults)
    faults.raise_if_any()

    entry_count = np.array([host.count for host in problem.hosts], dtype=np.int64)
    entry = np.repeat(np.arange(len(problem.hosts)), entry_count)
    if len(entry) * len(problem.resources) > MAX_CELLS:
        faults.add(("hosts",), f"hosts × resources must be at most {MAX_CELLS:,}")
    if len(entry) * len(problem.demands) > MAX_PAIRS:
        faults.add(
            ("demands",),
            f"{len(problem.demands):,} demands × {len(entry):,} hosts "
            f"must be at most {MAX_PAIRS:,}",
        )
    faults.raise_if_any()
    tenants = leaf_tenants(problem)
    row_of = {tenant: row for row, tenant in enumerate(tenants)}
    columns = _IntegerArrays(problem, tenants, faults)
    faults.raise_if_any()

    entry_class, eligible = _host_classes(problem, faults)
    class_free = np.zeros((eligible.shape[1], len(problem.resources)), dtype=np.int64)
    np.add.at(class_free, entry_class, columns.free * entry_count[:, np.newaxis])
    count = _wanted_counts(problem, columns.demand, class_free, eligible, faults)
    faults.raise_if_any()
    snapshot = Snapshot(
        resources=problem.resources,
        capacity=columns.capacity[entry],
        free=columns.free[entry],
        host_class=entry_class[entry],
        eligible=eligible,
        demand=columns.demand,
        count=count,
        min_count=np.array([demand.min_count for demand in problem.demands], dtype=np.int64),
        tenant=np.array([row_of[demand.tenant] for demand in problem.demands], dtype=np.int64),
        age=np.zeros(len(problem.demands), dtype=np.int64),
        weight=np.array([problem.tenants[each].weight for each in tenants], dtype=np.float64),
        held=columns.held,
        tree=build_tree(problem, tenants),
    )
    return WholeVmProblem(problem=problem, snapshot=snapshot, entry=entry, tenants=tenants)


def _refuse_unsupported_fields(problem: Problem, faults: ProblemFaults) -> None:
    """Record fields that policies for whole VMs do not take (speeds) as faults."""
    for index, demand in enumerate(problem.demands):
        for host, speed in demand.speed.items():
            if speed != 1.0:
                faults.add(
                    ("demands", index, "speed", problem.hosts[host].name),
                    "speeds are for mechanisms; a policy that places whole VMs takes 1 only, "
                    f"found {speed:g}",
                )
    for place, amounts in _all_amounts(problem):
        for position, amount in enumerate(amounts):
            if millionths(amount) is None:
                faults.add(
                    (*place, position),
                    "must have at most six decimal places for a policy that places whole VMs "
                    f"(mechanisms take more), found {amount}",
                )


def _all_amounts(problem: Problem) -> Iterator[tuple[Place, Amounts]]:
    """Yield all amounts of a problem file with their places."""
    for index, host in enumerate(problem.hosts):
        yield ("hosts", index, "capacity"), host.capacity
        if host.free is not host.capacity:  # given in the file
            yield ("hosts", index, "free"), host.free
    for index, tenant in enumerate(problem.tenants):
        yield ("tenants", index, "held"), tenant.held
    for index, demand in enumerate(problem.demands):
        yield ("demands", index, "per_vm"), demand.per_vm


def _refuse_ambiguous_members(problem: Problem, faults: ProblemFaults) -> None:
    """Refuse a host that has the name of a member of a class, as ``s1#3``."""
    size = {host.name: host.count for host in problem.hosts}
    for index, host in enumerate(problem.hosts):
        base, mark, number = host.name.rpartition("#")
        is_number = number.isascii() and number.isdigit() and not number.startswith("0")
        if mark and is_number and len(number) < 9 and 1 < size.get(base, 0) >= int(number):
            faults.add(
                ("hosts", index, "name"), f"is also the name of a host of the class {base!r}"
            )


class _IntegerArrays:
    """A problem's amounts as integers: (E, R) of host entries, (N, R) held, (Q, R) demands."""

    def __init__(self, problem: Problem, leaves: Sequence[int], faults: ProblemFaults) -> None:
        hosts, demands = problem.hosts, problem.demands
        tenants = [problem.tenants[leaf] for leaf in leaves]
        shape = (len(hosts), len(problem.resources))
        self.capacity = np.zeros(shape, dtype=np.int64)
        self.free = np.zeros(shape, dtype=np.int64)
        self.held = np.zeros((len(tenants), shape[1]), dtype=np.int64)
        self.demand = np.zeros((len(demands), shape[1]), dtype=np.int64)
        for r, name in enumerate(problem.resources):
            capacity = [host.capacity[r] for host in hosts]
            free = [host.free[r] for host in hosts]
            held = [tenant.held[r] for tenant in tenants]
            per_vm = [demand.per_vm[r] for demand in demands]
            columns = [_to_millionths(values) for values in (capacity, free, held, per_vm)]
            grid = common_divisor(amount for column in columns for amount in column)
            scaled = [[amount // grid for amount in column] for column in columns]
            offered = sum(each * host.count for each, host in zip(scaled[0], hosts, strict=True))
            wanted = sum(
                each * (1 if demand.count is None else demand.count)
                for each, demand in zip(scaled[3], demands, strict=True)
            )
            for where, total in (
                ("hosts", offered),
                ("tenants", sum(scaled[2])),
                ("demands", wanted),
            ):
                if total > MAX_TOTAL:
                    faults.add(
                        (where,),
                        f"add up to {total:.1e} of the smallest unit of {name!r} "
                        f"that the file distinguishes; at most {MAX_TOTAL:.0e} can be counted",
                    )
                    break
            else:
                self.capacity[:, r], self.free[:, r] = scaled[0], scaled[1]
                self.held[:, r], self.demand[:, r] = scaled[2], scaled[3]


def _to_millionths(amounts: Iterable[Decimal]) -> list[int]:
    """Return amounts in millionths; `_refuse_unsupported_fields` has checked that this is exact."""
    return [whole for amount in amounts if (whole := millionths(amount)) is not None]


def _host_classes(problem: Problem, faults: ProblemFaults) -> tuple[IntArray, BoolArray]:
    """Return the class of each host entry, (E,), and the classes open to each demand, (Q, C).

    Entries are of one class when they carry the same labels and are in the same
    `hosts` lists: no demand can then distinguish them.
    """
    lists: dict[tuple[int, ...], int] = {}
    for demand in problem.demands:
        if demand.hosts is not None:
            lists.setdefault(demand.hosts, len(lists))
    named_in: list[list[int]] = [[] for _ in problem.hosts]
    for hosts, number in lists.items():
        for host in hosts:
            named_in[host].append(number)

    classes: dict[tuple[frozenset[str], tuple[int, ...]], int] = {}
    entry_class = np.array(
        [
            classes.setdefault((host.labels, tuple(named_in[index])), len(classes))
            for index, host in enumerate(problem.hosts)
        ],
        dtype=np.int64,
    )
    if len(problem.demands) * len(classes) > MAX_CELLS:
        faults.add(
            ("demands",),
            f"{len(problem.demands):,} demands × {len(classes):,} kinds of hosts that they "
            f"distinguish must be at most {MAX_CELLS:,}",
        )
        faults.raise_if_any()

    rows: dict[tuple[frozenset[str], int], BoolArray] = {}
    eligible = np.ones((len(problem.demands), len(classes)), dtype=np.bool_)
    for index, demand in enumerate(problem.demands):
        number = -1 if demand.hosts is None else lists[demand.hosts]
        key = (demand.requires, number)
        if key not in rows:
            rows[key] = np.array(
                [
                    demand.requires <= labels and (number < 0 or number in members)
                    for labels, members in classes
                ],
                dtype=np.bool_,
            )
        eligible[index] = rows[key]
    return entry_class, eligible


def _wanted_counts(
    problem: Problem,
    demand: IntArray,
    class_free: IntArray,
    eligible: BoolArray,
    faults: ProblemFaults,
) -> IntArray:
    """Return the VMs wanted of each demand, (Q,); bounded by the room where the file says null."""
    room = np.array(
        [
            total_vms_that_fit(class_free[may].sum(axis=0, keepdims=True), per_vm)
            for per_vm, may in zip(demand, eligible, strict=True)
        ],
        dtype=np.int64,
    )
    requested = np.array(
        [
            _count_without_limit(int(room[index]), each.min_count)
            if each.count is None
            else each.count
            for index, each in enumerate(problem.demands)
        ],
        dtype=np.int64,
    )
    for resource, column in zip(problem.resources, demand.T, strict=True):
        total = sum(int(n) * int(each) for n, each in zip(requested, column, strict=True))
        if total > MAX_TOTAL:
            faults.add(
                ("demands",), f"want {total:.1e} of {resource!r} in all, too much to be counted"
            )

    placeable = int(np.minimum(requested, room).sum(dtype=np.float64))
    for offered, minimum in zip(class_free.sum(axis=0), demand.min(axis=0), strict=True):
        if minimum > 0:
            placeable = min(placeable, int(offered // minimum))
    if placeable > MAX_VMS:
        faults.add(
            ("demands",),
            f"there is room for about {placeable:,} VMs; policies place at most {MAX_VMS:,}",
        )
    return requested


def _count_without_limit(room: int, min_count: int) -> int:
    """Return the VMs of a demand without a count: what has room, at least ``min_count``."""
    return max(room, min_count) if min_count > 1 else room
