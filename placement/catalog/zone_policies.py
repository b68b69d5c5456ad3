"""Which hosts form which zone, and whose policy decides there."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from placement.catalog.names import policy_by_name
from placement.round.model import Policy
from placement.rules import zones_with_rules
from placement.rules.zones import Zone

#: Decides when a policy cannot.
FALLBACK: Final = "best_fit_drfh"
#: Parameters of a policy that its fallback obeys, too.
_FOR_EVERY_POLICY: Final = ("overload", "patience", "held_part")
#: Hosts without a zone, or whose zone names no policy: the round's own policy decides there.
ELSEWHERE: Final = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPolicy:
    """A policy and its parameters, as settings name them."""

    policy: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneInputs:
    """One zone of a round: part of its inputs."""

    name: str
    policy: str
    parameters: Mapping[str, Any]
    hosts: tuple[int, ...]  #: indices of the snapshot's H


def zones_of(
    zone_of_host: Sequence[str | None],
    policies: Mapping[str, NamedPolicy],
    otherwise: NamedPolicy,
) -> tuple[ZoneInputs, ...]:
    """Return the zones of a round in order of name; none where no zone has its own policy.

    ``zone_of_host`` has the zone of each host on the axis H, None for none.
    """
    if not policies:
        return ()
    members: dict[str, list[int]] = {}
    for index, zone in enumerate(zone_of_host):
        name = zone if zone is not None and zone in policies else ELSEWHERE
        members.setdefault(name, []).append(index)
    return tuple(
        ZoneInputs(
            name=name,
            policy=policies.get(name, otherwise).policy,
            parameters=policies.get(name, otherwise).parameters,
            hosts=tuple(members[name]),
        )
        for name in sorted(members)
    )


def overload_of_hosts(
    hosts: int, parameters: Mapping[str, Any], zones: Sequence[ZoneInputs]
) -> tuple[float, ...]:
    """Return the part of each host's capacity above which it is not filled, shape (H,).

    The ``overload`` of the policy that decides there; 1 where it knows none.
    """
    of_each = [_overload(parameters)] * hosts
    for zone in zones:
        for host in zone.hosts:
            of_each[host] = _overload(zone.parameters)
    return tuple(of_each)


def _overload(parameters: Mapping[str, Any]) -> float:
    # A policy from elsewhere may call something else by that name.
    given = parameters.get("overload")
    return float(given) if isinstance(given, int | float) and 0 < given < 1 else 1.0


def fallback_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the fallback obeys: those of a policy's parameters that speak of hosts."""
    return {name: parameters[name] for name in parameters if name in _FOR_EVERY_POLICY}


def fallback_in(zones: Sequence[ZoneInputs]) -> tuple[ZoneInputs, ...]:
    """Return the same zones with the fallback in each, which obeys what the zone says of hosts."""
    return tuple(
        dataclasses.replace(zone, policy=FALLBACK, parameters=fallback_parameters(zone.parameters))
        for zone in zones
    )


def policy_in_zones(zones: Sequence[ZoneInputs]) -> Policy:
    """Return the policy that lets each zone decide in turn.

    Constraints and allowances hold across zones.
    """
    return zones_with_rules(
        [
            Zone(
                name=zone.name,
                hosts=np.array(zone.hosts, dtype=np.int64),
                policy=policy_by_name(zone.policy, zone.parameters),
            )
            for zone in zones
        ]
    )
