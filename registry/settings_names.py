"""Every process's settings together: they share one file, and a mistyped name must not be lost."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import Final, TypeVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings

from registry.errors import RegistryError, SettingsError, UnknownSettingError

#: By name, as tasks are: this package is imported by those that have these, never the reverse.
_CLASSES: Final[Mapping[str, str]] = {
    "api, control": "controller.settings:ControllerSettings",
    "monitor": "monitor.settings:MonitorSettings",
    "worker": "workers.settings:WorkerSettings",
}
_ALIKE: Final = 0.6

S = TypeVar("S", bound=BaseSettings)


@cache
def settings_classes() -> Mapping[str, type[BaseSettings]]:
    """Return the class of settings of each kind of process."""
    found = {}
    for process, place in _CLASSES.items():
        module, _, name = place.partition(":")
        found[process] = getattr(import_module(module), name)
    return found


def known_names() -> frozenset[str]:
    """Return the names of all settings of all processes."""
    return frozenset(name for each in settings_classes().values() for name in each.model_fields)


def check_names(file: str, names: Iterable[str]) -> None:
    """Raise `UnknownSettingError` for names that no process knows."""
    known = known_names()
    unknown = {
        name: next(iter(difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE)), None)
        for name in names
        if name not in known
    }
    if unknown:
        raise UnknownSettingError(file, unknown)


def load(settings: type[S]) -> S:
    """Return the settings in force, or raise `SettingsError` with all that is wrong with them."""
    try:
        return settings()
    except ValidationError as error:
        lines = []
        for each in error.errors():
            if not each["loc"]:  # several together; what was found is all of them, secrets too
                lines.append(each["msg"])
                continue
            name = "FUGA_" + "_".join(str(part) for part in each["loc"]).upper()
            lines.append(f"{name}: found {each['input']!r}: {each['msg']}")
        told = "\n".join([*lines, "Set it in the environment or in FUGA_CONFIG."])
        raise SettingsError(told) from None
    except (RegistryError, OSError, ValueError) as error:  # a file that is none, JSON that is none
        raise SettingsError(f"settings: {error}") from None
