"""What machines are called: by their operators, in a label, and by themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: A label of hosts: an operator's name for a machine whose UUID another one reports, too.
MACHINE_LABEL: Final = "machine="


def machine_label_of(labels: Iterable[str]) -> str | None:
    """Return an operator's name for the machine of a host with these labels."""
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
    """Say which machine answers in place of a host's; by its name, where both have one UUID."""
    its = "" if known_as is None else f", which is host {known_as},"
    if found == known:
        return f"machine {found} named {found_name}{its} instead of the one named {name}"
    return f"machine {found}{its} instead of {known}"
