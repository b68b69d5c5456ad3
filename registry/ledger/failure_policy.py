"""The failure policy of hosts: what happens to VMs of a host that is down, by its labels."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

#: Prefix of the host label.
FAILURE_LABEL: Final = "on_failure="


class FailurePolicy(StrEnum):
    """The failure policy of a host."""

    WAIT = "wait"
    REPLACE = "replace"  #: VMs start elsewhere if their disks are in a shared pool, else they wait
    REBUILD = (
        "rebuild"  #: like replace, but VMs without shared disks are rebuilt and lose their data
    )


def failure_policy_of(
    labels: Iterable[str], *, by_default: FailurePolicy = FailurePolicy.WAIT
) -> FailurePolicy:
    """Return the failure policy in a host's labels, or the site's default."""
    said = {
        label.removeprefix(FAILURE_LABEL) for label in labels if label.startswith(FAILURE_LABEL)
    }
    if not said:
        return by_default
    # Contradictory or unknown labels mean `wait`, which loses nothing.
    known = said & set(FailurePolicy)
    return FailurePolicy(known.pop()) if len(said) == len(known) == 1 else FailurePolicy.WAIT


def is_replaced(wanted: FailurePolicy, shared_pool: str | None) -> bool:
    """Return whether a host's failure policy places its VMs elsewhere when it fails."""
    return wanted is FailurePolicy.REBUILD or (
        wanted is FailurePolicy.REPLACE and shared_pool is not None
    )


def failure_outlook(
    labels: Iterable[str],
    shared_pool: str | None,
    *,
    by_default: FailurePolicy = FailurePolicy.WAIT,
) -> str:
    """Return text about what happens to a VM when a host with these labels fails."""
    wanted = failure_policy_of(labels, by_default=by_default)
    if wanted is FailurePolicy.WAIT:
        return "it waits for its host"
    if shared_pool is not None:
        return "once its host is proven to be off it starts elsewhere with its disk"
    if wanted is FailurePolicy.REBUILD:
        return (
            "once its host is proven to be off it is rebuilt from its image elsewhere: what it"
            " had written is lost"
        )
    return (
        "it waits for its host: only that host has its disk, and on_failure=replace loses no disk"
    )
