"""Set aside what can never fit, before a policy runs."""

from __future__ import annotations

import dataclasses

import numpy as np

from placement.round.model import LeftOut, Snapshot
from placement.round.reasons import never_fit


def set_aside(snapshot: Snapshot) -> tuple[Snapshot, tuple[LeftOut, ...]]:
    """Take the requests that no round could place out of ``snapshot``.

    Returns
    -------
    Snapshot
        The same, but for counts of 0 where a request was set aside.
    tuple of LeftOut
        What was set aside: `NOTHING_ASKED`, `NO_HOST_LARGE_ENOUGH` or
        `NO_ELIGIBLE_HOST`. Together with the policy's own ``left_out`` it adds
        up to the counts of the original snapshot.
    """
    count = snapshot.count.copy()
    never = never_fit(snapshot, np.flatnonzero(count))
    aside = tuple(
        LeftOut(request=request, count=int(count[request]), reason=reason)
        for request, reason in never.items()
    )
    count[list(never)] = 0
    return dataclasses.replace(snapshot, count=count), aside
