"""Memory of past holdings: of the register center's rows for a round, and rows of its outcome."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol
from uuid import UUID

import numpy as np

from controller.rounds.tenant_trees import build_tenant_tree
from placement import Allocation, IntArray, Snapshot, TenantTree
from placement.fairness.memory import (
    KeptMemory,
    memory_after_round,
    pasts_of_nodes,
    pasts_of_tenants,
    tenants_waiting_for_room,
)
from placement.model.memory import HoldingMemory
from registry.rounds import ClusterView, Lease, PastHolding, PastHoldingChanges

#: The mean life of VMs changes slowly, and its sample takes tens of thousands of rows.
_LEARN_EVERY_S: Final = 3600.0
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class MemoryStore(Protocol):
    """Reads and writes of the register center that a memory of past holdings needs."""

    def past_holdings(self) -> Mapping[UUID, PastHolding]:
        """Return what is kept of each tenant and group."""
        ...

    def mean_life_s(self) -> float | None:
        """Return the mean life of VMs; None if too few have ended."""
        ...

    def keep_past_holdings(self, lease: Lease, changes: PastHoldingChanges) -> None:
        """Write changes of what is kept."""
        ...


@dataclass(slots=True)
class MemoryCache:
    """What is known from one round to the next: the mean life, and whether anybody is charged."""

    learned_at: float | None = field(default=None, init=False)
    mean_life_s: float | None = field(default=None, init=False)
    charges: bool = field(default=True, init=False)  #: until known

    def horizon_s(self, store: MemoryStore, half_life_s: int) -> int:
        """Return the mean life of VMs in whole seconds; the half-life while it is not known."""
        now = time.monotonic()
        if self.learned_at is None or now - self.learned_at >= _LEARN_EVERY_S:
            self.mean_life_s, self.learned_at = store.mean_life_s(), now
        return half_life_s if self.mean_life_s is None else max(1, round(self.mean_life_s))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RoundMemory:
    """The memory of a round: of each node of its tree of tenants, and of each tenant."""

    memory: HoldingMemory
    resources: tuple[str, ...]
    now_us: int
    tree: TenantTree
    owners: tuple[UUID | None, ...]  #: of each node; None: the root
    kept: tuple[KeptMemory | None, ...]  #: of each node
    pasts: tuple[tuple[int, ...], ...]  #: of each node
    idle_groups: Mapping[UUID, PastHolding]  #: groups without tenants that count as charged
    gone: tuple[UUID, ...]  #: tenants and groups that were removed
    starts_empty: bool  #: whether earlier rounds counted no past holdings: what is kept is older

    @classmethod
    def read(
        cls, view: ClusterView, store: MemoryStore, cache: MemoryCache, half_life_s: int
    ) -> RoundMemory:
        """Read the memory for a round's view of the cluster."""
        starts_empty = view.last is None or view.last.memory is None
        rows = {} if starts_empty else store.past_holdings()
        found, groups = build_tenant_tree(view.tenants, view.groups)
        tree = found or TenantTree.flat(np.array([tenant.weight for tenant in view.tenants]))
        owners: list[UUID | None] = [None] * len(tree.parent)
        for tenant, node in zip(view.tenants, tree.leaf, strict=True):
            owners[node] = tenant.id
        for group, node in groups:
            owners[node] = group.id
        kept = tuple(
            None if owner is None or owner not in rows else _kept(rows[owner], view.resources)
            for owner in owners
        )
        now_us = (view.now - _EPOCH) // timedelta(microseconds=1)
        pasts = pasts_of_nodes(tree, kept, now_us, half_life_s, len(view.resources))
        all_groups = {group.id for group in view.groups}
        present = all_groups | {tenant.id for tenant in view.tenants}
        outside = all_groups - {owner for owner in owners if owner}
        return cls(
            memory=HoldingMemory(
                half_life_s=half_life_s,
                horizon_s=cache.horizon_s(store, half_life_s),
                past=pasts_of_tenants(tree, pasts),
            ),
            resources=view.resources,
            now_us=now_us,
            tree=tree,
            owners=tuple(owners),
            kept=kept,
            pasts=tuple(pasts),
            idle_groups={
                owner: _settled(rows[owner], view.resources, now_us, half_life_s)
                for owner in outside
                if owner in rows and any(rows[owner].charged.values())
            },
            gone=tuple(sorted(rows.keys() - present)),
            starts_empty=starts_empty,
        )

    def changes(
        self, held: IntArray, snapshot: Snapshot, allocation: Allocation
    ) -> PastHoldingChanges:
        """Return what to keep after a round: what tenants hold, (N, R), and who waits."""
        waits = tenants_waiting_for_room(snapshot, allocation)
        new = memory_after_round(
            self.tree, self.kept, self.pasts, held=held, waits=waits, now_us=self.now_us
        )
        return PastHoldingChanges(
            kept={
                **self.idle_groups,
                **{
                    owner: _row(each, self.resources)
                    for owner, each in zip(self.owners, new, strict=True)
                    if owner is not None and each is not None
                },
            },
            gone=self.gone,
            replaces_all=self.starts_empty,
        )

    def document(self) -> dict[str, int]:
        """Return the memory's half-life and horizon, as a round records them."""
        return {"half_life_s": self.memory.half_life_s, "horizon_s": self.memory.horizon_s}


def stop_charging(
    view: ClusterView, lease: Lease, store: MemoryStore, cache: MemoryCache, half_life_s: int
) -> None:
    """Charge nobody from now on, as nothing waits; write it if anybody was charged."""
    if not cache.charges or view.last is None or view.last.memory is None:
        return
    rows, now_us = store.past_holdings(), (view.now - _EPOCH) // timedelta(microseconds=1)
    kept = {
        owner: _settled(row, view.resources, now_us, half_life_s)
        for owner, row in rows.items()
        if any(row.charged.values())
    }
    if kept:
        store.keep_past_holdings(lease, PastHoldingChanges(kept=kept))
    cache.charges = False


def _settled(
    row: PastHolding, resources: Sequence[str], now_us: int, half_life_s: int
) -> PastHolding:
    """Return a row brought forward to now, which charges nothing from now on."""
    kept = _kept(row, resources)
    nothing = (0,) * len(resources)
    return _row(KeptMemory(kept.past_at(now_us, half_life_s), nothing, now_us), resources)


def _kept(row: PastHolding, resources: Sequence[str]) -> KeptMemory:
    return KeptMemory(
        past=tuple(row.past.get(name, 0) for name in resources),
        charged=tuple(row.charged.get(name, 0) for name in resources),
        at_us=row.at_us,
    )


def _row(kept: KeptMemory, resources: Sequence[str]) -> PastHolding:
    past, charged = (
        {name: amount for name, amount in zip(resources, amounts, strict=True) if amount}
        for amounts in (kept.past, kept.charged)
    )
    return PastHolding(past=past, charged=charged, at_us=kept.at_us)
