"""Checkpoints at which a test may kill or stop this process.

Recovery is tested by dying where it hurts. Without the variables in the
environment a checkpoint costs one dictionary lookup.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

_SIGNALS = {"FUGA_KILL_AT": signal.SIGKILL, "FUGA_STOP_AT": signal.SIGSTOP}


def checkpoint(name: str) -> None:
    """Kill or stop this process if ``FUGA_KILL_AT`` or ``FUGA_STOP_AT`` names this checkpoint.

    Both variables may list several names, separated by commas. The file
    ``FUGA_KILL_MARK`` makes it happen once: only the process that creates the file dies.
    """
    for variable, number in _SIGNALS.items():
        names = os.environ.get(variable)
        if (
            names
            and name in (each.strip() for each in names.split(","))
            and _is_first_process(name)
        ):
            # To this very thread, which would otherwise run on until the signal,
            # taken by another one, has stopped them all.
            signal.pthread_kill(threading.get_ident(), number)


def _is_first_process(name: str) -> bool:
    """Return whether no process was killed at a checkpoint yet, by the file ``FUGA_KILL_MARK``."""
    mark = os.environ.get("FUGA_KILL_MARK")
    if not mark:
        return True
    try:
        with Path(mark).open("x") as file:
            file.write(f"{name} {os.getpid()}\n")
    except FileExistsError:
        return False
    return True
