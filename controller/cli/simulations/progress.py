"""The progress of simulations on standard error: bars on a terminal, else lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from controller.terminal.output import echo
from plain_text import plain
from simulation import RunProgress

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

#: Runs that have a bar of their own.
_MAX_BARS: Final = 16


class StudyProgress(Protocol):
    """Shows the progress of a study."""

    def update(self, progress: Mapping[str, RunProgress]) -> None:
        """Update the display with the progress of each run that has begun."""
        ...

    def warn(self, sentence: str) -> None:
        """Show a warning about an obstacle to the study."""
        ...


@contextmanager
def show_progress(names: Sequence[str], *, fleet: bool) -> Iterator[StudyProgress]:
    """Show the progress of a study's runs on standard error during the block.

    Parameters
    ----------
    fleet : bool
        Without a terminal, print a line when a worker begins or ends a run.
    """
    if not sys.stderr.isatty():
        yield _RunLines(len(names)) if fleet else _SilentProgress()
        return
    from rich.console import Console  # noqa: PLC0415 - `fuga --help` is to be there at once
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415
    from rich.progress import Progress as Bars  # noqa: PLC0415

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
    )
    with Bars(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bars:
        yield _ProgressBars(bars, len(names))


class _SilentProgress:
    """For files and pipes: shows no progress."""

    def update(self, progress: Mapping[str, RunProgress]) -> None:
        """Show nothing."""

    def warn(self, sentence: str) -> None:
        echo(sentence, err=True)


class _RunLines(_SilentProgress):
    """A line whenever a worker of a fleet begins, ends or leaves a run."""

    def __init__(self, runs: int) -> None:
        self._runs = runs
        self._at: dict[str, str] = {}  #: who is at which run
        self._ended: set[str] = set()

    def update(self, progress: Mapping[str, RunProgress]) -> None:
        for name, worker in list(self._at.items()):
            if name not in progress:
                del self._at[name]
                echo(f"{name}: {worker} left it; another worker may continue", err=True)
        for name, far in progress.items():
            if far.part >= 1 and far.worker is None and name not in self._ended:
                self._ended.add(name)
                self._at.pop(name, None)
                echo(f"{name}: ended, {len(self._ended)} of {self._runs}", err=True)
            elif far.worker is not None and self._at.get(name) != far.worker:
                self._at[name] = far.worker
                echo(f"{name}: started on {far.worker}", err=True)


class _ProgressBars:
    """A bar with the time left for everything, and one for each run under way."""

    def __init__(self, bars: Bars, runs: int) -> None:
        self._bars = bars
        self._all = bars.add_task(f"{runs} runs", total=float(runs))
        self._of: dict[str, TaskID] = {}

    def update(self, progress: Mapping[str, RunProgress]) -> None:
        done = sum(each.part for each in progress.values())
        self._bars.update(self._all, completed=done)
        going = [name for name, each in progress.items() if each.part < 1][:_MAX_BARS]
        for name in [name for name in self._of if name not in going]:
            self._bars.remove_task(self._of.pop(name))
        for name in going:
            far = progress[name]
            where = "" if far.worker is None else f" on {far.worker}"
            if name not in self._of:
                self._of[name] = self._bars.add_task("", total=1.0)
            self._bars.update(
                self._of[name],
                completed=far.part,
                description=plain(f"{name}{where}: {far.running} VMs, {far.waiting} wait"),
            )

    def warn(self, sentence: str) -> None:
        self._bars.console.print(plain(sentence), markup=False, highlight=False)
