"""The part of the environment for child processes, without passwords of database and broker.

A child reads the bytes of a host, or runs what is not ours: it is given what is named here,
so a secret that we learn of tomorrow is not handed on either.
"""

from __future__ import annotations

import os
from typing import Final

_NAMES: Final = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH"}
    # libvirt's client: an agent's keys, tickets of SASL
    | {"SSH_AUTH_SOCK", "KRB5CCNAME", "KRB5_CONFIG"}
    | {"FUGA_STATE_DIR"}  # no secret: it tells whose child it is
)
_PREFIXES: Final = ("LC_", "PYTHON", "XDG_", "LIBVIRT_")


def child_environ() -> dict[str, str]:
    """Return the part of our environment that is handed on."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _NAMES or name.startswith(_PREFIXES)
    }
