"""Run one job of a fleet on a worker, under the job's lock."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from registry.db import checkpoint
from simulation.errors import InputError
from simulation.experiments.jobs import Job, JobFailure, JobFiles, file_lock
from simulation.experiments.run import RunProgress, read_summary, simulate
from simulation.experiments.specs import RunSpec
from simulation.experiments.study import RunFailedError, Study

_REPORT_EVERY_S: Final = 1.0


def run_job(
    files: JobFiles, name: str, stop: Callable[[], bool], *, worker: str
) -> dict[str, Any] | None:
    """Run or resume one job of a fleet's study, in a process of its own.

    Parameters
    ----------
    worker : str
        Name of the worker, for the submitter's display.

    Returns
    -------
    dict or None
        The summary; None if there was nothing to do, because another worker has it,
        it was taken back, or it failed, which its files record.
    """
    text = files.read(name)
    if text is None or files.is_taken(name) or files.is_stop_requested():
        return None
    if files.failure(name) is not None:  # it was let go of for that, a moment ago
        return None
    try:
        job = Job.of(text)
    except InputError as error:
        files.write_failure(name, JobFailure(message=str(error), bad_input=True, worker=worker))
        return None
    done = read_summary(files.run_folder(name), job.digest)
    if done is not None and done["finished"]:
        return None
    work = partial(_simulate_under_lock, files.job_file(name), text)
    study = Study([job.spec], files.folder, jobs=1, resume=True, as_csv=job.as_csv, work=work)
    reported_at = 0.0

    def report(progress: Mapping[str, RunProgress]) -> None:
        """Stop the job if that is requested, and write its progress to its file."""
        nonlocal reported_at
        if stop() or files.is_stop_requested():
            study.stop()
        now, far = time.monotonic(), progress.get(name)
        if far is not None and far.part < 1 and now - reported_at > _REPORT_EVERY_S:
            reported_at = now
            files.write_progress(name, replace(far, worker=worker))

    try:
        return next(iter(study.run(report)), None)
    except RunFailedError as error:
        files.write_failure(
            name, JobFailure(message=error.message, bad_input=error.bad_input, worker=worker)
        )
        return None


def _simulate_under_lock(
    path: Path,
    text: str,
    spec: RunSpec,
    folder: Path,
    *,
    report: Callable[[RunProgress], None],
    **options: Any,
) -> dict[str, Any] | None:
    """Simulate in the process that holds the lock, so that it outlives its worker.

    Then it writes what it has, and ends; only after that can another worker begin.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the worker handles it, as Ctrl-C
    job = Job.of(text)
    with file_lock(path) as file:
        if file is None or file.read() != text:
            return None
        try:
            os.chdir(job.cwd)
        except OSError as error:
            raise InputError(job.cwd, f"a worker needs it, too: {error.strerror}") from None
        if spec.digest() != job.digest:
            raise InputError(
                spec.trace.path, "this, or another file of the run, is not the same on a worker"
            )

        def report_progress(progress: RunProgress) -> None:
            """Report the progress of the job to its worker."""
            report(progress)
            checkpoint("simulation.reported")

        report(RunProgress(part=0.0, slot=0, running=0, waiting=0))  # names the worker that began
        return simulate(spec, folder, report=report_progress, **options)
