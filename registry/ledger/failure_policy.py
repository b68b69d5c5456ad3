"""What becomes of the VMs of a host that is down: by its labels, and by where their disks are."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

#: A label of hosts.
FAILURE_LABEL: Final = "on_failure="


class OnFailure(StrEnum):
    """What is wanted for VMs of a host that fails."""

    WAIT = "wait"
    REPLACE = "replace"  #: they start elsewhere with their disks; without these they wait
    REBUILD = "rebuild"  #: the same, or anew from their images: what they had written is lost


def failure_policy_of(
    labels: Iterable[str], *, by_default: OnFailure = OnFailure.WAIT
) -> OnFailure:
    """Return what a host's labels say, or else the site's setting."""
    said = {
        label.removeprefix(FAILURE_LABEL) for label in labels if label.startswith(FAILURE_LABEL)
    }
    if not said:
        return by_default
    # Contradictory or unknown labels mean `wait`, which loses nothing.
    known = said & set(OnFailure)
    return OnFailure(known.pop()) if len(said) == len(known) == 1 else OnFailure.WAIT


def is_replaced(wanted: OnFailure, shared_pool: str | None) -> bool:
    """Return whether VMs are placed elsewhere when their host fails: no disk is lost unsaid."""
    return wanted is OnFailure.REBUILD or (wanted is OnFailure.REPLACE and shared_pool is not None)


def failure_outlook(
    labels: Iterable[str], shared_pool: str | None, *, by_default: OnFailure = OnFailure.WAIT
) -> str:
    """Say what becomes of a VM on a host with these labels that fails."""
    wanted = failure_policy_of(labels, by_default=by_default)
    if wanted is OnFailure.WAIT:
        return "it waits for its host"
    if shared_pool is not None:
        return "once its host is proven to be off it starts elsewhere with its disk"
    if wanted is OnFailure.REBUILD:
        return (
            "once its host is proven to be off it is built anew from its image elsewhere: what it"
            " had written is lost"
        )
    return (
        "it waits for its host: only that host has its disk, and on_failure=replace loses no disk"
    )
