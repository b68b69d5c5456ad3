"""Spot VMs: what a snapshot knows of them, and how the cluster would be without them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from placement.model.arrays import BoolArray, IntArray

if TYPE_CHECKING:
    from placement.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Spot:
    """Requests for spot VMs, and those that run.

    Axes: Q requests, R resources, S spot VMs with a place, by when they got it.
    """

    asks: BoolArray  #: (Q,) does it ask for spot VMs?
    host: IntArray  #: (S,) an index of H
    tenant: IntArray  #: (S,) an index of N
    amounts: IntArray  #: (S, R) what it holds
    #: (S,) may a round end it? Not if it ends or moves already, nor on a host that is overfull
    may_end: BoolArray
    #: rows of request, host, count: the room that spot VMs leave, or left, and for whom
    kept: tuple[tuple[int, int, int], ...] = ()
    #: thousandths of each resource that new spot VMs leave free, so that ordinary VMs start at once
    margin: int = 0

    def __post_init__(self) -> None:
        for each in (self.asks, self.host, self.tenant, self.amounts, self.may_end):
            each.setflags(write=False)

    def held(self, tenants: int) -> IntArray:
        """Return what spot VMs of each tenant hold, (N, R)."""
        held = np.zeros((tenants, self.amounts.shape[1]), dtype=np.int64)
        np.add.at(held, self.tenant, self.amounts)
        return held

    def document(self) -> dict[str, Any]:
        """Return JSON values, from which `of_document` makes the same again."""
        arrays = {
            field.name: value.tolist()
            for field in dataclasses.fields(self)
            if isinstance(value := getattr(self, field.name), np.ndarray)
        }
        margin = {"margin": self.margin} if self.margin else {}
        return {**arrays, "kept": list(map(list, self.kept)), **margin}

    @classmethod
    def of_document(cls, document: Mapping[str, Any], resources: int) -> Spot:
        """Read back what `document` returned."""
        return cls(
            asks=np.array(document["asks"], dtype=np.bool_),
            host=np.array(document["host"], dtype=np.int64),
            tenant=np.array(document["tenant"], dtype=np.int64),
            amounts=np.array(document["amounts"], dtype=np.int64).reshape(-1, resources),
            may_end=np.array(document["may_end"], dtype=np.bool_),
            kept=tuple((request, host, count) for request, host, count in document["kept"]),
            margin=document.get("margin", 0),
        )


def without_spot(snapshot: Snapshot) -> Snapshot:
    """Return the cluster as if nobody had or asked for spot VMs: what is fair is told by it."""
    spot = snapshot.spot
    if spot is None:
        return snapshot
    free = snapshot.free.copy()
    np.add.at(free, spot.host[spot.may_end], spot.amounts[spot.may_end])
    return dataclasses.replace(
        snapshot, spot=None, free=free, count=np.where(spot.asks, 0, snapshot.count)
    )
