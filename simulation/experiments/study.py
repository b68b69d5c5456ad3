"""Run several simulations in processes, and summarise them together."""

from __future__ import annotations

import json
import multiprocessing
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any, Final, Protocol

from service.version import engine_version
from simulation.errors import SimulationError
from simulation.experiments.run import SUMMARY, RunProgress, simulate
from simulation.experiments.specs import RunSpec
from simulation.experiments.variant_comparison import compare_variants

RUNS: Final = "runs"
_POLL_EVERY_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class _RunFailure:
    """Why a run of a study ended without a summary."""

    message: str
    bad_input: bool


class RunFailedError(SimulationError):
    """A run of a study raised an error."""

    def __init__(self, name: str, message: str, *, bad_input: bool) -> None:
        super().__init__(f"{name}: {message}")
        self.message = message
        self.bad_input = bad_input


@dataclass(slots=True)
class _RunningJob:
    """A run of a study that is going on, and its process."""

    process: BaseProcess
    spec: RunSpec


class AnyStudy(Protocol):
    """A study of several simulations, local or on a fleet."""

    def stop(self) -> None:
        """Stop every run after it writes its results, and begin no other."""
        ...

    def run(self, report: Callable[[Mapping[str, RunProgress]], None]) -> list[dict[str, Any]]:
        """Run the whole study; return the summaries of runs that began, in order of the specs."""
        ...


class Study:
    """Runs the simulations of a study in processes, a bounded number at a time.

    Parameters
    ----------
    folder : Path
        Each run writes to ``runs/NAME`` below it.
    jobs : int
        Processes at a time.
    work : callable
        What a process does: `simulate`, or what is called like it, can be pickled, and
        returns None if it did not begin.
    """

    def __init__(
        self,
        specs: Sequence[RunSpec],
        folder: Path,
        *,
        jobs: int,
        resume: bool,
        as_csv: bool,
        work: Callable[..., dict[str, Any] | None] = simulate,
    ) -> None:
        self._specs = list(specs)
        self._folder = folder
        self._jobs = max(1, jobs)
        self._resume = resume
        self._as_csv = as_csv
        self._work = work
        self._stopping = False

    def stop(self) -> None:
        """Stop every run of the study after it writes its results, and begin no other."""
        self._stopping = True

    def run(self, report: Callable[[Mapping[str, RunProgress]], None]) -> list[dict[str, Any]]:
        """Run the whole study; return the summaries of runs that began, in order of the specs.

        Raises
        ------
        RunFailedError
            If one failed; the others have been stopped and have kept what they had.
        """
        context = multiprocessing.get_context("spawn")
        todo = list(self._specs)
        running: dict[Connection, _RunningJob] = {}
        progress: dict[str, RunProgress] = {}
        found: dict[str, dict[str, Any]] = {}
        failed: RunFailedError | None = None
        stop_requested = False
        while running or (todo and not self._stopping):
            while todo and not self._stopping and len(running) < self._jobs:
                spec = todo.pop(0)
                ours, theirs = context.Pipe()
                process = context.Process(
                    target=_run_child,
                    args=(self._work, theirs, spec, self._folder / RUNS / spec.name),
                    kwargs={"resume": self._resume, "as_csv": self._as_csv},
                    name=spec.name,
                )
                process.start()
                theirs.close()
                running[ours] = _RunningJob(process, spec)
            if self._stopping and not stop_requested:
                stop_requested = True
                for connection in running:
                    _send_message(connection, True)
            for each in wait(list(running), timeout=_POLL_EVERY_S):
                assert isinstance(each, Connection)  # noqa: S101 - what we wait for
                run = running[each]
                try:
                    said = each.recv()
                except EOFError:
                    said = _RunFailure(_exit_description(run.process), bad_input=False)
                if isinstance(said, RunProgress):
                    progress[run.spec.name] = said
                    continue
                if isinstance(said, _RunFailure):
                    failed = failed or RunFailedError(
                        run.spec.name, said.message, bad_input=said.bad_input
                    )
                    self.stop()
                elif said is not None:
                    found[run.spec.name] = said
                    progress[run.spec.name] = ended_progress(progress.get(run.spec.name))
                run.process.join()
                each.close()
                del running[each]
            report(progress)
        if failed is not None:
            raise failed
        return [found[spec.name] for spec in self._specs if spec.name in found]


def write_summary(
    folder: Path, summaries: Sequence[Mapping[str, Any]], command: Sequence[str]
) -> dict[str, Any]:
    """Write the summary of a study, with the comparison of its variants, and return it."""
    document = {
        "command": list(command),
        "engine_version": engine_version(),
        "finished": all(each["finished"] for each in summaries),
        "comparison": compare_variants(summaries),
        "runs": list(summaries),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SUMMARY).write_text(json.dumps(document, indent=2) + "\n")
    return document


def ended_progress(last: RunProgress | None) -> RunProgress:
    """Return the progress to show for a run that has ended."""
    return RunProgress(
        part=1.0,
        slot=last.slot if last else 0,
        running=last.running if last else 0,
        waiting=last.waiting if last else 0,
    )


def _exit_description(process: BaseProcess) -> str:
    """Describe the end of a run's process that reported nothing."""
    process.join()
    status = process.exitcode
    if status == -signal.SIGKILL:
        return "was killed (signal 9), as the system does where memory runs out: take fewer --jobs"
    return f"ended with status {status}"


def _send_message(connection: Connection, value: object) -> None:
    """Send a message to the other process of a run, unless it has ended."""
    try:
        connection.send(value)
    except OSError:  # it has ended: its last message is still to be read
        return


def _run_child(
    work: Callable[..., dict[str, Any] | None],
    connection: Connection,
    spec: RunSpec,
    folder: Path,
    *,
    resume: bool,
    as_csv: bool,
) -> None:
    """Run one simulation of a study in a child process; the parent handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    queried_at = 0.0
    stopped = False

    def is_stop_requested() -> bool:
        """Return whether the parent has requested to stop; looked up at most once in a while."""
        nonlocal queried_at, stopped
        now = time.monotonic()
        if not stopped and now - queried_at > _POLL_EVERY_S:
            queried_at = now
            stopped = connection.poll()  # a message from the parent, or its end
        return stopped

    try:
        said: object = work(
            spec,
            folder,
            resume=resume,
            as_csv=as_csv,
            stop=is_stop_requested,
            report=lambda progress: _send_message(connection, progress),
        )
    except SimulationError as error:
        said = _RunFailure(str(error), bad_input=True)
    except Exception as error:
        said = _RunFailure(f"{type(error).__name__}: {error}", bad_input=False)
    _send_message(connection, said)
    connection.close()


def stop_on_interrupt(study: AnyStudy) -> Callable[[], None]:
    """Let Ctrl-C stop a study gently; return a function that restores the old handler."""

    def stop_study(signum: int, frame: FrameType | None) -> None:
        """Stop the study at Ctrl-C."""
        study.stop()

    before = signal.signal(signal.SIGINT, stop_study)
    return lambda: (signal.signal(signal.SIGINT, before), None)[1]
