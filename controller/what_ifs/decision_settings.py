"""The policies of the live system, as settings of a simulation of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controller.rounds.damaged_rounds import reporting_damage
from controller.rounds.inputs import decode_inputs
from controller.settings import ControllerSettings
from placement.catalog.zone_policies import ELSEWHERE
from registry import RoundDamagedError
from registry.admin import PastDecision


def decision_from_settings(settings: ControllerSettings) -> dict[str, Any]:
    """Return the fields of `DecidedRounds` from the settings, for a site without rounds."""
    return {
        "source": "the settings, because there is no round",
        "policy": settings.policy,
        "parameters": dict(settings.policy_parameters),
        "slot_length_s": settings.slot_length_s,
        "budget_units": settings.budget_units,
        "fairness_memory_s": settings.fairness_memory_s,
        "zone_policies": {name: zone.model_dump() for name, zone in settings.zone_policies.items()},
    }


def decision_from_round(
    newest: PastDecision | None, otherwise: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the fields of `DecidedRounds` from the newest round, completed by ``otherwise``."""
    if newest is None:
        return dict(otherwise)
    source = f"round {newest.round}"
    zones: Mapping[str, Any] = otherwise["zone_policies"]
    if newest.inputs is not None:
        try:
            with reporting_damage(newest.round):
                stored = decode_inputs(newest.inputs).zones
        except RoundDamagedError:
            source += ", zones from the settings because its inputs are damaged"
        else:
            zones = {
                zone.name: {"policy": zone.policy, "parameters": dict(zone.parameters)}
                for zone in stored
                if zone.name != ELSEWHERE
            }
    else:
        source += ", zones from the settings because its inputs are purged"
    return {
        "source": source,
        "policy": newest.policy,
        "parameters": dict(newest.parameters),
        "slot_length_s": newest.slot_length_s,
        "budget_units": newest.budget_units,
        "fairness_memory_s": 0 if newest.memory is None else newest.memory["half_life_s"],
        "zone_policies": zones,
    }
