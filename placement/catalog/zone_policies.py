"""Which policy decides a round: one policy, policies of zones, or the fallback."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from placement.catalog.names import policy_by_name
from placement.constraints import zone_policies_with_rules
from placement.constraints.zones import Zone
from placement.model.check import check_allocation
from placement.model.snapshot import Allocation, Policy, Snapshot

#: Decides when a policy cannot.
FALLBACK: Final = "best_fit_drfh"
#: Parameters of a policy that its fallback obeys, too.
_FOR_EVERY_POLICY: Final = ("overload", "patience", "held_part", "gang_patience")
#: Hosts without a zone, or whose zone names no policy: the round's own policy decides there.
ELSEWHERE: Final = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPolicy:
    """A policy and its parameters, as settings name them."""

    policy: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneInputs(NamedPolicy):
    """One zone of a round: part of its inputs."""

    name: str
    hosts: tuple[int, ...]  #: indices of the snapshot's H


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPolicies(NamedPolicy):
    """The policy of a round or, where there are zones, the policies of the zones in turn."""

    zones: tuple[ZoneInputs, ...] = ()

    def make_policy(self) -> Policy:
        """Make the policy that decides the round; constraints and quotas hold across zones."""
        if not self.zones:
            return policy_by_name(self.policy, self.parameters)
        return zone_policies_with_rules(
            [
                Zone(
                    name=zone.name,
                    hosts=np.array(zone.hosts, dtype=np.int64),
                    policy=policy_by_name(zone.policy, zone.parameters),
                )
                for zone in self.zones
            ]
        )

    def fallback(self) -> RoundPolicies:
        """Return the fallback policy of the round; parameters that concern hosts still hold."""
        return RoundPolicies(
            policy=FALLBACK,
            parameters=fallback_parameters(self.parameters),
            zones=tuple(
                dataclasses.replace(
                    zone, policy=FALLBACK, parameters=fallback_parameters(zone.parameters)
                )
                for zone in self.zones
            ),
        )

    def check(self, snapshot: Snapshot, allocation: Allocation) -> None:
        """Raise `InfeasibleAllocationError` unless the round's allocation keeps every rule.

        No host is filled above the ``overload`` of the policy that decides there.
        """
        of_each = [_overload_threshold(self.parameters)] * len(snapshot.capacity)
        for zone in self.zones:
            for host in zone.hosts:
                of_each[host] = _overload_threshold(zone.parameters)
        check_allocation(snapshot, allocation, overload=of_each)


def first_feasible_allocation(
    deciding: RoundPolicies,
    snapshot: Snapshot,
    decide: Callable[[RoundPolicies], Allocation],
    note: Callable[[RoundPolicies, Exception], object],
    failures: tuple[type[Exception], ...] = (Exception,),
) -> Allocation | None:
    """Decide a round by its policy, then by the fallback; return the first feasible allocation.

    Parameters
    ----------
    decide : callable
        Returns the allocation of the given policies.
    note : callable
        Called with each policy that failed, and its error.
    failures : tuple of exception types
        Errors that lead to the fallback; any other error is raised.
    """
    for each in (deciding, deciding.fallback()):
        try:
            allocation = decide(each)
            each.check(snapshot, allocation)
        except failures as error:
            note(each, error)
        else:
            return allocation
    return None


def build_zone_inputs(
    zone_of_host: Sequence[str | None], policies: Mapping[str, NamedPolicy], otherwise: NamedPolicy
) -> tuple[ZoneInputs, ...]:
    """Return the zones of a round, sorted by name; none if no zone has a policy of its own.

    ``zone_of_host``, of length H, has the zone of each host; None means no zone.
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


def fallback_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that a policy's fallback keeps: those that concern hosts."""
    return {name: parameters[name] for name in parameters if name in _FOR_EVERY_POLICY}


def _overload_threshold(parameters: Mapping[str, Any]) -> float:
    """Return the part of a host's capacity that a policy may fill, by its parameters."""
    # A policy from elsewhere may call something else by that name.
    given = parameters.get("overload")
    return float(given) if isinstance(given, int | float) and 0 < given < 1 else 1.0
