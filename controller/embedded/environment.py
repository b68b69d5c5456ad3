"""The environment of the processes of `fuga up`, in addition to the operator's settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from controller.session.credentials import settings_file
from registry.hosts import DEFAULT_URI_POLICY, UriPolicy

#: What a person at a terminal wants shorter than a data centre does.
EMBEDDED_SETTINGS: Final[Mapping[str, str]] = {
    "slot_length_s": "5",
    "lease_s": "5",
    "poll_interval_s": "1",
    # Several times what the demo cluster holds, so that the database does not fill up by mistake.
    "default_quota": json.dumps({"vms": 500, "vcpus": 1000}),
}


def lab_uri_policy(lab_uris: tuple[str, ...]) -> UriPolicy:
    """Return a URI policy that allows the lab's hosts, including their Unix sockets."""
    parts = [urlsplit(uri) for uri in lab_uris]
    return UriPolicy(
        schemes=DEFAULT_URI_POLICY.schemes | {each.scheme for each in parts},
        parameters=frozenset(name for each in parts for name, _ in parse_qsl(each.query)),
    )


def embedded_settings(
    environ: Mapping[str, str], lab_uris: tuple[str, ...], *, image: str | None = None
) -> dict[str, str]:
    """Return the settings that `fuga up` adds; the operator's own settings override them."""
    ours = dict(EMBEDDED_SETTINGS)
    if image is not None:
        ours["default_image"] = image
    if lab_uris:
        policy = lab_uri_policy(lab_uris)
        ours["uri_schemes"] = json.dumps(sorted(policy.schemes))
        ours["uri_parameters"] = json.dumps(sorted(policy.parameters))
    file = settings_file(environ)
    given = {name.upper() for name, value in environ.items() if value}
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
    """Return the environment of the processes that `fuga up` starts."""
    added = embedded_settings(environ, lab_uris, image=image)
    return {
        **environ,
        **{f"FUGA_{name.upper()}": value for name, value in added.items()},
        "FUGA_STATE_DIR": str(state_dir),
        "FUGA_LISTEN": listen,
    }
