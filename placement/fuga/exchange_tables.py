"""What the search for fair exchanges starts from, as flat arrays of plain numbers."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np

from placement.fairness.levels import levels_of, relative_weights
from placement.model.arrays import BoolArray, FloatArray, IntArray
from placement.model.vm_kinds import VmKinds
from placement.packing.draft import Draft


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ExchangeTables:
    """The state of a draft when exchanges begin; a table of two axes is one row after another.

    Requests that are alike, of one tenant and one kind, are one of G parties. Parties are in
    order of tenant and kind.
    """

    pool: array[float]  #: (R,)
    weight: array[float]  #: (N,) relative to the largest
    level: array[float]  #: (N,)
    held: array[int]  #: (N, R)
    first_party: array[int]  #: (N + 1,) a tenant's parties are those from its own to the next's
    tenant: array[int]  #: (G,)
    kind: array[int]  #: (G,)
    demand: array[int]  #: (T, R)
    open_to: array[int]  #: (T, C) whether a kind may use hosts of a class
    party: array[int]  #: (Q,) of each request
    next_alike: array[int]  #: (Q,) the next request of the same party, -1 after the last
    first_request: array[int]  #: (G,)
    placed: array[int]  #: (Q,) VMs of each request on hosts
    waiting: array[int]  #: (Q,) VMs of each request that wait
    kept: array[int]  #: (Q,) VMs that a request cannot give: a gang keeps its minimum
    room: array[int]  #: (H, R)
    host_class: array[int]  #: (H,)
    row_request: array[int]  #: (P,) the rows of what is placed
    row_host: array[int]  #: (P,)
    row_count: array[int]  #: (P,)

    @classmethod
    def of(cls, draft: Draft, kinds: VmKinds) -> ExchangeTables:
        """Return the tables of a draft, whose snapshot the kinds are of."""
        snapshot = draft.snapshot
        key = snapshot.tenant * max(len(kinds), 1) + kinds.of_request
        _, first, party = np.unique(key, return_index=True, return_inverse=True)
        tenant = snapshot.tenant[first]
        by_party = np.argsort(party, kind="stable")
        next_alike = np.full(len(party), -1, dtype=np.int64)
        alike = party[by_party][1:] == party[by_party][:-1]
        next_alike[by_party[:-1][alike]] = by_party[1:][alike]
        request, host, count = draft.rows.T
        return cls(
            pool=_floats(snapshot.pool),
            weight=_floats(relative_weights(snapshot.weight)),
            level=_floats(levels_of(draft.held, snapshot.pool, snapshot.weight)),
            held=_integers(draft.held),
            first_party=_integers(np.searchsorted(tenant, np.arange(len(snapshot.weight) + 1))),
            tenant=_integers(tenant),
            kind=_integers(kinds.of_request[first]),
            demand=_integers(kinds.demand),
            open_to=_integers(kinds.eligible),
            party=_integers(party),
            next_alike=_integers(next_alike),
            first_request=_integers(first),
            placed=_integers(draft.placed_counts),
            waiting=_integers(np.where(snapshot.demand.any(axis=1), draft.remaining, 0)),
            kept=_integers(np.where(snapshot.min_count > 1, snapshot.min_count, 0)),
            room=_integers(draft.room),
            host_class=_integers(snapshot.host_class),
            row_request=_integers(request),
            row_host=_integers(host),
            row_count=_integers(count),
        )


def _integers(values: IntArray | BoolArray) -> array[int]:
    return array("q", values.astype(np.int64).tobytes())


def _floats(values: FloatArray | IntArray) -> array[float]:
    return array("d", values.astype(np.float64).tobytes())
