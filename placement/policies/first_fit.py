"""First-Fit: demands in order, each VM on the first host where it fits."""

from __future__ import annotations

import numpy as np

from placement.filling.draft import Draft
from placement.filling.in_order import fill_first_hosts
from placement.round.arrays import IntArray


def first_fit(draft: Draft, request: int, hosts: IntArray, rng: np.random.Generator) -> IntArray:
    """Place a request on the first of some hosts, shape (X,): the plainest rule, a baseline."""
    del rng  # nothing is random
    return fill_first_hosts(draft, request, int(draft.remaining[request]), hosts)
