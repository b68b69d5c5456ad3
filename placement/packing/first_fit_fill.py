"""First-Fit of one request: its VMs go to the first hosts that have room."""

from __future__ import annotations

from typing import Final

import numpy as np

from placement.model.arrays import IntArray
from placement.model.vm_kinds import vms_that_fit
from placement.packing.draft import Draft

#: Hosts that are checked at first; then twice as many, and so on.
_FIRST_LOOK: Final = 64


def fill_first_hosts(draft: Draft, request: int, wanted: int, hosts: IntArray) -> IntArray:
    """Place VMs on the first of some hosts, shape (X,); return the hosts that may hold more."""
    demand = draft.snapshot.demand[request]
    width, start = _FIRST_LOOK, 0
    while wanted and start < len(hosts):
        look = hosts[start : start + width]
        fits = vms_that_fit(draft.room[look], demand)
        before = np.cumsum(fits) - fits
        taken = np.clip(wanted - before, 0, fits)
        given = np.flatnonzero(taken)
        rows = np.stack([np.full(len(given), request), look[given], taken[given]], axis=1)
        draft.put_all(rows)
        wanted -= int(taken.sum())
        still = np.flatnonzero(fits > taken)
        if len(still):
            return hosts[start + int(still[0]) :]
        start += width
        width *= 2
    return hosts[start:]
