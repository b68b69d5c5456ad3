"""Affinity, anti-affinity and spread: placement constraints of requests.

Plain tuples of indices, as small as what they say: a policy never sees them.
`placement.constraints.expansion` turns them into eligibility and room, which every policy knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from placement.errors import ConstraintError


@dataclass(frozen=True, slots=True, kw_only=True)
class AffinityGroup:
    """Requests whose VMs keep apart, or keep together."""

    apart: bool  #: True: one VM of the group on a host at most; False: all on one host
    hard: bool  #: False: only as far as there is room for it
    requests: tuple[int, ...]  #: its members, indices of Q
    hosts: tuple[int, ...]  #: those that hold VMs of it already, indices of H


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A request whose VMs are spread over zones."""

    request: int
    maximum: int  #: VMs of it in one zone, at most
    placed: tuple[int, ...]  #: VMs of it in each zone already


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """The constraints of a snapshot that eligibility does not express."""

    groups: tuple[AffinityGroup, ...] = ()
    spreads: tuple[Spread, ...] = ()
    #: zone of each host, -1 for none; empty where nothing is spread
    zones: tuple[int, ...] = ()
    #: of a request the host classes that it would rather have
    preferred: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.groups or self.spreads or self.preferred)

    def check(self, *, requests: int, hosts: int, classes: int) -> None:
        """Raise `ConstraintError` for an index that a snapshot of these sizes does not have."""
        for group in self.groups:
            _check_indices("group.requests", group.requests, requests)
            _check_indices("group.hosts", group.hosts, hosts)
        if self.spreads and len(self.zones) != hosts:
            raise ConstraintError("zones", len(self.zones), f"{hosts}, one for each host")
        for spread in self.spreads:
            _check_indices("spread.request", (spread.request,), requests)
            for zone in self.zones:
                if not -1 <= zone < len(spread.placed):
                    raise ConstraintError("zones", zone, f"-1 to {len(spread.placed) - 1}")
        _check_indices("preferred", tuple(self.preferred), requests)
        for listed in self.preferred.values():
            _check_indices("preferred", listed, classes)

    def document(self) -> dict[str, Any]:
        """Return the constraints as JSON values, which `from_document` reads back."""
        return {
            "groups": [
                [group.apart, group.hard, list(group.requests), list(group.hosts)]
                for group in self.groups
            ],
            "spreads": [[each.request, each.maximum, list(each.placed)] for each in self.spreads],
            "zones": list(self.zones),
            "preferred": [[request, list(self.preferred[request])] for request in self.preferred],
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Constraints:
        """Build the constraints from the JSON values that `document` returned."""
        return cls(
            groups=tuple(
                AffinityGroup(apart=apart, hard=hard, requests=tuple(requests), hosts=tuple(hosts))
                for apart, hard, requests, hosts in document["groups"]
            ),
            spreads=tuple(
                Spread(request=request, maximum=maximum, placed=tuple(placed))
                for request, maximum, placed in document["spreads"]
            ),
            zones=tuple(document["zones"]),
            preferred={request: tuple(classes) for request, classes in document["preferred"]},
        )


def _check_indices(field_name: str, found: tuple[int, ...], size: int) -> None:
    """Raise `ConstraintError` for an index that is not below ``size``."""
    for index in found:
        if not 0 <= index < size:
            raise ConstraintError(field_name, index, f"0 to {size - 1}")
