"""Groups of alike hosts, and three models of them in an integer program.

Let a class be n hosts of equal room and host class, and let x[t] be the VMs of
kind t that all of them hold.

*Together* (`PooledHosts`): sum_t x[t] demand[t] <= n room. Every allocation
satisfies it, so the program's optimum bounds all allocations; but the sum of
rooms may hold what no division among hosts does, two VMs of 3 cores in twice
3.5. Its answer counts only once it has been packed.

*By pattern* (`PatternHosts`): y[p] hosts hold at most the VMs of pattern p,
sum_p y[p] = n, x[t] <= sum_p y[p] p[t], over all maximal combinations p that
fit in one host. Exact. Each host of an allocation holds some combination, below
some maximal one: count hosts by it, and the rows hold. Conversely y in whole
numbers names a pattern for every host, which fits, and VMs that are fewer than
its pattern fit as well. That y is whole is what makes it so.

*One by one* (`SingleHosts`): a column for each host and kind, a row for each host
and resource. Exact by definition, but hosts that are alike can be swapped, which
makes the search long; for classes of too many patterns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from placement.model.arrays import IntArray
from placement.policies.optimal.integer_program import IntegerProgram


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class HostGroup:
    """Hosts of equal room and host class, and the kinds that fit on one of them."""

    hosts: IntArray  #: (X,) in order
    room: tuple[int, ...]  #: of each
    kinds: tuple[int, ...]
    demands: tuple[tuple[int, ...], ...]  #: of those kinds
    maximum: tuple[int, ...]  #: VMs of each of those kinds that one host may take


class HostsModel(Protocol):
    """A model of the VMs on a group of hosts, in columns of an integer program."""

    def supply(self) -> Iterator[tuple[int, int, int]]:
        """Yield (kind, column, n): the column's value times n VMs of the kind fit on the hosts."""
        ...

    def vms_on_hosts(self, values: Sequence[int]) -> Iterator[tuple[int, Mapping[int, int]]]:
        """Yield each host with its VMs by kind, read from the program's solution."""
        ...


class PooledHosts:
    """A group as one large host: a bound, not an allocation."""

    def __init__(self, program: IntegerProgram, group: HostGroup) -> None:
        self.group = group
        number = len(group.hosts)
        self.columns = [program.add_column(number * maximum) for maximum in group.maximum]
        _room_rows(program, self.columns, group, number)

    def supply(self) -> Iterator[tuple[int, int, int]]:
        """Yield (kind, column, 1): each column counts the VMs of one kind on all hosts."""
        for kind, column in zip(self.group.kinds, self.columns, strict=True):
            yield kind, column, 1


class PatternHosts:
    """A group by the maximal combinations that one host holds."""

    def __init__(
        self, program: IntegerProgram, group: HostGroup, patterns: Sequence[tuple[int, ...]]
    ) -> None:
        self._group, self._patterns = group, patterns
        number = len(group.hosts)
        self._columns = [program.add_column(number) for _ in patterns]
        program.add_row([(column, 1.0) for column in self._columns], maximum=number)

    def supply(self) -> Iterator[tuple[int, int, int]]:
        """Yield (kind, column, n): each host of a pattern's column holds n VMs of the kind."""
        for column, pattern in zip(self._columns, self._patterns, strict=True):
            for kind, count in zip(self._group.kinds, pattern, strict=True):
                if count:
                    yield kind, column, count

    def vms_on_hosts(self, values: Sequence[int]) -> Iterator[tuple[int, Mapping[int, int]]]:
        """Yield each host with its pattern's VMs; the first hosts have the first pattern."""
        hosts = iter(self._group.hosts.tolist())
        for column, pattern in zip(self._columns, self._patterns, strict=True):
            for _ in range(values[column]):
                yield next(hosts), dict(zip(self._group.kinds, pattern, strict=True))


class SingleHosts:
    """A group host by host."""

    def __init__(self, program: IntegerProgram, group: HostGroup) -> None:
        self._group = group
        self._columns = []
        for _ in group.hosts:
            columns = [program.add_column(maximum) for maximum in group.maximum]
            _room_rows(program, columns, group, 1)
            self._columns.append(columns)

    def supply(self) -> Iterator[tuple[int, int, int]]:
        """Yield (kind, column, 1): each column counts the VMs of one kind on one host."""
        for columns in self._columns:
            for kind, column in zip(self._group.kinds, columns, strict=True):
                yield kind, column, 1

    def vms_on_hosts(self, values: Sequence[int]) -> Iterator[tuple[int, Mapping[int, int]]]:
        """Yield each host with the VMs in its own columns."""
        for host, columns in zip(self._group.hosts.tolist(), self._columns, strict=True):
            counts = (values[column] for column in columns)
            yield host, dict(zip(self._group.kinds, counts, strict=True))


def _room_rows(
    program: IntegerProgram, columns: Sequence[int], group: HostGroup, number: int
) -> None:
    """Add rows to the program that keep VMs within hosts' room, one for each scarce resource.

    Rows are divided by what all their amounts have in common, exactly.
    """
    for resource, room in enumerate(group.room):
        amounts = [demand[resource] for demand in group.demands]
        unit = int(np.gcd.reduce(amounts))
        if unit:
            # What is left of a host below the unit cannot be used.
            maximum = number * (room // unit)
            program.add_row(
                [
                    (column, amount / unit)
                    for column, amount in zip(columns, amounts, strict=True)
                    if amount
                ],
                maximum=float(maximum),
            )
