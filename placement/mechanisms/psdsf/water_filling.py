"""The server step of PS-DSF by water filling."""

from __future__ import annotations

from typing import Final

import numpy as np

from placement.mechanisms.psdsf.servers import ServerClass
from placement.model.arrays import FloatArray

#: Resources whose levels agree but for rounding end together.
_TOGETHER: Final = 1e-12
#: Newton's method ends in two or three tries where it ends at all.
_MAX_TRIES: Final = 8
_ROUNDING: Final = 1e-15


class WaterFilling:
    """Fills one server: the lowest levels rise together until resources end.

    Each tenant starts at the level that its tasks elsewhere give it. When a
    resource is used up, tenants that demand it are frozen, and the others go on; a
    tenant with all the tasks it wants stops by itself. What was here before
    does not matter.

    Notes
    -----
    Derived: the outcome is the fixed point of the published procedure
    (`placement.mechanisms.psdsf.published_procedure`) on one server, reached without
    moving tasks from donor to donor. A tenant frozen at level L by a resource
    shares it only with tenants that rose to L or stopped below, which is Theorem
    1 on this server.
    """

    def __init__(self) -> None:
        self._last: dict[int, list[float]] = {}

    def __call__(self, server: ServerClass, elsewhere: FloatArray, here: FloatArray) -> FloatArray:
        """Return the server's new tasks of each tenant, shape (n,)."""
        start = elsewhere / server.rate
        full = np.maximum(server.maximum / server.rate, start)
        guesses = self._last.get(server.place, [])
        levels, stops = raise_lowest_levels(start, full, server.use, server.room, guesses)
        self._last[server.place] = stops
        tasks: FloatArray = np.maximum(levels - start, 0.0) * server.rate
        # Both are rounded; no tenant gets more than it wants because of that.
        return np.minimum(tasks, np.maximum(server.maximum - elsewhere, 0.0))


def raise_lowest_levels(
    start: FloatArray, full: FloatArray, use: FloatArray, room: FloatArray, guesses: list[float]
) -> tuple[FloatArray, list[float]]:
    """Raise the lowest levels of tenants on one server, from ``start`` to at most ``full``.

    Parameters
    ----------
    start, full : ndarray, shape (n,)
        ``full`` may be infinite; every tenant uses some resource.
    use : ndarray, shape (n, R)
        Per unit of level.
    room : ndarray, shape (R,)
    guesses : list of float
        At which levels resources may end, stop by stop; none need be right.

    Returns
    -------
    levels : ndarray, shape (n,)
    stops : list of float
        Where resources ended.
    """
    levels = start.copy()
    used = np.zeros(len(room))
    live = np.flatnonzero(full > start)
    stops: list[float] = []
    while len(live) > 0:
        low, high, uses = start, full, use
        if len(live) < len(start):
            low, high, uses = start[live], full[live], use[live]
        left = room - used
        stage = len(stops)
        ends = None
        if stage < len(guesses):
            ends = _exhaustion_levels_near(guesses[stage], low, high, uses, left)
        if ends is None:
            ends = _exhaustion_levels(low, high, uses, left)
        level = float(ends.min())
        if level == np.inf:
            levels[live] = high
            break
        stops.append(level)
        reached = np.minimum(np.maximum(low, level), high)
        stopped = uses[:, ends <= level * (1 + _TOGETHER)].any(axis=1)
        if stopped.all():
            levels[live] = reached
            break
        levels[live[stopped]] = reached[stopped]
        used = used + (reached[stopped] - low[stopped]) @ uses[stopped]
        live = live[~stopped]
    return levels, stops


def _exhaustion_levels_near(
    level: float, low: FloatArray, high: FloatArray, uses: FloatArray, left: FloatArray
) -> FloatArray | None:
    """Return the level at which each resource is used up, (R,), by Newton's method; or None.

    Between two kinks of the use there is a line: where the guess stands still the level is exact.

    Newton's method from a guess: between two kinks a line, so where it stands
    still the level is exact.
    """
    ends = np.empty(len(left))
    lines = np.empty((2, len(low)))
    for _ in range(_MAX_TRIES):
        np.maximum(np.minimum(high, level) - low, 0.0, out=lines[1])
        np.multiply(lines[1] > 0, level < high, out=lines[0])
        slope, taken = lines @ uses
        ends.fill(np.inf)
        np.divide(left - taken, slope, out=ends, where=slope > 0)
        ends += level
        found = float(ends.min())
        if abs(found - level) <= _ROUNDING * level:
            return ends
        if not 0 < found < np.inf:
            return None
        level = found
    return None


def _exhaustion_levels(
    low: FloatArray, high: FloatArray, uses: FloatArray, left: FloatArray
) -> FloatArray:
    """Return the level at which each resource is used up, (R,); infinite if never used up.

    By the kinks in order: a tenant joins at its start and leaves when it has
    all it wants.
    """
    bounded = np.isfinite(high)
    kinks = np.concatenate([low, high[bounded]])
    order = kinks.argsort(kind="stable")
    kinks = kinks[order]
    slope = np.concatenate([uses, -uses[bounded]])[order].cumsum(axis=0)
    taken = np.zeros_like(slope)
    (slope[:-1] * np.diff(kinks)[:, None]).cumsum(axis=0, out=taken[1:])
    rest = uses[~bounded].sum(axis=0)  # exact, where the running sum may keep dust
    ends = np.full(len(left), np.inf)
    last = len(kinks) - 1
    for r in np.flatnonzero(uses.any(axis=0)).tolist():
        at = max(int(np.searchsorted(taken[:, r], left[r], side="right")) - 1, 0)
        missing = max(left[r] - taken[at, r], 0.0)
        if at == last:
            if rest[r] > 0:
                ends[r] = kinks[at] + missing / rest[r]
            continue
        ends[r] = kinks[at + 1]
        if slope[at, r] > 0:
            ends[r] = min(kinks[at] + missing / slope[at, r], kinks[at + 1])
    return ends
