"""Fill by tenants in turn, the poorest first: Best-Fit or First-Fit DRFH."""

from __future__ import annotations

from placement.model.vm_kinds import VmKinds
from placement.packing.buckets import FreeBuckets
from placement.packing.draft import Draft
from placement.packing.first_hosts import FirstHosts
from placement.packing.progressive_filling import fill_in_turn


def fill_by_best_fit(draft: Draft, kinds: VmKinds, *, kept_empty: float = 0.0) -> None:
    """Place what remains in ``draft`` by Best-Fit DRFH, within the room of the draft.

    A VM goes to one of the hosts that are kept empty (`Draft.hosts_kept_empty`) only where no
    other host has room for it (derived). Cost is O(log n + log V) per VM for V distinct free
    vectors and n tenants.
    """
    snapshot = draft.snapshot
    fill_in_turn(
        draft,
        kinds,
        lambda: FreeBuckets(
            draft.room,
            snapshot.host_class,
            snapshot.pool,
            kinds,
            draft.hosts_kept_empty(kept_empty) if kept_empty else None,
        ),
    )


def fill_by_first_fit(draft: Draft, kinds: VmKinds) -> None:
    """Place what remains in ``draft`` by First-Fit DRFH, within the room of the draft."""
    host_class = draft.snapshot.host_class
    fill_in_turn(draft, kinds, lambda: FirstHosts(draft.room, host_class, kinds))
