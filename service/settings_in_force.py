"""The settings of this process as operators may read them: secrets stay here."""

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

#: Instead of a secret; it shows that there is one.
SET: Final = "(set)"
_SECRET: Final = re.compile("(?i)password|secret|token")


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingInForce:
    """One setting, its value in words, and where that is from."""

    name: str
    value: str | None  #: None: nothing is set; of a secret only that it is
    source: Literal["environment", "file", "default"]
    description: str | None


def settings_in_force(
    settings: BaseSettings, environ: Mapping[str, str] = os.environ
) -> tuple[SettingInForce, ...]:
    """Return every setting by name."""
    given = {name.upper() for name in environ}
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
                value=said(name, getattr(settings, name)),
                source=source,
                description=field.description,
            )
        )
    return tuple(found)


def said(name: str, value: Any) -> str | None:
    """Return a setting's value in words, without what is secret in it; None: nothing is set."""
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
        return json.dumps(_masked(value), default=str) if value else None
    return mask_secrets(str(value))


def _masked(value: Any) -> Any:
    """Mask each text for itself: quotes and commas of JSON end no password."""
    if isinstance(value, dict):
        return {
            key: SET if _SECRET.search(str(key)) and each is not None else _masked(each)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_masked(each) for each in value]
    if isinstance(value, SecretStr):
        return SET
    return mask_secrets(value) if isinstance(value, str) else value
