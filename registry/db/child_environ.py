"""The environment of child programs, without the services' passwords."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

#: The fencing command's, as operators/host-failures.md says; all others see these, too.
PLAIN: Final = ("PATH", "HOME", "LANG", "TZ")


def child_environ(names: Iterable[str] = (), prefixes: tuple[str, ...] = ()) -> dict[str, str]:
    """Return environment variables for a child program: harmless ones and those that are listed.

    This is an allow-list, so that a secret added later is not passed on.
    """
    handed_on = {*PLAIN, *names}
    return {
        name: value
        for name, value in os.environ.items()
        if name in handed_on or name.startswith(prefixes)
    }
