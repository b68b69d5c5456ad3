"""Group hosts that are alike to every request; which requests may use them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from placement.model.arrays import BoolArray, IntArray


class HostTraits(Protocol):
    """The traits by which requests distinguish hosts."""

    @property
    def id(self) -> object:
        """The id by which requests avoid the host."""
        ...

    @property
    def name(self) -> str:
        """The name by which requests require the host."""
        ...

    @property
    def accepts(self) -> bool:
        """Whether the host takes VMs now."""
        ...

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the host."""
        ...


class HostPreferences(Protocol):
    """The hosts that a request requires or avoids by name."""

    @property
    def hosts(self) -> tuple[str, ...] | None:
        """Names of the only hosts that the request accepts; None: any."""
        ...

    @property
    def avoid(self) -> tuple[object, ...]:
        """Ids of hosts that the request avoids."""
        ...


Host = TypeVar("Host", bound=HostTraits)
Request = TypeVar("Request", bound=HostPreferences)


@dataclass(frozen=True, slots=True, eq=False)
class HostClasses:
    """The C classes among H hosts, in order of first appearance."""

    of_host: IntArray  #: (H,)
    example: tuple[int, ...]  #: (C,) the first host of each class


def host_classes(hosts: Sequence[HostTraits], requests: Iterable[HostPreferences]) -> HostClasses:
    """Group hosts into classes that are alike to every request.

    Two hosts are of one class if they accept alike, carry the same labels, and
    no request names one of them, or avoids it, but not the other.
    """
    wanted = list(requests)
    naming = _sets_by_member({each.hosts for each in wanted if each.hosts is not None})
    avoiding = _sets_by_member({each.avoid for each in wanted})
    class_of: dict[object, int] = {}
    example: list[int] = []
    of_host = np.empty(len(hosts), dtype=np.int64)
    for index, host in enumerate(hosts):
        key = (host.accepts, host.labels, naming.get(host.name), avoiding.get(host.id))
        if key not in class_of:
            class_of[key] = len(example)
            example.append(index)
        of_host[index] = class_of[key]
    return HostClasses(of_host, tuple(example))


def _sets_by_member(sets: Collection[tuple[object, ...]]) -> dict[object, frozenset[int]]:
    """Return by member the numbers of the sets that have it.

    Thousands of requests may each name a host: no host is looked for in the set of each.
    """
    found: defaultdict[object, set[int]] = defaultdict(set)
    for number, members in enumerate(sets):
        for member in members:
            found[member].add(number)
    return {member: frozenset(numbers) for member, numbers in found.items()}


def eligibility(
    hosts: Sequence[Host],
    classes: HostClasses,
    requests: Sequence[Request],
    may_use: Callable[[Request, Host], bool],
) -> BoolArray:
    """Return which host classes each request may use, shape (Q, C).

    Of a request that names hosts only the classes with these are examined: thousands of requests
    may each name a host, which then is a class of its own.
    """
    eligible = np.zeros((len(requests), len(classes.example)), dtype=np.bool_)
    column_of = {hosts[host].name: column for column, host in enumerate(classes.example)}
    everywhere = range(len(classes.example))
    for row, request in enumerate(requests):
        columns: Iterable[int] = everywhere
        if request.hosts is not None:
            columns = [column_of[name] for name in request.hosts if name in column_of]
        for column in columns:
            host = hosts[classes.example[column]]
            eligible[row, column] = _accepts_request(request, host) and may_use(request, host)
    return eligible


def _accepts_request(request: HostPreferences, host: HostTraits) -> bool:
    """Return whether a host takes VMs now, and the request does not avoid it."""
    return host.accepts and host.id not in request.avoid


def preferred_classes(
    hosts: Sequence[HostTraits], classes: HostClasses, prefers: Mapping[int, Collection[str]]
) -> dict[int, tuple[int, ...]]:
    """Return the host classes with all labels that a request prefers, by request.

    Parameters
    ----------
    prefers : mapping
        Labels by request; those without any have no preference.
    """
    return {
        row: tuple(
            column
            for column, host in enumerate(classes.example)
            if set(labels) <= set(hosts[host].labels)
        )
        for row, labels in prefers.items()
        if labels
    }
