"""The entry of a mechanism in the catalogue."""

from __future__ import annotations

from dataclasses import dataclass

from placement.catalog_entry import Entry
from placement.mechanisms.model import Mechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanismEntry(Entry[Mechanism]):
    """A mechanism of the catalogue; ``reads_tree``: it can divide among the tenants of a tree."""

    parameters: frozenset[str] = frozenset()
