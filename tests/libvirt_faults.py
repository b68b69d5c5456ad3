"""Faults of libvirt's own under a failed test, each proven by name (ADR 0049)."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

import pytest

#: Title of the section of a report that names one; `Account` reads it.
SECTION: Final = "fault of libvirt's"
#: libvirt 9.0's client, in a child that does nothing else, over SSH.
_CLIENT: Final = re.compile(r"qemu\+ssh://\S+ does not answer: .*its process ended \(-11\)")
#: As `lab/scripts/host-init` writes it. Tests that end a daemon choose other signals.
_DAEMON: Final = re.compile(r"^(\S+ \S+) libvirtd ended \((SIGSEGV|SIGABRT)\)", re.MULTILINE)
_CRASHES: Final = (signal.SIGSEGV, signal.SIGABRT)


def of_client(text: str) -> Iterator[str]:
    """Find the client that died of SIGSEGV in the text of a failure."""
    if _CLIENT.search(text):
        yield "its client over SSH died of SIGSEGV"


def of_daemons(folder: Path, since: datetime) -> Iterator[str]:
    """Find daemons of labs below a folder that crashed since then."""
    for log in folder.rglob("log/daemons.log"):
        for at, how in _DAEMON.findall(log.read_text(errors="replace")):
            if datetime.fromisoformat(at) >= since:
                yield f"libvirtd of {log.parent.parent.name} died of {how}"
    for pid_file in folder.rglob("test-hosts/*/daemon.pid"):
        with contextlib.suppress(OSError, IndexError, ValueError):  # it just began, or ended
            if pid_file.stat().st_mtime < since.timestamp():
                continue
            if (how := _ended_by(int(pid_file.read_text().split()[0]))) in _CRASHES:
                yield f"libvirtd of test host {pid_file.parent.name} died of {how.name}"


def _ended_by(pid: int) -> signal.Signals | None:
    """Return the signal that ended a child of this process which nobody has waited for."""
    try:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    by_signal = ended is not None and ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
    return signal.Signals(ended.si_status) if ended is not None and by_signal else None


class LibvirtFaults:
    """Adds a section to the report of each test that failed under a fault of libvirt's."""

    def __init__(self) -> None:
        self._module: Path | None = None
        self._began = datetime.min  # noqa: DTZ901 - as the labs' logs, in local time

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if item.path != self._module:  # tests of a module share hosts, and fall with one
            self._module = item.path
            self._began = datetime.now().replace(microsecond=0)  # noqa: DTZ005

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Iterator[None]:
        report: pytest.TestReport = yield  # type: ignore[misc, assignment]
        if report.failed:
            folder = item.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
            found = {*of_client(report.longreprtext), *of_daemons(folder, self._began)}
            report.sections += [(SECTION, each) for each in sorted(found)]
        return report  # type: ignore[return-value]
