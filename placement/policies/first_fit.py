"""First-Fit: requests in order; each VM goes to the first host where it fits."""

from __future__ import annotations

import numpy as np

from placement.model.arrays import IntArray
from placement.packing.draft import Draft
from placement.packing.first_fit_fill import fill_first_hosts


def first_fit(draft: Draft, request: int, hosts: IntArray, rng: np.random.Generator) -> IntArray:
    """Place a request on the first of some hosts, shape (X,): the plainest rule, a baseline."""
    del rng  # nothing is random
    return fill_first_hosts(draft, request, int(draft.remaining[request]), hosts)
