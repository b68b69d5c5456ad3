"""What tenants held in the past, as an input of a round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

#: Parts of a unit of a resource in which past amounts are kept.
PARTS: Final = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldingMemory:
    """The decayed mean of what each tenant held; see `placement.fairness.memory`.

    Axes: N tenants, R resources.
    """

    half_life_s: int  #: at least 1
    horizon_s: int  #: the mean life of VMs, at least 1
    #: (N, R) millionths of a unit; within a group they add up to the group's own memory
    past: tuple[tuple[int, ...], ...]

    def document(self) -> dict[str, Any]:
        """Return the memory as JSON values, which `from_document` reads back."""
        return {
            "half_life_s": self.half_life_s,
            "horizon_s": self.horizon_s,
            "past": list(map(list, self.past)),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> HoldingMemory:
        """Build the memory from the JSON values that `document` returned."""
        return cls(
            half_life_s=document["half_life_s"],
            horizon_s=document["horizon_s"],
            past=tuple(map(tuple, document["past"])),
        )
