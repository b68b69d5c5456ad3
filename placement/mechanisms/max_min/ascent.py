"""The common ascent of tenants from stop to stop; with one pool this is water filling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from placement.mechanisms.max_min.climbs import ClimbPoint, Climbs
from placement.model.arrays import BoolArray, FloatArray


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ClimbStop:
    """A point where capacity stopped tenants, or where all tenants were complete."""

    level: float
    frozen: BoolArray  #: (N,) tenants that cannot rise further, though they want more
    used_up: BoolArray  #: (K, R) what is used up and stops them; K is 1 for a pool


class Ascent:
    """The state of the climb: frozen tenants stay, the others rise from point to point."""

    def __init__(self, climbs: Climbs) -> None:
        self.climbs = climbs
        self.point = climbs.first
        self.frozen = climbs.limit <= 0
        self.fixed = np.zeros(len(climbs.limit))

    def needs(self, point: ClimbPoint) -> FloatArray:
        """Return the amount that each tenant needs, shape (N,); frozen tenants do not change."""
        return np.where(self.frozen, self.fixed, self.climbs.needs(point))

    def last_point(self, price: FloatArray, budget: float) -> ClimbPoint:
        """Return the last point at which the needs cost at most ``budget``.

        The cost is ``price``, (N,), per unit. The point is at least the current one.
        """
        done = self.frozen | self.climbs.complete_tenants(self.point)
        fixed = np.where(self.frozen, self.fixed, self.climbs.limit)
        return max(self.climbs.last_point(price, budget, done, fixed), self.point)

    def rising_tenants(self) -> BoolArray:
        """Return which tenants still rise: neither frozen nor complete, shape (N,)."""
        alive: BoolArray = ~self.frozen & ~self.climbs.complete_tenants(self.point)
        return alive

    def stop_at(self, point: ClimbPoint, stopped: BoolArray, used_up: BoolArray) -> ClimbStop:
        """Let the climb stop at ``point``, and freeze the stopped tenants, shape (N,)."""
        needs = self.needs(point)
        self.point = point
        frozen = stopped & self.rising_tenants()
        self.fixed = np.where(frozen, needs, self.fixed)
        self.frozen = self.frozen | frozen
        return ClimbStop(level=self.climbs.level_at(point), frozen=frozen, used_up=used_up)


def fill_pool(
    climbs: Climbs, shape: FloatArray, room: FloatArray
) -> tuple[FloatArray, list[ClimbStop]]:
    """Raise all tenants together in one pool, by water filling.

    Parameters
    ----------
    shape : ndarray, shape (N, R)
        What one unit of amount takes of the pool.
    room : ndarray, shape (R,)
        Free, in fractions of the pool.

    Returns
    -------
    amounts : ndarray, shape (N,)
    stops : list of ClimbStop
        At most one for each resource, and the end.

    Notes
    -----
    Between two resources that are used up no tenant is frozen, only complete, so
    what all need is known in closed form and the next stop is found by halving
    among the breakpoints of the climbs instead of walking along them.
    """
    ascent = Ascent(climbs)
    stops = []
    while ascent.rising_tenants().any():
        wanted = np.flatnonzero((shape[ascent.rising_tenants()] > 0).any(axis=0))
        points = [ascent.last_point(shape[:, r], float(room[r])) for r in wanted.tolist()]
        lowest = min(points)
        taken = shape.T @ ascent.needs(lowest)
        used_up = np.zeros((1, len(room)), dtype=np.bool_)
        for r, point in zip(wanted.tolist(), points, strict=True):
            # Resources that end together end at one stop, whatever the rounding.
            ends = point == lowest or taken[r] >= room[r] * (1 - 1e-12)
            used_up[0, r] = lowest < climbs.last and ends
        stopped = (shape * used_up).max(axis=1, initial=0.0) > 0
        stops.append(ascent.stop_at(lowest, stopped, used_up))
    return ascent.needs(ascent.point), stops


def max_alone_in_pool(shape: FloatArray, room: FloatArray) -> FloatArray:
    """Return how much each tenant could have of a pool without the others, shape (N,)."""
    demanded = shape > 0
    maximum = np.divide(room, shape, out=np.full(shape.shape, np.inf), where=demanded)
    minimum: FloatArray = maximum.min(axis=1, initial=np.inf)
    return np.where(demanded.any(axis=1), minimum, 0.0)


def rising_details(
    stops: Sequence[ClimbStop], resources: tuple[str, ...], classes: Sequence[int] | None
) -> list[dict[str, Any]]:
    """Return the stops of a climb as JSON values; without ``classes``, those of one pool."""
    rounds = []
    for stop in stops:
        pairs = [
            resources[r] if classes is None else [classes[place], resources[r]]
            for place, r in np.argwhere(stop.used_up).tolist()
        ]
        rounds.append(
            {"level": stop.level, "used_up": pairs, "frozen": np.flatnonzero(stop.frozen).tolist()}
        )
    return rounds
