"""The poorest tenant's VM is next: on the host of best shape, or on the first."""

from __future__ import annotations

from placement.fairness.targets import fair_targets
from placement.filling.buckets import FreeBuckets
from placement.filling.draft import Draft
from placement.filling.first_hosts import FirstHosts
from placement.filling.gangs import fill_with_gangs
from placement.filling.progressive import fill_in_turn
from placement.round.vm_kinds import VmKinds


def fill_by_best_fit(draft: Draft, kinds: VmKinds) -> None:
    """Place what remains in ``draft`` by Best-Fit DRFH, within the room of the draft.

    Cost is O(log n + log V) per VM for V distinct free vectors and n tenants.
    """
    snapshot = draft.snapshot

    def rule() -> FreeBuckets:
        return FreeBuckets(draft.room, snapshot.host_class, snapshot.pool, kinds)

    fill_in_turn(draft, kinds, rule)


def fill_by_first_fit(draft: Draft, kinds: VmKinds) -> None:
    """Place what remains in ``draft`` by First-Fit DRFH, gangs whole, within its room."""
    snapshot = draft.snapshot

    def rule() -> FirstHosts:
        return FirstHosts(draft.room, snapshot.host_class, kinds)

    fill_with_gangs(draft, lambda: fill_in_turn(draft, kinds, rule), lambda: fair_targets(snapshot))
