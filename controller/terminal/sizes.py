"""Sizes of disks as people type and read them."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Final

from controller.terminal.errors import BadInputError

_EXAMPLES: Final = "100GiB, 100G or 1TiB; a number alone is GiB"
_SIZE: Final = re.compile(r"\s*([+-]?[0-9]+(?:[.,][0-9]*)?)\s*([A-Za-z]*)\s*")
#: GiB of a unit, in lower case.
_UNITS: Final = MappingProxyType({"": 1, "g": 1, "gib": 1, "t": 1024, "tib": 1024})


def parse_size_gib(option: str, given: str) -> int:
    """Parse a size such as ``100GiB``, ``1T`` or ``100`` as GiB.

    Raises
    ------
    BadInputError
        If the number is not whole or below 1, or the unit is neither GiB nor TiB.
    """
    found = _SIZE.fullmatch(given)
    if found is None:
        raise BadInputError(f"{option} {given!r} is no size: type {_EXAMPLES}")
    number, unit = found.groups()
    if unit.lower() not in _UNITS:
        raise BadInputError(
            f"{option} {given!r} has the unit {unit!r}, and sizes are whole GiB: type {_EXAMPLES}"
        )
    if not number.lstrip("+-").isdigit():
        raise BadInputError(f"{option} {given!r} is no whole number: type {_EXAMPLES}")
    if int(number) < 1:
        raise BadInputError(f"{option} {given!r} is less than 1 GiB: type {_EXAMPLES}")
    return int(number) * _UNITS[unit.lower()]
