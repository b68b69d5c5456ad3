"""Room that is free in all, but on no single host: moves of other VMs could make it usable."""

from __future__ import annotations

import numpy as np

from placement import BoolArray, IntArray, Snapshot
from placement.model.reasons import hosts_open_to


def is_room_scattered(snapshot: Snapshot, free: IntArray, accepts: BoolArray, request: int) -> bool:
    """Return whether one VM of a request would fit if VMs could be moved in pieces.

    Parameters
    ----------
    free : ndarray of int64, shape (H, R)
        Of each host, after the round.
    accepts : ndarray of bool, shape (H,)
        Hosts that take VMs now, to which others could move.

    Notes
    -----
    Necessary for a plan of moves that lets the VM in, and not sufficient: the plan also needs VMs
    that may move and fit elsewhere whole. Limits, such as addresses, are not moved.
    """
    counted, demand = snapshot.resource_count, snapshot.demand[request]
    could = accepts & hosts_open_to(snapshot, request)
    could &= (snapshot.capacity >= demand).all(axis=1)
    lacking = np.maximum(demand - free[could], 0)
    if not lacking.any(axis=1).all():
        return False  # one of them has room
    elsewhere = free[accepts].sum(axis=0) - free[could]
    enough = (lacking[:, :counted] <= elsewhere[:, :counted]).all(axis=1)
    enough &= (lacking[:, counted:] == 0).all(axis=1)
    return bool(enough.any())
