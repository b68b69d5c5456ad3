"""Best-Fit DRFH: whole VMs, one at a time, to the tenant of least share, on the best host."""

from __future__ import annotations

import numpy as np

from placement.model.vm_kinds import VmKinds
from placement.packing.draft import Draft
from placement.packing.drfh_fill import fill_by_best_fit


def best_fit_drfh(draft: Draft, kinds: VmKinds, rng: np.random.Generator) -> None:
    """Serve the tenant of least dominant share, by Best-Fit; the policy of fallback rounds, too.

    Notes
    -----
    Repeats: the tenant of least dominant share per weight takes one VM of its
    first request that still fits somewhere, on the fitting host of least H
    (`placement.packing.buckets.mismatch`). Ties of tenants go to the one whose
    request comes first, ties of hosts to the first. A request that fits nowhere
    leaves the round; its tenant goes on with the next.

    References
    ----------
    Wang, Li, Liang, INFOCOM 2014, section V-B; TPDS 2015, section 5.
    """
    del rng  # nothing is random
    fill_by_best_fit(draft, kinds)
