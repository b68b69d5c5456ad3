"""Host names as libvirt reports them, split into name and domain for comparison."""

from __future__ import annotations

import contextlib
import ipaddress
from typing import Final

MAX_HOST_NAME: Final = 255  #: characters of a host name, and of its domain


def split_host_name(hostname: str) -> tuple[str | None, str | None]:
    """Split a host name into short name and domain, normalized; None for a missing part.

    libvirt appends the domain only while name resolution works. An address has no domain. Each
    part has at most 255 characters.
    """
    name = hostname.strip().rstrip(".").casefold()  # which may have more characters
    if name.rpartition(".")[2].isdigit() or ":" in name:
        with contextlib.suppress(ValueError):
            name = str(ipaddress.ip_address(name))
        return name[:MAX_HOST_NAME], None
    short, _, domain = name.partition(".")
    return short[:MAX_HOST_NAME] or None, domain[:MAX_HOST_NAME] or None


def are_host_names_apart(
    one: tuple[str | None, str | None], other: tuple[str | None, str | None]
) -> bool:
    """Return whether two split host names belong to two machines; False if a name is missing.

    If only the domains differ, both names must have one.
    """
    if one[0] is None or other[0] is None:
        return False
    return one[0] != other[0] or (None not in {one[1], other[1]} and one[1] != other[1])
