"""The current state that a forecast starts from: waiting, running and recent requests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.model.arrays import FloatArray, IntArray
from placement.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RunningVms:
    """Running VMs in V rows; the VMs of a row are alike and of one age."""

    host: IntArray  #: (V,) indices of H
    tenant: IntArray  #: (V,) indices of N
    request: IntArray  #: (V,) VMs of one number end together
    count: IntArray  #: (V,)
    demand: IntArray  #: (V, R) of one VM
    groups: IntArray  #: (V, L) of lifetimes, see `Observed`
    age_s: FloatArray  #: (V,)
    ends_in_s: FloatArray  #: (V,) when their request's time is over, at least 0; inf: never

    def ends_s(self, left_s: FloatArray) -> FloatArray:
        """Return the seconds until each row's VMs end, (V,), given the rest of their lifetimes."""
        ends: FloatArray = np.minimum(left_s, self.ends_in_s)
        return ends


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RecentArrivals:
    """Requests of the recent past, A of them, as rows of the snapshot; the future is like them."""

    at_s: FloatArray  #: (A,) from the beginning of that past, rising
    row: IntArray  #: (A,) indices of Q
    count: IntArray  #: (A,) VMs
    span_s: float  #: how long that past was


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CurrentState:
    """All inputs of a wait forecast except the policy.

    Rows of the snapshot whose count is 0 do not wait: they are kinds of requests that may come.
    """

    snapshot: Snapshot
    groups: IntArray  #: (Q, L) of lifetimes, those of the VMs of each row
    ends_in_s: FloatArray  #: (Q,) when the time of each row is over, VMs included; inf: never
    running: RunningVms
    arrivals: RecentArrivals

    def room(self) -> IntArray:
        """Return the free amounts of each host, (H, R); negative if VMs hold more than it has."""
        snapshot, running = self.snapshot, self.running
        held = np.zeros_like(snapshot.capacity)
        np.add.at(held, running.host, running.count[:, None] * running.demand)
        over = np.minimum(snapshot.capacity - held, 0)
        return np.where(snapshot.free > 0, snapshot.free, over)
