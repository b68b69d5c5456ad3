"""What the processes of `fuga up` are told, beside the operator's settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from controller.cli.credentials import settings_file
from registry import DEFAULT_URI_POLICY

#: What a person at a terminal wants shorter than a data centre does.
EMBEDDED_SETTINGS: Final[Mapping[str, str]] = {
    "slot_length_s": "5",
    "lease_s": "5",
    "poll_interval_s": "1",
}


def embedded_settings(
    environ: Mapping[str, str], lab_uris: tuple[str, ...], *, image: str | None = None
) -> dict[str, str]:
    """Return what `fuga up` adds: the operator's environment and file go before it."""
    ours = dict(EMBEDDED_SETTINGS)
    if image is not None:
        ours["default_image"] = image
    if lab_uris:
        # The lab is ours: its sockets may be named, which nobody may do from outside.
        parts = [urlsplit(uri) for uri in lab_uris]
        schemes = DEFAULT_URI_POLICY.schemes | {each.scheme for each in parts}
        ours["uri_schemes"] = json.dumps(sorted(schemes))
        names = {name for each in parts for name, _ in parse_qsl(each.query)}
        ours["uri_parameters"] = json.dumps(sorted(names))
    file = settings_file(environ)
    given = {name.upper() for name in environ}
    return {
        name: value
        for name, value in ours.items()
        if name not in file and f"FUGA_{name.upper()}" not in given
    }


def child_environ(
    environ: Mapping[str, str],
    state_dir: Path,
    listen: str,
    lab_uris: tuple[str, ...],
    *,
    image: str | None = None,
) -> dict[str, str]:
    """Return the whole environment of the processes."""
    added = embedded_settings(environ, lab_uris, image=image)
    return {
        **environ,
        **{f"FUGA_{name.upper()}": value for name, value in added.items()},
        "FUGA_STATE_DIR": str(state_dir),
        "FUGA_LISTEN": listen,
    }
