"""What the catalogue knows of a mechanism."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from placement.mechanisms.model import Mechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanismEntry:
    """A mechanism of the catalogue: what it does, promises and costs, how it is made.

    Sizes in ``complexity``: n tenants, k host classes, m resources, q leaves of
    the tree of tenants.
    """

    summary: str
    paper: str
    guarantees: str
    complexity: str
    make: Callable[[Mapping[str, Any]], Mechanism]  #: from the parameters that it reads
    parameters: frozenset[str] = frozenset()
    reads_tree: bool = False  #: can it divide among the tenants of a tree?
