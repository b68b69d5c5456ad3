"""Find requests that have waited too long below their tenant's fair share.

The search is stateless. A snapshot says how long requests have waited, not how long their tenants
were below their shares; requests count that have waited that long and whose tenants are below
now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from placement.constraints.tree_weights import snapshot_without_tree
from placement.fairness.levels import is_poorer, relative_weights
from placement.fairness.shares import dominant_shares, fractions_of_pool
from placement.mechanisms.max_min.ascent import fill_pool
from placement.mechanisms.max_min.climbs import Climbs
from placement.model.arrays import BoolArray, FloatArray, IntArray
from placement.model.snapshot import Snapshot
from placement.packing.overload import overload_fraction
from placement.parameters import fraction_reader, integer_reader, read_parameters

#: Rounds after which a request may have hosts held back for it: a wait of a day, at a slot a
#: minute, counts as one without end.
PATIENCE: Final = 1_440
#: Rounds after which moves may make room for it, which costs no capacity.
ROOM_PATIENCE: Final = 12
#: Part of the open hosts that the longest waiting gang may have held, by its level of waiting:
#: in the end all of them, so that it waits no longer than the VMs there last.
_FIRST_PARTS: Final = (0.1, 0.5, 1.0)
#: Hosts that may be reserved at any level, up to half of the open hosts, on small sites.
_FIRST_HOSTS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StarvationPatience:
    """The rounds that a request waits before hosts are reserved for it, and how many hosts."""

    patience: int = PATIENCE  #: slots that a request waits before; 0: nothing is held back
    held_part: float = 0.01  #: of the open hosts, at most, but at least one
    #: slots that a gang waits which its tenant is due, see `due_gangs`; 0: as other requests
    gang_patience: int = 1
    overload: float = 1.0  #: no host is filled above this part of its capacity

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> StarvationPatience:
        """Return the checked patience parameters among the given ones.

        Raises
        ------
        ParameterError
            Naming the parameter, what was found and what is allowed.
        """
        own = read_parameters(READERS, {name: given[name] for name in READERS if name in given})
        return cls(**own, overload=given.get("overload", 1.0))

    def max_hosts(self, open_hosts: int) -> int:
        """Return how many of the open hosts may be reserved for starving requests."""
        return max(1, int(open_hosts * overload_fraction(self.held_part)))

    def max_hosts_for_first(self, open_hosts: int, level: int) -> int:
        """Return how many hosts may be reserved for the request that starves longest.

        Parameters
        ----------
        open_hosts : int
        level : int
            The request's waiting level (`waiting_levels`), at least 1.
        """
        part = overload_fraction(_FIRST_PARTS[min(level, len(_FIRST_PARTS)) - 1])
        return max(self.max_hosts(open_hosts), _few_hosts(open_hosts), int(open_hosts * part))

    def max_hosts_for_gangs(self, open_hosts: int) -> int:
        """Return how many hosts may be reserved for all gangs that `due_gangs` returns."""
        return max(_few_hosts(open_hosts), int(open_hosts * _FIRST_PARTS[0]))


def _few_hosts(open_hosts: int) -> int:
    return min(_FIRST_HOSTS, open_hosts // 2)


#: The parameters that `StarvationPatience.of` reads in addition to ``overload``.
READERS: Final = {
    "patience": integer_reader(0, 10**9),
    "held_part": fraction_reader,
    "gang_patience": integer_reader(0, 10**9),
}


def room_patience(given: Mapping[str, Any]) -> int:
    """Return the rounds that a request waits before moves may make room for it; 0: never."""
    return StarvationPatience.of(given).patience if "patience" in given else ROOM_PATIENCE


def waiting_levels(age: IntArray, patience: int) -> IntArray:
    """Return each request's waiting level: 0 within patience, 1 and more beyond it.

    Parameters
    ----------
    age : ndarray of int64, shape (Q,)
        Slots that each request has waited.
    patience : int
        0 for no limit.

    Notes
    -----
    Level 1 begins after ``patience`` rounds, level 2 after 8 times as many, level 3 after 64 times.
    Each level considers other hosts first, for longer, so that a host whose VMs never end does not
    keep a request waiting for ever.
    """
    if patience == 0:
        return np.zeros_like(age)
    times = age // patience
    return np.array([(each.bit_length() + 2) // 3 for each in times.tolist()], dtype=np.int64)


def fair_shares(snapshot: Snapshot) -> FloatArray:
    """Return the fair dominant share of each tenant on an empty cluster, shape (N,).

    Notes
    -----
    Weighted DRF by water filling on the whole pool. A tenant's demand is all
    that it holds and demands, as one divisible bundle: the share that a tenant
    is due does not depend on the order of arrival (derived).
    """
    pool = snapshot.pool
    requested = np.zeros(snapshot.held.shape)
    amounts = fractions_of_pool(snapshot.demand, pool) * snapshot.count[:, None]
    np.add.at(requested, snapshot.tenant, amounts)
    demanded = fractions_of_pool(snapshot.held, pool) + requested
    maximum = demanded.max(axis=1, initial=0.0)
    shape = np.divide(
        demanded, maximum[:, None], out=np.zeros_like(demanded), where=maximum[:, None] > 0
    )
    nothing = np.zeros_like(shape)
    climbs = Climbs(nothing, shape, relative_weights(snapshot.weight), maximum)
    shares, _ = fill_pool(climbs, shape, (pool > 0).astype(np.float64))
    return shares


def starving_requests(snapshot: Snapshot, patience: int) -> tuple[IntArray, FloatArray]:
    """Return the requests that starve: they have waited too long below their tenant's fair share.

    Returns
    -------
    ndarray of int64
        Requests of at least one VM and level 1 or more, whose tenant holds less than
        its fair share. Those of the highest level come first; requests of one level
        are in order of creation.
    ndarray of float64, shape (N,)
        The fair shares; empty when no request has waited that long.
    """
    levels = waiting_levels(snapshot.age, patience)
    waits = (levels > 0) & (snapshot.count > 0) & snapshot.demand.any(axis=1)
    if not waits.any():
        return np.zeros(0, dtype=np.int64), np.zeros(0)
    fair = fair_shares(snapshot_without_tree(snapshot))
    below = is_poorer(dominant_shares(snapshot.held, snapshot.pool), fair)
    requests = np.flatnonzero(waits & below[snapshot.tenant])
    return requests[np.argsort(-levels[requests], kind="stable")].astype(np.int64), fair


def patient_gangs(snapshot: Snapshot, patience: StarvationPatience) -> BoolArray:
    """Return whether each request is a gang that has waited ``gang_patience`` slots, shape (Q,)."""
    if 0 in (patience.patience, patience.gang_patience):
        return np.zeros(len(snapshot.count), dtype=np.bool_)
    gangs: BoolArray = (snapshot.min_count > 1) & (snapshot.age >= patience.gang_patience)
    return gangs & (snapshot.count > 0)


def due_gangs(
    snapshot: Snapshot, patience: StarvationPatience, fair: FloatArray | None = None
) -> tuple[IntArray, FloatArray]:
    """Return the gangs that would bring their tenants nearer to their fair shares.

    A gang is due once it has waited ``gang_patience`` slots, if its tenant's share with half of
    the gang's ``min_count`` VMs is below the fair share (derived). ``fair`` are the fair shares if
    they are known, (N,).

    Returns
    -------
    ndarray of int64
        Requests of which no VM is placed, in order of creation.
    ndarray of float64, shape (N,)
        The fair shares; ``fair`` or empty if no gang has waited that long.
    """
    fair = np.zeros(0) if fair is None else fair
    waits = patient_gangs(snapshot, patience)
    requests = np.flatnonzero(waits & snapshot.demand.any(axis=1)).astype(np.int64)
    if not len(requests):
        return requests, fair
    if not len(fair):
        fair = fair_shares(snapshot_without_tree(snapshot))
    tenant = snapshot.tenant[requests]
    twice = (
        2 * snapshot.held[tenant] + snapshot.min_count[requests, None] * snapshot.demand[requests]
    )
    below = is_poorer(dominant_shares(twice, snapshot.pool), 2 * fair[tenant])
    return requests[below], fair
