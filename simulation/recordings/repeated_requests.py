"""Repeat recent requests as the expected future of the site.

The site as it is stands at time 0; the requests of a past time follow at the same distances.
How long VMs live that have not ended is drawn, from how long others did.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import numpy as np

from placement.forecast.lifetimes import Lifetimes, ObservedLifetimes
from registry.admin import PastPeriod, PastRequest, PastVm

#: Nothing ends later than this: further than any simulation goes, and a time that can be written.
_LONGEST_S: Final = 10 * 365 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedLife:
    """How long a VM lived, or has lived so far, with its tenant and size."""

    tenant: str
    demand: Mapping[str, int]
    lived_s: float
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedPeriod:
    """The expected future, and the past period it repeats."""

    past: PastPeriod
    since: datetime  #: requests from then on are repeated
    vms_left_out: int  #: requested earlier in the wanted period
    lifetimes_known: bool  #: False: what runs is taken to run on


def latest_requests(past: PastPeriod, max_vms: int) -> tuple[list[PastRequest], datetime, int]:
    """Return a period's latest requests, the time of their first, and how many VMs are left out.

    One request that is larger is kept whole. Requests that were open when the period began are
    skipped.
    """
    kept: deque[PastRequest] = deque()
    vms = left_out = 0
    since = past.since
    for request in past.requests:
        if request.requested_at <= past.since:
            continue
        kept.append(request)
        vms += len(request.vms)
        while vms > max_vms and len(kept) > 1:
            gone = kept.popleft()
            vms -= len(gone.vms)
            left_out += len(gone.vms)
            since = gone.requested_at
    return list(kept), since, left_out


def repeat_requests(
    present: PastPeriod,
    window: PastPeriod,
    lives: Iterable[ObservedLife],
    *,
    max_vms: int,
    seed: int,
) -> RepeatedPeriod:
    """Return the present site with the requests of ``window`` repeated as its expected future.

    Parameters
    ----------
    present : PastPeriod
        The running and waiting VMs at the end of ``window``.
    window : PastPeriod
    max_vms : int
        The largest number of VMs to repeat; the earliest requests beyond it are left out.
    """
    now, length = present.until, window.until - window.since
    arrivals, since, left_out = latest_requests(window, max_vms)
    standing = list(present.requests)
    drawing = _LifetimeSampler(lives, seed)
    ends = drawing.ends(
        itertools.chain(((each, now) for each in standing), ((each, None) for each in arrivals)),
        now,
    )
    requests = itertools.chain(
        (replace(each, vms=next(ends)) for each in standing),
        (_shift_request(replace(each, vms=next(ends)), length) for each in arrivals),
    )
    past = replace(present, since=now, until=now + length, requests=_as_iterator(requests))
    return RepeatedPeriod(
        past=past, since=since, vms_left_out=left_out, lifetimes_known=drawing.lifetimes.is_known
    )


def _as_iterator(requests: Iterable[PastRequest]) -> Iterator[PastRequest]:
    """Yield past requests one after the other."""
    yield from requests


def _shift_request(request: PastRequest, by: timedelta) -> PastRequest:
    """Return a past request shifted in time, without its hosts."""
    return replace(
        request,
        requested_at=request.requested_at + by,
        vms=tuple(
            replace(
                vm,
                host_id=None,
                placed_at=None if vm.placed_at is None else vm.placed_at + by,
                ended_at=None if vm.ended_at is None else vm.ended_at + by,
            )
            for vm in request.vms
        ),
    )


class _LifetimeSampler:
    """Draws the remaining lives of VMs from those of past VMs."""

    def __init__(self, lives: Iterable[ObservedLife], seed: int) -> None:
        self._tenants: dict[Hashable, int] = {}
        self._demands: dict[Hashable, int] = {}
        self._pairs: dict[Hashable, int] = {}
        self._rng = np.random.default_rng(seed)
        listed = list(lives)
        self.lifetimes = Lifetimes(
            ObservedLifetimes(
                groups=self._group_numbers([(each.tenant, each.demand) for each in listed]),
                age_s=np.array([each.lived_s for each in listed], dtype=np.float64),
                ended=np.array([each.ended for each in listed], dtype=np.bool_),
            )
        )

    def _group_numbers(self, of: Sequence[tuple[str, Mapping[str, int]]]) -> np.ndarray:
        """Number the groups of VMs that live alike: tenant and size, size, tenant; (V, 3)."""
        rows = []
        for tenant, demand in of:
            size = tuple(sorted((name, amount) for name, amount in demand.items() if amount))
            rows.append(
                (
                    self._pairs.setdefault((tenant, size), len(self._pairs)),
                    self._demands.setdefault(size, len(self._demands)),
                    self._tenants.setdefault(tenant, len(self._tenants)),
                )
            )
        return np.array(rows, dtype=np.int64).reshape(len(rows), 3)

    def ends(
        self, requests: Iterable[tuple[PastRequest, datetime | None]], now: datetime
    ) -> Iterator[tuple[PastVm, ...]]:
        """Yield the VMs of each repeated request with their real or drawn ends.

        VMs that were placed together end together. With a time, the VM lives on from then;
        without, it has its life before it, of which its age now is known to pass.
        """
        listed = list(requests)
        lots: dict[tuple[int, datetime | None], int] = {}
        of: list[tuple[str, Mapping[str, int]]] = []
        ages: list[float] = []
        for number, (request, _) in enumerate(listed):
            for vm in request.vms:
                if vm.ended_at is None and (number, vm.placed_at) not in lots:
                    lots[number, vm.placed_at] = len(of)
                    of.append((request.tenant, request.demand))
                    lived = now - (vm.placed_at or now)
                    ages.append(max(0.0, lived.total_seconds()))
        age_s = np.array(ages, dtype=np.float64)
        curve = self.lifetimes.curves_of(self._group_numbers(of), age_s)
        left_s = self.lifetimes.draw_curves(self._rng).remaining_lives_s(
            curve, age_s, self._rng.random(len(of))
        )
        for number, (request, standing) in enumerate(listed):
            moments = []
            for vm in request.vms:
                if vm.ended_at is None:
                    lot = lots[number, vm.placed_at]
                    vm = _set_drawn_end(vm, request, ages[lot], float(left_s[lot]), standing)  # noqa: PLW2901
                moments.append(vm)
            yield tuple(moments)


def _set_drawn_end(
    vm: PastVm, request: PastRequest, age_s: float, left_s: float, standing: datetime | None
) -> PastVm:
    """Return a past VM with its drawn end; an unplaced one lives as long once it is placed."""
    if left_s >= _LONGEST_S:
        return vm
    placed_at = vm.placed_at or standing or request.requested_at
    if standing is None:
        return replace(
            vm, placed_at=placed_at, ended_at=placed_at + timedelta(seconds=age_s + left_s)
        )
    return replace(vm, placed_at=placed_at, ended_at=standing + timedelta(seconds=left_s))
