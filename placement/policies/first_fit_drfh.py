"""First-Fit DRFH: the tenant of least share is next; its VM goes to the first host."""

from __future__ import annotations

import numpy as np

from placement.model.vm_kinds import VmKinds
from placement.packing.draft import Draft
from placement.packing.drfh_fill import fill_by_first_fit


def first_fit_drfh(draft: Draft, kinds: VmKinds, rng: np.random.Generator) -> None:
    """Serve the tenant of least dominant share, each VM on the first host with room.

    Notes
    -----
    The order: see `placement.packing.progressive_filling.fill_in_turn`. Each VM goes to the
    first host, in order, where it fits.

    References
    ----------
    Wang, Li, Liang, "Dominant Resource Fairness in Cloud Computing Systems with
    Heterogeneous Servers", INFOCOM 2014, section V-B; TPDS 2015, section 5.
    """
    del rng  # nothing is random
    fill_by_first_fit(draft, kinds)
