"""The settings of all processes, which share one file; finds mistyped names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import Final, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings
from pydantic_settings import SettingsError as UnparsedError

from plain_text import similar_names
from registry import RegistryError, SettingsError, UnknownSettingError, quote_value

#: By name, as these modules import this package and not the reverse.
_CLASSES: Final[Mapping[str, str]] = {
    "api, control": "controller.settings:ControllerSettings",
    "monitor": "monitor.settings:MonitorSettings",
    "worker": "workers.settings:WorkerSettings",
}
_ALIKE: Final = 0.6

#: Beginnings of Pydantic's messages: "Input should be 'refuse' or 'wait'", "Value error, ..."
_SHOULD_BE: Final = re.compile(r"^(\w+ should (be )?|Value error, )")
_TYPES: Final[Mapping[str, str]] = {
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "bool_parsing": "true or false",
    "list_type": 'a list, such as ["a", "b"]',
    "tuple_type": 'a list, such as ["a", "b"]',
    "frozen_set_type": 'a list, such as ["a", "b"]',
    "dict_type": 'a table, such as {"a": 1}',
    "model_type": 'a table, such as {"a": 1}',
}
_FIELD: Final = re.compile(r'field "(\w+)"')

S = TypeVar("S", bound=BaseSettings)


@cache
def settings_classes() -> Mapping[str, type[BaseSettings]]:
    """Return the class of settings of each kind of process."""
    found = {}
    for process, place in _CLASSES.items():
        module, _, name = place.partition(":")
        found[process] = getattr(import_module(module), name)
    return found


def known_setting_names() -> frozenset[str]:
    """Return the names of all settings of all processes."""
    return frozenset(name for each in settings_classes().values() for name in each.model_fields)


def check_setting_names(file: str, names: Iterable[str]) -> None:
    """Raise `UnknownSettingError` for names that no process knows."""
    known = known_setting_names()
    unknown = {
        name: next(iter(difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE)), None)
        for name in names
        if name not in known
    }
    if unknown:
        raise UnknownSettingError(file, unknown)


def _allowed_values(error: ErrorDetails) -> str:
    """Return a description of a setting's allowed values."""
    words = _TYPES.get(error["type"]) or _SHOULD_BE.sub("", error["msg"])
    limits = f"a number {words}" if words.startswith(("greater", "less")) else words
    choices = re.findall(r"'([^']*)'", limits) if error["type"] == "literal_error" else ()
    suggestion = similar_names(str(error["input"]), choices)
    return f"{limits}; did you mean {suggestion[0]}?" if suggestion else limits


def load_settings(settings: type[S]) -> S:
    """Return the settings in force, or raise `SettingsError` with all errors."""
    try:
        return settings()
    except ValidationError as error:
        lines = []
        for each in error.errors():
            if not each["loc"]:  # several together; what was found is all of them, secrets too
                lines.append(each["msg"])
                continue
            field, *below = (str(part) for part in each["loc"])
            name = f"FUGA_{field.upper()}" + (f" ({'.'.join(below)})" if below else "")
            lines.append(
                f"{name}: found {quote_value(each['input'])}, allowed is {_allowed_values(each)}"
            )
        message = "\n".join([*lines, "Set it in the environment or in FUGA_CONFIG."])
        raise SettingsError(message) from None
    except UnparsedError as error:
        found = _FIELD.search(str(error))
        name = f"FUGA_{found[1].upper()}" if found else "a setting"
        message = f'{name}: wanted is JSON, as ["a"] or {{"a": 1}}: {error.__cause__ or error}'
        raise SettingsError(message) from None
    except (RegistryError, OSError, ValueError) as error:  # a file that is none
        raise SettingsError(f"settings: {error}") from None
