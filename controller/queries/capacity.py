"""How many more VMs of a type fit now, where, and which resource runs out first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from controller.queries.coarse_numbers import round_down_to_step
from placement import BoolArray, IntArray
from placement.model.vm_kinds import vms_that_fit
from registry.requests import Rules, rules_allow, zone_of
from registry.rounds import CapacityView, HostView

#: VMs that one request may ask for.
MAX_VMS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HostClass:
    """Hosts with the same labels and capacity."""

    labels: tuple[str, ...]
    capacity: Mapping[str, int]  #: of one host
    hosts: int
    open: int  #: hosts that would take such a VM if they had room
    fits: int  #: VMs that fit on all of them together
    runs_out_first: str | None  #: on most open hosts; None: a VM group limits them first


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The number of VMs of a type that fit now, and after the queue ahead of them is served."""

    vm_type: str
    demand: Mapping[str, int]  #: of one VM
    fits: int  #: if no request waited
    runs_out_first: str | None
    hosts: int
    open: int
    classes: tuple[HostClass, ...]  #: sorted by the number that fits; operators only
    at_least: bool = False  #: the numbers are rounded down to steps
    #: after the waiting requests with a smaller share are served; None: not computed
    in_turn: int | None = None


def capacity_left(
    view: CapacityView,
    vm_type: str,
    *,
    requires: Sequence[str],
    named: Sequence[str] | None,
    rules: Rules,
) -> Capacity:
    """Return how many more VMs of a type fit on the hosts now, by the rules of a request."""
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
    fits = _capacity_within_groups(by_room, view, rules)
    # On hosts limited by a VM group no resource runs out first.
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


def redact_capacity(found: Capacity, *, named: bool) -> Capacity:
    """Return a capacity as a tenant may see it: numbers rounded coarsely, no single hosts.

    If the query names hosts, the tenant learns only whether there is any room on them.
    """

    def round_number(number: int) -> int:
        return min(number, 1) if named else round_down_to_step(number)

    return replace(
        found,
        fits=round_number(found.fits),
        in_turn=None if found.in_turn is None else round_number(found.in_turn),
        hosts=round_down_to_step(found.hosts),
        open=round_down_to_step(found.open),
        runs_out_first=None if named else found.runs_out_first,
        classes=(),
        at_least=True,
    )


def _capacity_within_groups(fits: IntArray, view: CapacityView, rules: Rules) -> IntArray:
    """Return the number of VMs that fit on each host within the hard VM groups."""
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
    """Return the total number of VMs that fit, with even parts per zone for a spread request."""
    if rules.spread is None:
        return int(fits.sum())
    in_zone: Counter[str] = Counter()
    for host, count in zip(hosts, fits.tolist(), strict=True):
        zone = zone_of(host.labels)
        if zone is not None and rules_allow(
            rules, requires, named, host=host.name, labels=host.labels
        ):
            in_zone[zone] += count
    total = 0
    for part in range(1, min(max(in_zone.values(), default=0), MAX_VMS) + 1):
        found = min(sum(min(count, part) for count in in_zone.values()), part * len(in_zone))
        if found <= (part - 1) * len(in_zone):
            break  # with that few VMs the parts would be smaller
        total = found
    return total


def _scarcest_resources(free: IntArray, demand: IntArray) -> IntArray:
    """Return the index of the resource that runs out first on each host, shape (H,)."""
    demanded = np.flatnonzero(demand)
    if not len(demanded):
        return np.full(len(free), -1, dtype=np.int64)
    # In fractions of a VM: of two resources for equally many VMs, the one with less left counts.
    return np.asarray(
        demanded[(free[:, demanded] / demand[demanded]).argmin(axis=1)], dtype=np.int64
    )


def _most_frequent_resource(
    resources: Sequence[str], ends_first: IntArray, which: BoolArray, hosts: Sequence[int]
) -> str | None:
    """Return the resource that runs out first on most of the hosts; None if on none."""
    counted = Counter(int(ends_first[host]) for host in hosts if which[host])
    if not counted:
        return None
    resource = min(counted, key=lambda each: (-counted[each], each))
    return resources[resource] if resource >= 0 else None


def _amounts_by_name(resources: Sequence[str], amounts: Sequence[int]) -> dict[str, int]:
    return dict(zip(resources, amounts, strict=True))


def _int_rows(rows: Sequence[Sequence[int]], width: int) -> IntArray:
    return np.array(rows, dtype=np.int64).reshape(len(rows), width)
