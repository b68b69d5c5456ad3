"""What guests call themselves where their tenant says so, with a number for each of several."""

from __future__ import annotations

import re
from typing import Final

from registry.errors import InvalidError

#: Of what is asked for, so that numbers fit into the 253 that there may be.
MAX_LENGTH: Final = 240
_WHOLE_LENGTH: Final = 253
_LABEL_LENGTH: Final = 63
_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")


def check_hostname(field: str, name: str) -> str:
    """Return the host name, or raise `InvalidError`."""
    if len(name) > MAX_LENGTH or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        allowed = (
            f"a host name as of RFC 1123: parts of 1 to {_LABEL_LENGTH} letters, digits and '-',"
            f" first and last no '-', joined by '.', {MAX_LENGTH} characters at most"
        )
        raise InvalidError(field, name, allowed)
    if name.rpartition(".")[2].isdigit():  # as an address such as 1.2.3.4, which resolvers read
        allowed = (
            "a host name whose last part is not a number, as of RFC 1123: 1.2.3.4 is an address"
        )
        raise InvalidError(field, name, allowed)
    if _is_local(name):
        raise InvalidError(field, name, "another name: each machine calls itself that")
    return name


def _is_local(name: str) -> bool:
    """Whether a guest's own /etc/hosts or resolver takes the name for itself (RFC 6761)."""
    parts = name.lower().split(".")
    return parts[-1] in {"localhost", "localdomain"} or parts[0] == "localhost"


def numbered(name: str, number: int) -> str:
    """Return the host name of one of many VMs: the number follows the first part of the name."""
    first, dot, rest = name.partition(".")
    suffix = f"-{number}"
    most = min(_LABEL_LENGTH, _WHOLE_LENGTH - len(dot + rest)) - len(suffix)
    return first[:most].rstrip("-") + suffix + dot + rest
