"""Why a volume cannot be used or changed at the moment: its host, its pool, or its VM."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Row

from registry.lifecycle import OUT_OF_REACH, VmObserved


def volume_trouble(row: Row[Any]) -> str | None:
    """Return why a volume waits for its host or its VM, in words without names of hosts, or None.

    The row has the volume's ``host_id`` and ``vm``, the health of its host with the times of its
    last poll and of its pool's silence, and what was observed of its VM.
    """
    if row.host_id is None:
        return None
    if row.health in OUT_OF_REACH:
        return f"its host does not answer{_since(row.last_polled_at)}"
    if row.pool_silent_since is not None:
        return f"the storage pool of its host does not answer{_since(row.pool_silent_since)}"
    if row.vm is not None and row.observed == VmObserved.LOST.value:
        return (
            f"VM {row.vm} is lost: its host is up and has no such domain. The volume is available"
            f" once the VM is deleted (`fuga rm {row.vm}`), or an operator has it rebuilt"
        )
    return None


def _since(moment: datetime | None) -> str:
    return "" if moment is None else f" since {moment:%Y-%m-%d %H:%M:%S} UTC"
