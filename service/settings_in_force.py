"""The settings of this process for operators, with secrets masked."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import SecretStr
from pydantic_settings import BaseSettings

from registry.db import mask_secrets

#: Shown in place of a secret.
SET: Final = "(set)"
_SECRET: Final = re.compile("(?i)password|secret|token")


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingInForce:
    """One setting with its masked value and the source of the value."""

    name: str
    value: str | None  #: None: not set; a secret is masked
    source: Literal["environment", "file", "default"]
    description: str | None


def settings_in_force(
    settings: BaseSettings, environ: Mapping[str, str] = os.environ
) -> tuple[SettingInForce, ...]:
    """Return all settings of a process with secrets masked, sorted by name."""
    given = {name.upper() for name, value in environ.items() if value}
    found = []
    for name, field in sorted(type(settings).model_fields.items()):
        variable = f"FUGA_{name.upper()}"
        source: Literal["environment", "file", "default"] = "default"
        if variable in given:
            source = "environment"
        elif name in settings.model_fields_set:
            source = "file"
        found.append(
            SettingInForce(
                name=variable,
                value=shown_value(name, getattr(settings, name)),
                source=source,
                description=field.description,
            )
        )
    return tuple(found)


def shown_value(name: str, value: Any) -> str | None:
    """Return a setting's value as text with secrets masked; None if it is not set."""
    if value is None:
        return None
    if isinstance(value, SecretStr):
        return SET
    if name.endswith("_command"):  # its arguments may be a password
        return f"{value[0]} …" if value else None
    if isinstance(value, frozenset | tuple | list):  # of rules the first counts that fits
        shown = [mask_secrets(str(each)) for each in value]
        return ", ".join(sorted(shown) if isinstance(value, frozenset) else shown) or None
    if isinstance(value, dict):
        return json.dumps(_mask_values(value), default=str) if value else None
    return mask_secrets(str(value))


def _mask_values(value: Any) -> Any:
    """Mask the secrets in a setting's value, each text separately before JSON adds quotes."""
    if isinstance(value, dict):
        return {
            key: SET if _SECRET.search(str(key)) and each is not None else _mask_values(each)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_mask_values(each) for each in value]
    if isinstance(value, SecretStr):
        return SET
    return mask_secrets(value) if isinstance(value, str) else value
