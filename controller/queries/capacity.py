"""How many more VMs of a type fit now, where, and which resource runs out first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from controller.queries.coarse_numbers import step_below
from placement import BoolArray, IntArray
from placement.model.vm_kinds import vms_that_fit
from registry.requests import Rules, rules_allow, zone_of
from registry.rounds import CapacityView, HostView

#: VMs that one request may ask for.
MAX_VMS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HostClass:
    """Hosts alike in labels and capacity."""

    labels: tuple[str, ...]
    capacity: Mapping[str, int]  #: of one host
    hosts: int
    open: int  #: of them, those that would take such a VM if they had room
    fits: int  #: VMs, on all of them
    runs_out_first: str | None  #: on most of the open ones; None: a group ends first


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """How many more VMs of a type fit now, and how many once those that wait are placed."""

    vm_type: str
    demand: Mapping[str, int]  #: of one VM
    fits: int  #: as if no request waited
    runs_out_first: str | None
    hosts: int
    open: int
    classes: tuple[HostClass, ...]  #: those that hold most first; for operators only
    at_least: bool = False  #: the numbers are steps: it may be more, up to the next one
    #: once those that wait and are owed before are served; None: not reckoned
    in_turn: int | None = None


def capacity_left(
    view: CapacityView,
    vm_type: str,
    *,
    requires: Sequence[str],
    named: Sequence[str] | None,
    rules: Rules,
) -> Capacity:
    """Return how many VMs of one request with these rules fit on the hosts as they are."""
    demand = np.array(view.demand, dtype=np.int64)
    hosts = view.hosts
    capacity = _int_rows([host.capacity for host in hosts], len(demand))
    free = np.maximum(capacity - _int_rows([host.committed for host in hosts], len(demand)), 0)
    is_open = np.array(
        [
            host.accepts and rules_allow(rules, requires, named, host=host.name, labels=host.labels)
            for host in hosts
        ],
        dtype=np.bool_,
    )
    by_room = vms_that_fit(free, demand) * is_open
    fits = _limited_by_groups(by_room, view, rules)
    # Where a group leaves room unused no resource ends first.
    bound_by_room = is_open & (fits == by_room)
    ends_first = _scarcest_resources(free, demand)
    total = _total_in_zones(fits, hosts, rules, requires, named)
    members: dict[tuple[tuple[str, ...], tuple[int, ...]], list[int]] = {}
    for index, host in enumerate(hosts):
        members.setdefault((host.labels, host.capacity), []).append(index)
    classes = [
        HostClass(
            labels=labels,
            capacity=_amounts_by_name(view.resources, offered),
            hosts=len(listed),
            open=int(is_open[listed].sum()),
            fits=int(fits[listed].sum()),
            runs_out_first=_most_frequent_resource(
                view.resources, ends_first, bound_by_room, listed
            ),
        )
        for (labels, offered), listed in members.items()
    ]
    classes.sort(key=lambda each: (-each.fits, -each.open, each.labels))
    return Capacity(
        vm_type=vm_type,
        demand={name: n for name, n in _amounts_by_name(view.resources, view.demand).items() if n},
        fits=total,
        runs_out_first=_most_frequent_resource(
            view.resources, ends_first, bound_by_room, range(len(hosts))
        ),
        hosts=len(hosts),
        open=int(is_open.sum()),
        classes=tuple(classes),
    )


def capacity_in_steps(found: Capacity, *, named: bool) -> Capacity:
    """Return a tenant's view: no exact number, and nothing about single hosts.

    Of hosts that the question names, only whether there is room at all.
    """

    def step(number: int) -> int:
        return min(number, 1) if named else step_below(number)

    return replace(
        found,
        fits=step(found.fits),
        in_turn=None if found.in_turn is None else step(found.in_turn),
        hosts=step_below(found.hosts),
        open=step_below(found.open),
        runs_out_first=None if named else found.runs_out_first,
        classes=(),
        at_least=True,
    )


def _limited_by_groups(fits: IntArray, view: CapacityView, rules: Rules) -> IntArray:
    """Return the VMs that fit on each host, given its VMs of the hard groups."""
    fits = fits.copy()
    places = {host.id: index for index, host in enumerate(view.hosts)}
    if rules.anti_affinity is not None and not rules.anti_affinity.soft:
        fits = np.minimum(fits, 1)
        fits[[places[host] for host in view.apart_from if host in places]] = 0
    if rules.affinity is not None and not rules.affinity.soft and len(fits):
        here = [places[host] for host in view.together_with if host in places]
        if not view.together_with:
            here = [int(fits.argmax())]
        elsewhere = np.ones(len(fits), dtype=np.bool_)
        elsewhere[here] = False
        fits[elsewhere] = 0
    return fits


def _total_in_zones(
    fits: IntArray,
    hosts: Sequence[HostView],
    rules: Rules,
    requires: Sequence[str],
    named: Sequence[str] | None,
) -> int:
    """Return how many VMs fit in all: of a spread request no zone more than its part."""
    if rules.spread is None:
        return int(fits.sum())
    in_zone: Counter[str] = Counter()
    for host, count in zip(hosts, fits.tolist(), strict=True):
        zone = zone_of(host.labels)
        if zone is not None and rules_allow(
            rules, requires, named, host=host.name, labels=host.labels
        ):
            in_zone[zone] += count
    most = 0
    for part in range(1, min(max(in_zone.values(), default=0), MAX_VMS) + 1):
        found = min(sum(min(count, part) for count in in_zone.values()), part * len(in_zone))
        if found <= (part - 1) * len(in_zone):
            break  # so few VMs would be divided into smaller parts
        most = found
    return most


def _scarcest_resources(free: IntArray, demand: IntArray) -> IntArray:
    """Return the resource that ends first on each host, shape (H,)."""
    demanded = np.flatnonzero(demand)
    if not len(demanded):
        return np.full(len(free), -1, dtype=np.int64)
    # In parts of a VM, so that of two that hold as many VMs the one with less left ends first.
    return np.asarray(
        demanded[(free[:, demanded] / demand[demanded]).argmin(axis=1)], dtype=np.int64
    )


def _most_frequent_resource(
    resources: Sequence[str], ends_first: IntArray, which: BoolArray, hosts: Sequence[int]
) -> str | None:
    counted = Counter(int(ends_first[host]) for host in hosts if which[host])
    if not counted:
        return None
    resource = min(counted, key=lambda each: (-counted[each], each))
    return resources[resource] if resource >= 0 else None


def _amounts_by_name(resources: Sequence[str], amounts: Sequence[int]) -> dict[str, int]:
    return dict(zip(resources, amounts, strict=True))


def _int_rows(rows: Sequence[Sequence[int]], width: int) -> IntArray:
    return np.array(rows, dtype=np.int64).reshape(len(rows), width)
