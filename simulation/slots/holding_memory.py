"""Memory of past holdings of simulated tenants, as the control centre keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from placement import Allocation, IntArray, Snapshot
from placement.fairness.memory import (
    KeptMemory,
    memory_after_round,
    pasts_of_nodes,
    pasts_of_tenants,
    tenants_waiting_for_room,
)
from placement.model.memory import HoldingMemory
from simulation.checkpoint import CheckpointData
from simulation.slots.interning import InternedNames

_US: Final = 10**6


class SimulatedMemory:
    """What is kept of simulated tenants and groups, by name, and the mean life of VMs."""

    def __init__(self, names: InternedNames, half_life_s: int) -> None:
        self._names, self._half_life_s = names, half_life_s
        self._kept: dict[str, KeptMemory] = {}
        self._vm_seconds, self._ends, self._at_s = 0.0, 0, 0.0

    def state(self) -> CheckpointData:
        """Return the memory for a checkpoint."""
        return {
            "kept": [
                [name, list(each.past), list(each.charged), each.at_us]
                for name, each in self._kept.items()
            ],
            "vm_seconds": self._vm_seconds,
            "ends": self._ends,
            "at_s": self._at_s,
        }

    def restore(self, kept: CheckpointData) -> None:
        """Restore the memory from a checkpoint."""
        self._kept = {
            name: KeptMemory(tuple(map(int, past)), tuple(map(int, charged)), int(at_us))
            for name, past, charged, at_us in kept["kept"]
        }
        self._vm_seconds, self._at_s = float(kept["vm_seconds"]), float(kept["at_s"])
        self._ends = int(kept["ends"])

    def observe(self, at_s: float, running: int, ended: int) -> None:
        """Learn the lives of VMs: how many ran until a time, and how many of them ended."""
        self._vm_seconds += running * max(0.0, at_s - self._at_s)
        self._at_s, self._ends = at_s, self._ends + ended

    @property
    def horizon_s(self) -> int:
        """The mean life of VMs; the half-life until one has ended."""
        if not self._ends:
            return self._half_life_s
        return max(1, round(self._vm_seconds / self._ends))

    def of_tenants(self, tenants: IntArray, at_s: float) -> HoldingMemory:
        """Return the memory of some tenants in a round at a time."""
        pasts = self._pasts_of_tenants(at_s)
        return HoldingMemory(
            half_life_s=self._half_life_s,
            horizon_s=self.horizon_s,
            past=tuple(pasts[tenant] for tenant in tenants.tolist()),
        )

    def tenants_with_past(self, at_s: float) -> IntArray:
        """Return the tenants that have any past: they are part of rounds even if they hold none."""
        pasts = self._pasts_of_tenants(at_s)
        return np.array([tenant for tenant, past in enumerate(pasts) if any(past)], dtype=np.int64)

    def keep(
        self, at_s: float, decided: tuple[Snapshot, IntArray, Allocation] | None = None
    ) -> None:
        """Keep the memory after a slot: with its round and the round's tenants, if there was one.

        Nobody is charged after a slot in which nothing waited.
        """
        waits = np.zeros(len(self._names.tenants), dtype=np.bool_)
        if decided is not None:
            snapshot, tenants, allocation = decided
            waits[tenants] = tenants_waiting_for_room(snapshot, allocation)
        tree, nodes = self._names.whole_tree()
        kept = self._kept_of(nodes)
        held, at_us = self._names.held, round(at_s * _US)
        pasts = pasts_of_nodes(tree, kept, at_us, self._half_life_s, held.shape[1])
        new = memory_after_round(tree, kept, pasts, held=held, waits=waits, now_us=at_us)
        self._kept.update(
            (name, each) for name, each in zip(nodes, new, strict=True) if each is not None
        )

    def _pasts_of_tenants(self, at_s: float) -> tuple[tuple[int, ...], ...]:
        """Return the past of every tenant so far, within its group's."""
        tree, nodes = self._names.whole_tree()
        width = len(self._names.resources)
        kept = self._kept_of(nodes)
        at_us = round(at_s * _US)
        return pasts_of_tenants(tree, pasts_of_nodes(tree, kept, at_us, self._half_life_s, width))

    def _kept_of(self, nodes: Sequence[str]) -> list[KeptMemory | None]:
        """Return what is kept of the nodes of a tree of tenants, by their names."""
        return [self._kept.get(name) for name in nodes]
