"""Maps fields of the API to the options that a command's user typed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

#: Parameters of commands that set a field, where they are not called like it.
_PARAMETERS: Final[Mapping[str, Sequence[str]]] = MappingProxyType(
    {
        "default": ("source",),
        "for_s": ("length",),
        "format": ("image_format",),
        "host": ("to",),
        "hosts": ("host",),
        "is_group": ("group",),
        "labels": ("label", "changes"),
        "limit": ("last",),
        "limits": ("amounts",),
        "min_memory_mib": ("min_memory",),
        "offered_to": ("offer_to",),
        "only_cold": ("cold",),
        "over_quota": ("over",),
        "overhead_per_vm": ("overhead",),
        "overrides": ("override",),
        "parent": ("to",),
        "public_key": ("file",),
        "ratios": ("ratio",),
        "request_id": ("request",),
        "resources": ("amounts",),
        "rules.affinity": ("affinity",),
        "rules.anti_affinity": ("anti_affinity",),
        "rules.forbids": ("forbid",),
        "rules.prefers": ("prefer",),
        "rules.spread": ("spread",),
        "rules.zone": ("zone",),
        "seed_kind": ("seed",),
        "ssh_host_keys": ("ssh_host_key",),
        "ssh_keys": ("ssh_key",),
        "starts_at": ("start",),
        "subnet.cidr": ("cidr",),
        "subnet.dns": ("dns",),
        "subnet.excluded": ("exclude",),
        "subnet.gateway": ("gateway",),
        "timeout_s": ("timeout",),
        "ttl_s": ("ttl", "expires"),
        "url": ("origin",),
    }
)
#: Objects of names: which of them it is belongs to the place.
_OF_NAMES: Final = frozenset({"labels", "limits", "overrides", "ratios", "reserved", "resources"})
_LAST: Final = re.compile(r"(\.[^.\[]+|\[\d+\])$")


def as_typed(command: Any, field: str) -> str:
    """Return the option or argument of a command that a field comes from; else the field."""
    given = {each.name: each for each in command.params}
    place = field
    while place:
        for name in (place, *_PARAMETERS.get(place, ())):
            if name in given:
                rest = field.removeprefix(place).removeprefix(".").partition("[")[0]
                which = f" ({rest})" if place in _OF_NAMES and rest else ""
                return _option(given[name]) + which
        shorter = _LAST.sub("", place)
        place = shorter if shorter != place else ""
    return field


def _option(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name).upper().rstrip(".")
    return str(next((each for each in parameter.opts if each.startswith("--")), parameter.opts[0]))
