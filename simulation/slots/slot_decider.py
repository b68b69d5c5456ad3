"""Decide rounds of a simulation with the policies of the present hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from placement import Allocation, Policy, Snapshot, decide
from placement.catalog.zone_policies import (
    NamedPolicy,
    RoundPolicies,
    build_zone_inputs,
    first_feasible_allocation,
)
from registry.requests import zone_of
from simulation.slots.cluster import Cluster
from simulation.slots.moving.move_options import MoveOptions

_SEED_STEP: Final = 2**32  #: between the seeds of two simulations: more than any start of a slot


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPolicy:
    """The policy that decides a simulation's rounds, with its parameters and budget."""

    policy: str = "fuga"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    budget_units: int | None = 2_000_000
    #: the policy of each zone's hosts; ``policy`` decides on the others
    zone_policies: Mapping[str, str] = field(default_factory=dict)
    #: of zones whose parameters are not those of ``policy``
    zone_parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    slot_length_s: float = 60.0
    seed: int = 0
    began_at_s: float = 0.0  #: when time 0 was, seconds since 1970: rounds are seeded by the clock
    wait_at_most_s: float | None = None  #: what waits longer is given up by its tenant
    moving: MoveOptions = field(default_factory=MoveOptions)
    fairness_memory_s: int = 0  #: half-life of past holdings; 0: they do not count

    def policy_parameters(self, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the parameters with which a policy is made for the simulation.

        If moves make room for starving requests, no hosts are reserved by default.
        """
        return parameters if self.moving.room is None else {"patience": 0, **parameters}


class SlotDecider:
    """Decides simulated rounds as the control centre does: policy, check, fallback."""

    def __init__(self, choice: SimulatedPolicy, cluster: Cluster) -> None:
        self._choice, self._cluster = choice, cluster
        self.deciding: RoundPolicies | None = (
            None  #: on the hosts that are there now; None: to be found
        )
        self.policy: Policy | None = None

    def decide(
        self, snapshot: Snapshot, start_s: float, around: Callable[[Policy], Policy] | None = None
    ) -> tuple[Allocation | None, str | None]:
        """Decide a simulated round; return the first feasible allocation, and any policy error.

        ``around`` returns what a policy is wrapped in for this round.
        """
        choice, reasons = self._choice, list[str]()
        seed = int(choice.began_at_s + start_s) + choice.seed * _SEED_STEP
        deciding = self.deciding = self.deciding or self._find_deciding()
        policy = self.policy = self.policy or deciding.make_policy()

        def decide_one(policies: RoundPolicies) -> Allocation:
            """Decide the round by one policy."""
            its, units = (
                (policy, choice.budget_units)
                if policies is deciding
                else (policies.make_policy(), None)
            )
            made = its if around is None else around(its)
            return decide(snapshot, made, seed=seed, budget_units=units)

        def note(_: RoundPolicies, error: Exception) -> None:
            """Keep the reason why a policy failed."""
            reasons.append(f"{type(error).__name__}: {error}")

        allocation = first_feasible_allocation(deciding, snapshot, decide_one, note)
        return allocation, reasons[0] if reasons else None

    def forget_zone_policies(self) -> None:
        """Forget the policies of zones, as zones may have other hosts now."""
        self.deciding = self.policy = None

    def _find_deciding(self) -> RoundPolicies:
        """Return the policies of the simulated round, by the zones of the present hosts."""
        choice = self._choice
        named = {
            zone: NamedPolicy(
                policy=name,
                parameters=choice.policy_parameters(
                    choice.zone_parameters.get(zone, choice.parameters)
                ),
            )
            for zone, name in choice.zone_policies.items()
        }
        zone_of_host = [zone_of(host.labels) for host in self._cluster.hosts]
        parameters = choice.policy_parameters(choice.parameters)
        otherwise = NamedPolicy(policy=choice.policy, parameters=parameters)
        zones = build_zone_inputs(zone_of_host, named, otherwise)
        return RoundPolicies(policy=choice.policy, parameters=parameters, zones=zones)
