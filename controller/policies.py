"""Checks that the policies of the settings exist and accept their parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from controller.settings import ControllerSettings
from placement import PlacementError, policy_by_name
from placement.constraints.starving_requests import StarvationPatience
from registry import SettingsError


def check_policies(settings: ControllerSettings) -> None:
    """Raise `SettingsError`, with one line, for the first policy that is invalid."""
    for setting, policy, parameters in _policies_of_settings(settings):
        try:
            policy_by_name(policy, parameters)
        except PlacementError as error:
            raise SettingsError(f"{setting}: {error}") from None
    try:
        StarvationPatience.of(
            settings.policy_parameters
        )  # the fallback's, where the policy has none
    except PlacementError as error:
        raise SettingsError(f"FUGA_POLICY_PARAMETERS: {error}") from None


def _policies_of_settings(
    settings: ControllerSettings,
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield each policy of the settings: the setting, the policy's name, and its parameters."""
    yield "FUGA_POLICY", settings.policy, settings.policy_parameters
    for zone, each in settings.zone_policies.items():
        yield f"FUGA_ZONE_POLICIES, zone {zone}", each.policy, each.parameters
    if settings.shadow_policy is not None:
        yield "FUGA_SHADOW_POLICY", settings.shadow_policy, settings.shadow_parameters
    for zone, each in (settings.shadow_zone_policies or {}).items():
        yield f"FUGA_SHADOW_ZONE_POLICIES, zone {zone}", each.policy, each.parameters
