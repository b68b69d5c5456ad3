"""Reads the settings for commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from controller.terminal.errors import BadInputError

if TYPE_CHECKING:
    from pydantic_settings import BaseSettings

    from controller.settings import ControllerSettings

S = TypeVar("S", bound="BaseSettings")


def load_settings() -> ControllerSettings:
    """Read the controller's settings; raise `BadInputError` if they are invalid."""
    from controller.settings import ControllerSettings  # noqa: PLC0415 - slow; `--help` needs none

    return load_as(ControllerSettings)


def load_as(settings: type[S]) -> S:
    """Read the settings of one kind of process; raise `BadInputError` if they are invalid."""
    from registry import SettingsError  # noqa: PLC0415
    from service.settings_names import load_settings  # noqa: PLC0415

    try:
        return load_settings(settings)
    except SettingsError as error:
        raise BadInputError(str(error)) from None
