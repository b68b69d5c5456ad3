"""Gangs: requests of which at least ``min_count`` VMs are placed at once, or none.

Whether a gang is whole does not depend on which hosts are chosen first (see
`placement.model.reasons.count_fitting_vms`), so a policy that serves requests one by one
calls `admit_request` and then places by its own rule. A policy that serves tenants in
turn fills through `fill_with_gangs`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from placement.fairness.levels import level_in_steps, levels_of
from placement.fairness.targets import fair_targets
from placement.model.arrays import BoolArray, FloatArray
from placement.model.reasons import count_fitting_vms_of_each
from placement.packing.draft import Draft

#: A target so close to ``min_count`` covers it.
_WHOLE: Final = 1e-6


def admit_request(draft: Draft, request: int) -> bool:
    """Return whether a request may be placed now; a gang begins if it fits whole.

    After True, at least ``min_count`` VMs of a gang have room at once: a caller that
    places all of a request before the next one keeps it whole.
    """
    if draft.not_begun[request] == 0:
        return True
    if not _gangs_that_fit(draft, [request]):
        return False
    draft.begin_gang(request)
    return True


def fill_with_gangs(draft: Draft, fill: Callable[[], object]) -> None:
    """Fill a draft by a rule that knows single VMs only, gangs whole.

    The gangs that their fair target covers come first: their tenants would
    have come so far in any case. Then all others, VM by VM. Last the gangs
    that need more at once than is fair now, those of the poorest tenants
    first (derived).

    Parameters
    ----------
    draft : Draft
        Changed in place.
    fill : callable
        Places what remains in ``draft`` within its room.
    """
    if draft.not_begun.any():
        begin_covered_gangs(draft, fill, fair_targets(draft.snapshot))
    fill()
    while begin_next_gangs(draft, fill):
        fill()


def begin_covered_gangs(draft: Draft, fill: Callable[[], object], targets: FloatArray) -> None:
    """Place ``min_count`` VMs of every gang whose fair target (Q,) is that many and that fits.

    All of them together, so that they take turns; those that did not become
    whole in the crowd one by one, in order of their tenants' levels.
    """
    covered = (draft.not_begun > 0) & (targets >= draft.snapshot.min_count - _WHOLE)
    gangs = _gangs_that_fit(draft, np.flatnonzero(covered).tolist())
    if gangs:
        _begin_gangs(draft, gangs, fill)
    _begin_one_by_one(draft, covered & (draft.not_begun > 0), fill)


def begin_next_gangs(draft: Draft, fill: Callable[[], object]) -> bool:
    """Place ``min_count`` VMs of each gang that has not begun and fits; return whether any did.

    In order of their tenants' levels, equals in order of requests.
    """
    return _begin_one_by_one(draft, draft.not_begun > 0, fill)


def _begin_one_by_one(draft: Draft, which: BoolArray, fill: Callable[[], object]) -> bool:
    """Begin these gangs one by one, the poorest tenant's first; return whether any did."""
    waiting = _gangs_that_fit(draft, np.flatnonzero(which).tolist())
    snapshot, began = draft.snapshot, False
    while waiting:
        levels = levels_of(draft.held, snapshot.pool, snapshot.weight)
        gang = min(waiting, key=lambda q: (level_in_steps(float(levels[snapshot.tenant[q]])), q))
        began |= _begin_gangs(draft, [gang], fill)
        waiting.remove(gang)
        # Room only shrinks here: what does not fit now does not fit later.
        waiting = _gangs_that_fit(draft, waiting)
    return began


def _gangs_that_fit(draft: Draft, gangs: Sequence[int]) -> list[int]:
    """Return those of some gangs that would fit whole, other gangs aside."""
    which = np.array(gangs, dtype=np.int64)
    fit = count_fitting_vms_of_each(draft.snapshot, which, draft.room)
    whole = draft.snapshot.min_count[which] <= np.minimum(fit, draft.not_begun[which])
    return [gang for gang, is_whole in zip(gangs, whole.tolist(), strict=True) if is_whole]


def _begin_gangs(draft: Draft, gangs: Sequence[int], fill: Callable[[], object]) -> bool:
    """Place ``min_count`` VMs of these gangs, dissolve incomplete ones; return whether any stay."""
    others = draft.remaining.copy()
    draft.remaining[:] = 0
    draft.remaining[gangs] = draft.snapshot.min_count[gangs]
    fill()
    missing = draft.remaining.copy()
    draft.remaining[:] = others
    whole = [gang for gang in gangs if missing[gang] == 0]
    for gang in whole:
        draft.begin_gang(gang)
        draft.remaining[gang] -= draft.snapshot.min_count[gang]
    broken = [gang for gang in gangs if 0 < missing[gang] < draft.snapshot.min_count[gang]]
    rows = draft.rows[np.isin(draft.rows[:, 0], broken)]
    draft.put_all(rows * np.array([1, 1, -1]))
    draft.remaining[broken] = 0
    return bool(whole)
