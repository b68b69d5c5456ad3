"""What the checker looks at, and what it says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Finding:
    """Something that must not be."""

    rule: str
    subject: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.subject}: {self.what}"


class Sql(Protocol):
    """Runs a query; rows by column name."""

    def __call__(self, query: str) -> list[dict[str, Any]]: ...


@dataclass(frozen=True)
class AttachedDisks:
    """Serial numbers of the volumes of one domain, in each of the places that know of them."""

    live: frozenset[str]
    persistent: frozenset[str]
    opened: frozenset[str] = frozenset()  #: of files that its emulator has open

    def places(self, *, running: bool) -> Mapping[str, frozenset[str]]:
        """Return the serial numbers by place; a domain that is off has one definition alone."""
        found = {"its persistent definition": self.persistent}
        return found | ({"its live definition": self.live, "QEMU": self.opened} if running else {})


@dataclass(frozen=True)
class HostSeen:
    """What virsh tells of a host."""

    name: str
    domains: Mapping[str, str]
    volumes: frozenset[str]
    disks: Mapping[str, Sequence[int]] = field(default_factory=dict)  #: counts on each, in order
    attached: Mapping[str, AttachedDisks] = field(default_factory=dict)  #: by domain
