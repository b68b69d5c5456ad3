"""What programs that we start see of our environment, which holds the passwords of services."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

#: The fencing command's, as operators/host-failures.md says; all others see these, too.
PLAIN: Final = ("PATH", "HOME", "LANG", "TZ")


def child_environ(names: Iterable[str] = (), prefixes: tuple[str, ...] = ()) -> dict[str, str]:
    """Return what is plain, what is named, and what begins as named; never all there is.

    So a secret that is added to our environment tomorrow is not passed on.
    """
    handed_on = {*PLAIN, *names}
    return {
        name: value
        for name, value in os.environ.items()
        if name in handed_on or name.startswith(prefixes)
    }
