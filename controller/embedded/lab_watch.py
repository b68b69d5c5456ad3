"""Hosts of the lab whose daemons end by themselves while `fuga up` runs.

Real hosts restart their libvirtd by themselves: here this is only reported. One of the
test driver is restarted from here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from controller.embedded.lab_hosts import QEMU, LabHosts
from lab import driver_hosts
from lab.driver_hosts import DriverHost
from lab.errors import LabError

#: What a real host writes when one of its daemons ended.
_LOG_NAME: Final = "daemons.log"
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0  #: one that lived as long begins with the first pause again


@dataclass(slots=True)
class _RestartState:
    """The restart state of a host of the test driver whose libvirtd has ended."""

    pause_s: float = 0.0
    start_at: float | None = None  #: None: it runs
    started_at: float = 0.0


@dataclass(slots=True)
class LabWatch:
    """Watches the hosts of a lab and reports ended daemons; `names` are the registered names."""

    folder: Path
    lab: LabHosts
    names: Sequence[str]
    say: Callable[[str], None]
    now: Callable[[], float] = time.monotonic
    start_again: Callable[[DriverHost], None] = driver_hosts.restart_host
    _read: list[int] = field(default_factory=list)
    _restarts: dict[str, _RestartState] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Skip daemons that ended before the watch began."""
        self._read = [len(_ended_daemon_lines(host.log_dir)) for host in self.lab.hosts]

    def check(self) -> None:
        """Report ended processes of the lab; restart those that no other process restarts."""
        if self.lab.driver == QEMU:
            self._report_ended_daemons()
        else:
            for name, host in zip(
                self.names, driver_hosts.started_hosts(self.folder), strict=False
            ):
                self._restart_ended_daemon(name, host)

    def _report_ended_daemons(self) -> None:
        for index, (name, host) in enumerate(zip(self.names, self.lab.hosts, strict=False)):
            lines = _ended_daemon_lines(host.log_dir)
            for line in lines[self._read[index] :]:
                self.say(f"{name}: {line.split(maxsplit=2)[-1]}. Guests run on.")
            self._read[index] = len(lines)

    def _restart_ended_daemon(self, name: str, host: DriverHost) -> None:
        """Start a host's ended libvirtd again, after a pause."""
        if host.running():
            if name in self._restarts:
                self._restarts[name].start_at = None
            return
        state = self._restarts.setdefault(name, _RestartState())
        if state.start_at is None:
            self._postpone_start(
                state, f"{name}: its libvirtd ended, and all that was on it is gone"
            )
        elif self.now() >= state.start_at:
            try:
                self.start_again(host)
            except (LabError, OSError) as error:  # OSError: a full disk
                self._postpone_start(state, f"{name}: its libvirtd does not start: {error}")
            else:
                state.start_at, state.started_at = None, self.now()

    def _postpone_start(self, state: _RestartState, what: str) -> None:
        """Schedule the next start of a host's libvirtd; pauses double up to a limit."""
        steady = state.start_at is None and self.now() - state.started_at >= _LONGEST_PAUSE_S
        longer = min(2 * state.pause_s, _LONGEST_PAUSE_S)
        state.pause_s = _FIRST_PAUSE_S if steady or not state.pause_s else longer
        state.start_at = self.now() + state.pause_s
        self.say(f"{what}; it starts again in {state.pause_s:g} s")


def _ended_daemon_lines(log_dir: Path) -> list[str]:
    """Return the lines in which a lab host logged daemons that ended."""
    try:
        return (log_dir / _LOG_NAME).read_text(errors="replace").splitlines()
    except OSError:
        return []
