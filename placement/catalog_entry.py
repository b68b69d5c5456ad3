"""The entry of a policy or a mechanism in the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Entry(Generic[Made]):
    """An entry's description, parameters, maker, guarantees and complexity.

    Sizes in ``complexity`` of policies: p hosts, T kinds of VM, V distinct free
    vectors, n tenants; of mechanisms: n tenants, k host classes, m resources, q
    leaves of the tree of tenants.
    """

    summary: str
    parameters: frozenset[str]  #: names of those that it reads
    make: Callable[[Mapping[str, Any]], Made]  #: from the parameters that it reads
    paper: str = "not stated"
    guarantees: str = "not stated"
    complexity: str = "not stated"
    reads_tree: bool = False  #: does it look at the tree of tenants itself?
