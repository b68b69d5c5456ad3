"""Shell completion of names from the API, with a short timeout so that typing never waits."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from plain_text import plain

TIMEOUT_S: Final = 1.0
MAX_NAMES: Final = 500


def name_completer(*paths: str) -> Callable[[str], list[str]]:
    """Return a completion function for the names that the API lists at these paths."""

    def complete(incomplete: str) -> list[str]:
        found = {name for path in paths for name in _read_names(path)}
        return sorted(name for name in found if name.startswith(incomplete))

    return complete


def _read_names(path: str) -> list[str]:
    """Return the names that the API lists at a path; none if anything fails."""
    # No error may appear in the line that the user types.
    try:
        from controller.client.http import Client  # noqa: PLC0415 - httpx takes its time
        from controller.session.credentials import find_connection  # noqa: PLC0415

        client = Client(
            find_connection(os.environ), timeout_s=TIMEOUT_S, agent="fuga-cli", retry_after_s=()
        )
        try:
            found = [str(each["name"]) for each in client.items(path, max_items=MAX_NAMES)]
            return [name for name in found if name == plain(name)]
        finally:
            client.close()
    except Exception:
        return []


complete_host: Final = name_completer("hosts")
complete_vm_type: Final = name_completer("vm-types")
complete_tenant: Final = name_completer("tenants")
complete_request: Final = name_completer("requests")
complete_vm: Final = name_completer("vms")
complete_volume: Final = name_completer("volumes")
complete_target: Final = name_completer("requests", "vms")
