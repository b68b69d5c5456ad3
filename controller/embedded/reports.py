"""Which processes of `fuga up` have reported to the register center."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final

#: Processes that report, and what stands still without one.
NEEDED_FOR: Final[Mapping[str, str]] = {
    "control": "nothing decides, so requests wait",
    "monitor": "nothing polls hosts, so they stay down",
    "worker": "nothing creates VMs, so placed VMs wait",
}


def processes_without_report(
    reports: Sequence[Mapping[str, Any]], pids: Mapping[str, int | None]
) -> list[str]:
    """Return the processes of this machine that have not reported.

    Parameters
    ----------
    reports
        ``processes`` of ``GET /v1/status``.
    pids
        By name, as in `NEEDED_FOR`; None of one that does not run.
    """
    machine = socket.gethostname()
    # Workers add a part of their own to machine and pid.
    heard = {tuple(str(each["name"]).split(":")[:2]) for each in reports}
    return [name for name, pid in pids.items() if (machine, str(pid)) not in heard]
