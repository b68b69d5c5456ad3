"""Names of tenants, groups and hosts in a recording: real or anonymous."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from registry.admin import HostTransition, PastHost


class Pseudonyms:
    """Names as they are, or as numbers in order of their first appearance."""

    def __init__(self, word: str, *, anonymous: bool, digits: int = 1) -> None:
        self._word, self._anonymous, self._digits = word, anonymous, digits
        self._seen: dict[str, str] = {}

    def alias_of(self, name: str) -> str:
        """Return the name to write for a name; an anonymous one is numbered at its first use."""
        number = f"{len(self._seen) + 1:0{self._digits}}"
        alias = f"{self._word}-{number}" if self._anonymous else name
        return self._seen.setdefault(name, alias)

    def knows(self, name: str) -> bool:
        """Return whether `alias_of` was called for a name."""
        return name in self._seen


class FileNames:
    """The names of tenants, groups of tenants, VM groups and hosts in a recording's files."""

    def __init__(self, hosts: Sequence[PastHost], *, anonymous: bool) -> None:
        self.tenants = Pseudonyms("tenant", anonymous=anonymous)
        self.groups = Pseudonyms("group", anonymous=anonymous)
        self.vm_groups = Pseudonyms("vm-group", anonymous=anonymous)
        digits = len(str(len(hosts)))  # hosts go in order of their names
        self.hosts = Pseudonyms("host", anonymous=anonymous, digits=digits)
        self.of_host: dict[UUID, str] = {}
        others: Counter[str] = Counter()
        # A retired host's name may have come back: the one that is still there keeps it.
        for host in sorted(hosts, key=lambda each: (each.name, _is_retired(each), each.created_at)):
            others[host.name] += 1
            number = others[host.name]
            self.of_host[host.id] = self.hosts.alias_of(
                host.name if number == 1 else f"{host.name}~{number}"
            )


def _is_retired(host: PastHost) -> bool:
    """Return whether a host was retired in the recorded period."""
    return any(change == HostTransition.RETIRED for _, change in host.changes)


def trace_seconds(at: datetime, since: datetime) -> float:
    """Return a time as seconds since the beginning of a recorded trace."""
    return round((at - since).total_seconds(), 3)
