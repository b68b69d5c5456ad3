"""Names of machines: an operator's name in a label, and the machine's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: Host label with an operator's name for a machine whose UUID another one also reports.
MACHINE_LABEL: Final = "machine="
#: Stands for the UUID of a machine that answers in a host's place and reports none.
NO_UUID: Final = "00000000-0000-0000-0000-000000000000"


def machine_label_of(labels: Iterable[str]) -> str | None:
    """Return the operator's name for a host's machine from the host's labels."""
    found = (each for each in labels if each.startswith(MACHINE_LABEL))
    return next((each.removeprefix(MACHINE_LABEL) for each in found), None)


def other_machine_message(
    known: str | None,
    found: str | None,
    name: str | None,
    found_name: str | None,
    *,
    known_as: str | None = None,
) -> str:
    """Return text that names the machine answering in a host's place, by UUID or by name."""
    its = "" if known_as is None else f", which is host {known_as},"
    if found == known and name == found_name:
        return f"another machine{its} with the UUID {found} and the name {name} of this host's"
    if found == known:
        return f"machine {found} named {found_name}{its} instead of the one named {name}"
    machine = "a machine that reports no UUID" if found in {None, NO_UUID} else f"machine {found}"
    return f"{machine}{its} instead of {known}"
