"""Judge whether a reservation will have room, by sampling which VMs end before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from placement.forecast.current_state import CurrentState
from placement.forecast.lifetimes import Lifetimes
from placement.model.arrays import BoolArray, IntArray
from placement.model.reservations import best_fit_counts

#: The part of samples that must have room for all of a reservation.
REQUIRED_PART: Final = 0.95
#: Fewer samples than this say nothing of nineteen in twenty.
MIN_SAMPLES: Final = 40
SAMPLES: Final = 200


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ReservationDemand:
    """Alike VMs that a reservation, or a request before it, needs room for."""

    demand: IntArray  #: (R,) of one VM
    allowed: BoolArray  #: (H,)
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationVerdict:
    """For how many VMs there is room in the required part of the samples."""

    fits: int
    samples: int  #: 0: it was judged as if nothing that runs ends
    samples_with_room: int  #: samples with room for all
    hurried: bool = False  #: time was up before there were enough samples


def reservation_verdict(
    present: CurrentState,
    lifetimes: Lifetimes,
    before: tuple[ReservationDemand, ...],
    wanted: ReservationDemand,
    *,
    after_s: float,
    seed: int,
    samples: int = SAMPLES,
    is_over: Callable[[], bool] = lambda: False,
) -> ReservationVerdict:
    """Return for how many VMs of a reservation there will be room after a time.

    In each sample, running VMs end at drawn lifetimes or with their request. The VMs that wait
    now and the demands in ``before`` are placed by best fit, in that order. The VMs of ``wanted``
    are placed last. With too few samples, or without known lifetimes, no VM is assumed to end.

    Parameters
    ----------
    before : tuple of ReservationDemand
        Demands that get their room first.
    after_s : float
        Seconds from now until the room is needed, at least 0.
    is_over : callable
        Returns whether time is up. Samples that have not begun by then do not count.

    Returns
    -------
    ReservationVerdict
        ``fits`` is at most what is wanted; `REQUIRED_PART` of the samples have room for it.
    """
    waits = _merge_alike((*_waiting_demands(present), *before))
    room = present.room()
    running = present.running
    found: list[int] = []
    known = lifetimes.is_known or np.isfinite(running.ends_in_s).any()
    if known and len(running.host) and after_s > 0:
        curve = lifetimes.curves_of(running.groups, running.age_s)
        _, together = np.unique(running.request, return_inverse=True)
        together = together.ravel()
        amounts = running.count[:, None] * running.demand
        for number in range(samples):
            if is_over():
                break
            rng = np.random.default_rng([seed, number])
            level = rng.random(int(together.max()) + 1)[together]
            left_s = lifetimes.draw_curves(rng).remaining_lives_s(curve, running.age_s, level)
            ended = running.ends_s(left_s) <= after_s
            then = room.copy()
            np.add.at(then, running.host[ended], amounts[ended])
            found.append(_count_vms_with_room(then, waits, wanted))
    if len(found) < MIN_SAMPLES:
        fits = _count_vms_with_room(room, waits, wanted)
        return ReservationVerdict(fits=fits, samples=0, samples_with_room=0, hurried=bool(found))
    found.sort()
    # The number of samples that may have less room.
    fewer = int(np.floor((1 - REQUIRED_PART) * len(found) + 1e-9))
    return ReservationVerdict(
        fits=found[fewer],
        samples=len(found),
        samples_with_room=sum(each >= wanted.count for each in found),
    )


def _waiting_demands(present: CurrentState) -> tuple[ReservationDemand, ...]:
    """Return the VMs that wait now, alike ones together: they get their room first."""
    snapshot = present.snapshot
    kinds: dict[tuple[bytes, bytes], tuple[int, int]] = {}
    for row in np.flatnonzero(snapshot.count > 0).tolist():
        key = (snapshot.demand[row].tobytes(), snapshot.eligible[row].tobytes())
        first, count = kinds.get(key, (row, 0))
        kinds[key] = (first, count + int(snapshot.count[row]))
    return tuple(
        ReservationDemand(
            demand=snapshot.demand[row],
            allowed=snapshot.eligible[row][snapshot.host_class],
            count=count,
        )
        for row, count in kinds.values()
    )


def _merge_alike(wanted: tuple[ReservationDemand, ...]) -> tuple[ReservationDemand, ...]:
    """Merge equal demands for room into one, to save time."""
    kinds: dict[tuple[bytes, bytes], ReservationDemand] = {}
    for each in wanted:
        key = (each.demand.tobytes(), each.allowed.tobytes())
        known = kinds.get(key)
        count = each.count + (0 if known is None else known.count)
        kinds[key] = replace(each, count=count)
    return tuple(kinds.values())


def _count_vms_with_room(
    room: IntArray, before: tuple[ReservationDemand, ...], wanted: ReservationDemand
) -> int:
    """Return how many wanted VMs fit by best fit, after the demands before them are placed."""
    free = np.maximum(room, 0)
    for each in before:
        free = (
            free
            - best_fit_counts(free, each.demand, each.allowed, each.count)[:, None] * each.demand
        )
    return int(best_fit_counts(free, wanted.demand, wanted.allowed, wanted.count).sum())
